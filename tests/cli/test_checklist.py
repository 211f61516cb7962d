"""`autocap doctor --record`, above an emulated NVML library: in virtual time, and with real processes beside it."""

import gzip
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from autocap.cli import checklist, doctor, examination
from autocap.cli.checklist import go_through
from autocap.cli.examination import Examination
from autocap.cli.findings import Finding, ok
from autocap.clock import VirtualClock
from autocap.devices.nvml.library import open_library
from autocap.progress.calls.counter import CallCounter
from autocap.progress.calls.target import TORCH_BACKWARD, CallsUnavailable
from autocap.runlog.output_directory import OutputDirectory
from autocap.testing.nvml import SHIM, FileBoard, Machine, MemoryBoard, emulated, environment, machine, times
from autocap.testing.nvml.install import shared_clock
from tests.cli.test_cli import Cli, Here

STEPS = ["versions", "calls", "sensors", "recordings", "periods", "counts", "overhead", "noise", "left out"]
_BUSY = "somebody computes on the GPU, whom a load would disturb"
_PYTHON = (sys.executable, "-c")
_PLAY = "from autocap.testing.nvml import player; player.main"
_SEES = (*_PYTHON, """print('{"torch": "2.13.0", "cuda": "12.8", "gpu": "one"}')""")
_SEES_NONE = (*_PYTHON, """print('{"torch": "2.13.0+cpu", "cuda": null, "gpu": null}')""")
_NO_TORCH = (*_PYTHON, "import torch_that_is_not_here")
_BURSTS = f"""
import time
{_PLAY.partition(";")[0]}
for number in (2, 2, 2, 6):
    time.sleep(1.0)
    print(time.monotonic(), flush=True)
    player.main(["--gpus", "0", "--iterations", str(number)])
    print(time.monotonic(), flush=True)
"""
_TRAINING = """
import time, torch
weight = torch.nn.Parameter(torch.zeros(8))
optimiser = torch.optim.SGD([weight], lr=0.1)
until_s = time.monotonic() + 6
while time.monotonic() < until_s:
    (weight**2).sum().backward()
    optimiser.step()
    time.sleep(0.02)
"""
Record = Callable[..., dict[str, Finding]]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Goes through the list in virtual time; gives the finding of each step, and leaves its files in tmp_path."""
    monkeypatch.setattr(checklist, "TORCH", _SEES_NONE)
    monkeypatch.setattr(checklist, "COUNTED", (*_PYTHON, ""))

    def recorded(made: Machine) -> dict[str, Finding]:
        clock, board = VirtualClock(), MemoryBoard(made)
        with emulated(board, clock), OutputDirectory(tmp_path / "out") as folder:
            found = {one.area: one for one in go_through(folder, partial(open_library, **times(clock)), clock)}
        assert list(found) == STEPS
        assert board.read().changes == ()
        return found

    return recorded


def one_gpu(**changes: object) -> Machine:
    made = replace(machine("quadro-rtx-6000/resnet50"), sensor="rtx-4090")
    return made.with_card(0, replace(made.cards[0], **changes))  # type: ignore[arg-type]  # a card's


def one_gpu_at_rest() -> Machine:
    return replace(one_gpu(), start_s=None, sensor="v100")


def in_file(tmp_path: Path, name: str) -> dict[str, object]:
    read: dict[str, object] = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    return read


@pytest.mark.slow
def test_without_a_load_calls_and_sensors_are_measured_and_the_rest_says_why_not(
    record: Record, tmp_path: Path
) -> None:
    found = record(one_gpu())
    assert found["versions"].text.startswith("driver 575.57.08, PyTorch 2.13.0+cpu (CUDA not built in), Python 3.")
    assert found["versions"].text.endswith(f"; no load can be made: {_BUSY}")
    assert "nvmlDeviceGetSamples answers NOT_SUPPORTED" in found["calls"].text
    assert "POWER_INSTANT (186), POWER_CURRENT_LIMIT (190)" in found["calls"].text
    assert "instant_w moved 200 times, every 99.9 ms" in found["sensors"].text
    assert "energy_j moves by 1" in found["sensors"].text
    assert found["sensors"].text.endswith(f"lag and noise are not known without a load: {_BUSY}")
    for name in ("recordings", "overhead"):
        assert (found[name].verdict, found[name].text) == ("note", f"not possible here: {_BUSY}")
    assert found["periods"].text == "not possible here: there is no recording"
    assert found["noise"].text == "not possible here: there was no constant load"
    assert "what a cap does, as none was set" in found["left out"].text
    sensors = in_file(tmp_path, "sensors")
    assert sensors["said"] == found["sensors"].text
    assert gzip.decompress((tmp_path / "out/sensors.csv.gz").read_bytes()).startswith(b"t_s,instant_w,instant_stamp_s,")


@pytest.mark.slow
def test_calls_that_the_kernel_counts_are_held_against_the_hooks_steps(
    record: Record, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    try:
        CallCounter(TORCH_BACKWARD).rehearse()
    except CallsUnavailable as error:
        pytest.skip(f"no calls can be counted here: {error}")
    monkeypatch.setattr(checklist, "COUNTED", (*_PYTHON, _TRAINING))
    found = record(one_gpu())
    assert found["counts"].text.startswith("while the hook counted ")
    assert found["counts"].text.endswith(" steps, the kernel counted as many backward passes")
    assert in_file(tmp_path, "counts")["found"]


@pytest.mark.slow
def test_where_somebody_computes_no_load_is_made(
    record: Record, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checklist, "TORCH", _SEES)
    made = one_gpu_at_rest()
    found = record(made.with_card(0, replace(made.cards[0], pids=(os.getpid(),))))
    assert found["recordings"].text == f"not possible here: {_BUSY}"


@pytest.mark.slow
def test_a_gpu_that_pytorch_does_not_see_is_not_made_to_work(record: Record) -> None:
    found = record(one_gpu_at_rest())
    assert found["versions"].text.endswith("; no load can be made: PyTorch sees no GPU")
    assert found["overhead"].text == "not possible here: PyTorch sees no GPU"


@pytest.mark.slow
def test_a_load_that_fails_says_where_it_says_why(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checklist, "TORCH", _SEES)
    monkeypatch.setattr(checklist, "LOAD", (*_PYTHON, "1 / 0"))
    monkeypatch.setattr(checklist, "RECORDED", {})
    monkeypatch.setattr(checklist, "COMPARED", (*_PYTHON, "1 / 0"))
    found = record(one_gpu_at_rest())
    assert found["sensors"].text == "not possible here: the load ended with status 1; stderr.txt says why"
    assert found["overhead"].text == "not possible here: the training ended with status 1; stderr.txt says why"


@pytest.mark.slow
def test_without_a_driver_or_torch_each_step_says_so_and_the_next_goes_on(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checklist, "TORCH", _NO_TORCH)
    found = record(Machine(profile="none", cards=(), has_driver=False))
    assert "driver not here, PyTorch not here" in found["versions"].text
    assert found["calls"].text.startswith("not possible here: no NVIDIA GPU can be used: opening NVML failed with")
    assert found["counts"].text == "not possible here: there is no PyTorch in this Python"
    assert found["overhead"].text == "not possible here: there is no GPU that can be used"


@pytest.mark.slow
def test_a_step_that_fails_or_takes_too_long_keeps_no_other_from_being_made(
    record: Record, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("odd")

    def silent(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(checklist, "call_times", broken)
    monkeypatch.setattr(checklist, "poll", silent)
    found = record(one_gpu())
    assert (found["calls"].verdict, found["calls"].text) == ("trouble", "this failed: ValueError: odd")
    assert (found["sensors"].verdict, found["sensors"].text) == ("note", "this has not ended within 300 s")
    assert in_file(tmp_path, "calls") == {"said": "this failed: ValueError: odd", "found": None}
    assert found["noise"].text == "not possible here: there was no constant load"


@pytest.mark.slow
def test_a_load_recordings_periods_and_what_observing_costs(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    board = FileBoard.create(tmp_path / "machine.json", one_gpu_at_rest())
    for name, value in environment(tmp_path / "machine.json", cli.env).items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(SHIM))
    timed = f"{_PLAY}(['--steps', '--gpus', '0', '--iterations', '2']); print('{{\"images_per_s\": 64.0}}')"
    monkeypatch.setattr(checklist, "TORCH", _SEES)
    monkeypatch.setattr(checklist, "LOAD", (*_PYTHON, _BURSTS))
    long = f"{_PLAY}(['--steps', '--gpus', '0', '--iterations', '16'])"
    monkeypatch.setattr(checklist, "RECORDED", {"played": (*_PYTHON, long), "broken": (*_PYTHON, "1 / 0")})
    monkeypatch.setattr(checklist, "COUNTED", (*_PYTHON, ""))
    monkeypatch.setattr(checklist, "COMPARED", (*_PYTHON, timed))
    monkeypatch.setattr(checklist, "_WINDOWS_S", (6,))
    monkeypatch.setattr(checklist, "_ROUNDS", 2)
    monkeypatch.setattr(checklist, "_SETTLED_S", 1.0)
    monkeypatch.setattr(checklist, "_STARTED_S", 1.0)
    with emulated(board, shared_clock(board)), OutputDirectory(tmp_path / "out") as folder:
        found = {one.area: one for one in go_through(folder)}
    print(*found.values(), sep="\n")
    assert "instant_w lags by " in found["sensors"].text
    assert found["recordings"].text == "1 of 2 workloads are recorded; broken ended with status 1 (stderr.txt says why)"
    assert "ZeroDivisionError" in (tmp_path / "out/stderr.txt").read_text()
    assert " right" in found["periods"].text
    assert "run --observe costs " in found["overhead"].text
    assert " of a core; attach --observe costs " in found["overhead"].text
    assert found["noise"].text.startswith("instant_w ")
    assert board.read().changes == ()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Examination:
    """What doctor finds, at once."""
    found = Examination(findings=(ok("driver", "there"),), driver="1", tunes=True, conclusion="it tunes")
    monkeypatch.setattr(examination, "examine", lambda: found)
    monkeypatch.setattr(checklist, "go_through", lambda folder: iter([ok("calls", f"put into {folder.path}")]))
    return found


def test_what_is_recorded_follows_the_findings(seen: Examination, here: Here) -> None:
    done = here("doctor", "--record", "out")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "ok       driver  there",
        "it tunes",
        "ok       calls       put into out",
    ]
    assert done.stderr == "autocap: recording to out, for about a quarter of an hour; no setting is changed\n"
    said = json.loads(here("doctor", "--json", "--record", "other").stdout)
    assert [one["text"] for one in said["recorded"]] == ["put into other"]
    assert said["findings"][0]["text"] == "there"


def test_nothing_is_recorded_over_something_nor_where_nothing_can_be_written(seen: Examination, here: Here) -> None:
    Path("full").mkdir()
    Path("full/file").touch()
    Path("plain").touch()
    done = here("doctor", "--record", "full")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "autocap: --record full holds something already; name another directory\n"
    done = here("doctor", "--record", "plain/below")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("autocap: nothing can be put into plain/below: Not a directory")


def test_under_sudo_nothing_is_recorded(seen: Examination, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "invoking_user", lambda: object())
    done = here("doctor", "--record", "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--record does not work under sudo" in done.stderr
    assert not Path("out").exists()
