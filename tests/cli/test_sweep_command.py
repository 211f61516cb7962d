"""`autocap sweep` as a user meets it: real processes, the emulated device, and an emulated NVML library."""

import argparse
import csv
import json
import signal
from pathlib import Path

import pytest

from autocap.cli.run import Sweep, sweep_config
from autocap.testing.nvml import machine
from bench.strategies import curves
from tests.cli.test_cli import EMULATED, Cli, Here, require_said
from tests.cli.test_gpu_jobs import PLAYER, Node
from tests.doubles.waiting import eventually

SWEEP = ("sweep", *EMULATED, "--out", "run")
# Notes that it ran, sleeps as long as the file "nap" says (an idle emulated GPU draws 20 W), and ends as "end" does.
NAP = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES" >> ran; sleep $(cat nap); . ./end')


@pytest.fixture
def naps(cli: Cli) -> Cli:
    (cli.folder / "nap").write_text("0.4")
    (cli.folder / "end").write_text("exit 0")
    return cli


def ran(cli: Cli) -> list[str]:
    file = cli.folder / "ran"
    return file.read_text().splitlines() if file.exists() else []


def rows(cli: Cli) -> list[dict[str, str]]:
    with (cli.folder / "run" / "sweep.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_sweep_runs_the_command_for_every_cap_and_repeat_and_says_what_each_cap_costs(naps: Cli, here: Here) -> None:
    done = naps(*SWEEP, "--gpus", "0", "--caps", "120,200", "--repeats", "2", "--json", "--", *NAP)
    assert done.returncode == 0, done.stderr
    assert ran(naps) == ["0"] * (1 + 3 * 2)  # the limit found on arrival is the third cap; one run warms up
    assert [(row["cap_w"], row["repeats"], row["baseline"]) for row in rows(naps)] == [
        ("120", "2", "false"), ("200", "2", "false"), ("260", "2", "true"),
    ]  # fmt: skip
    assert all(row["emulated"] == "true" and row["curve"] == "sh" for row in rows(naps))
    for row in rows(naps):
        assert float(row["energy_j"]) == pytest.approx(float(row["power_w"]) * float(row["time_s"]), rel=0.02)
        assert 19.9 < float(row["power_w"]) < 40.0  # it starts, and then idles
    (curve,) = curves.read(naps.folder / "run" / "sweep.csv")
    assert curve.caps_w == (120.0, 200.0, 260.0)
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["mode"], result["runs_left"], result["plan"]["emulated"]) == ("sweep", 0, True)
    assert result == json.loads((naps.folder / "run" / "result.json").read_text())
    assert " (emulated)\n" in done.stderr
    assert "min edp" in done.stderr
    assert naps.leftovers() == []
    assert json.loads(here("report", "run", "--json").stdout) == result
    caps = [event["cap_w"] for event in naps.events("cap_set")]
    assert sorted(caps) == [[120.0]] * 2 + [[200.0]] * 2 + [[260.0]] * 3
    assert len(naps.events("limit_restored")) == 7


def test_a_command_that_is_not_there_is_no_sweep(cli: Cli, here: Here) -> None:
    require_said(here("sweep", *EMULATED, "--", "nosuchcmd"), 127, "command 'nosuchcmd' was not found in PATH")
    assert not (cli.folder / "autocap-runs").exists()


@pytest.mark.slow
def test_a_command_that_fails_is_not_averaged_and_ends_the_sweep_the_second_time(naps: Cli, here: Here) -> None:
    (naps.folder / "end").write_text("exit 3")
    done = here(*SWEEP, "--caps", "200", "--no-warm-up", "--", *NAP)
    assert done.returncode == 1
    assert len(ran(naps)) == 2
    why = " W on GPU 0 failed 2 times: the command ended with status 3; runs left: 6; to go on"
    assert why in done.stderr
    assert rows(naps) == []
    assert naps.leftovers() == []


@pytest.mark.slow
def test_a_failed_sweep_goes_on_where_it_stopped_and_a_complete_one_is_not_run_again(naps: Cli, here: Here) -> None:
    options = ("--caps", "200", "--repeats", "1", "--", *NAP)
    (naps.folder / "end").write_text("[ $(wc -l < ran) -lt 3 ]")
    first = here(*SWEEP, *options)
    (naps.folder / "end").write_text("exit 0")
    again = here(*SWEEP, *options)
    complete = here(*SWEEP, *options)
    assert (first.returncode, again.returncode, complete.returncode) == (1, 0, 1), again.stderr
    assert "failed 2 times: the command ended with status 1; runs left: 1" in first.stderr
    assert len(ran(naps)) == 1 + 1 + 2 + 1  # to warm up, the first cap, the second one twice in vain, and once more
    assert [row["repeats"] for row in rows(naps)] == ["1", "1"]
    assert "run directory run holds a run already" in complete.stderr


@pytest.mark.slow
def test_a_changed_plan_does_not_go_on_unless_it_is_forced_to_start_over(naps: Cli, here: Here) -> None:
    (naps.folder / "end").write_text("exit 1")
    here(*SWEEP, "--caps", "200", "--repeats", "2", "--no-warm-up", "--", *NAP)
    (naps.folder / "end").write_text("exit 0")
    changed = here(*SWEEP, "--caps", "200", "--repeats", "1", "--no-warm-up", "--", *NAP)
    forced = here(*SWEEP, "--caps", "200", "--repeats", "1", "--no-warm-up", "--force", "--", *NAP)
    assert changed.returncode == 1
    assert "run holds an unfinished sweep with another plan: repeats was 2 and is 1; give its options" in changed.stderr
    assert forced.returncode == 0
    assert [row["repeats"] for row in rows(naps)] == ["1", "1"]


def test_a_signal_is_passed_on_and_ends_the_sweep_with_the_limits_back(naps: Cli) -> None:
    signum = signal.SIGINT
    sweep = naps.start(*SWEEP, "--caps", "200", "--no-warm-up", "--", "sleep", "20")
    eventually(lambda: naps.events("cap_set"))
    sweep.send_signal(signum)
    assert sweep.wait(120) == 1
    assert f"{signum.name} ended the sweep; runs left: 6" in (naps.folder / "err").read_text()
    assert naps.leftovers() == []
    assert [event["restored"] for event in naps.events("limit_restored")] == [True]
    (ended,) = naps.events("sweep_run_ended")
    assert ended["finished"]["trouble"] == f"{signum.name} was passed on to it"


@pytest.mark.slow
def test_a_signal_between_two_runs_ends_the_sweep(naps: Cli) -> None:
    sweep = naps.start(*SWEEP, "--caps", "200", "--cool-down", "60", "--", *NAP)
    eventually(lambda: naps.events("sweep_run_ended"))
    sweep.terminate()
    assert sweep.wait(120) == 1
    assert len(ran(naps)) == 1
    assert "SIGTERM ended the sweep; runs left: 6" in (naps.folder / "err").read_text()


@pytest.mark.slow
def test_a_killed_sweep_can_be_reported_and_goes_on(naps: Cli, here: Here) -> None:
    options = ("--caps", "200", "--repeats", "1", "--", *NAP)
    sweep = naps.start(*SWEEP, *options)
    eventually(lambda: len(naps.events("sweep_run_ended")) == 2)
    sweep.kill()
    sweep.wait()
    with (naps.folder / "run" / "events.jsonl").open("a") as log:
        log.write('{"event": "sweep_run_en')  # cut short
    report = here("report", "run")
    again = here(*SWEEP, *options)
    assert "ended: killed or still running; runs left: 1" in report.stdout
    assert again.returncode == 0, again.stderr
    assert len(naps.events("sweep_run_ended")) == 3
    assert here("restore").returncode == 0
    assert naps.leftovers() == []


@pytest.mark.slow
def test_observing_sets_nothing_and_says_which_caps_would_be_run(naps: Cli) -> None:
    done = naps(*SWEEP, "--cap-step", "80", "--repeats", "1", "--", *NAP, AUTOCAP_OBSERVE="1")
    require_said(done, 0, "260 W, 180 W, 100 W; no cap is set")
    assert [row["cap_w"] for row in rows(naps)] == ["260"]
    assert naps.events("cap_set") == []
    assert not naps.state.exists()


@pytest.mark.slow
def test_a_run_too_short_for_a_power_reading_does_not_count(here: Here) -> None:
    done = here(*SWEEP, "--caps", "200", "--", "true")
    require_said(done, 1, "no power was read while it ran")


@pytest.mark.slow
def test_a_directory_that_another_sweep_writes_is_left_to_it(naps: Cli, here: Here) -> None:
    (naps.folder / "nap").write_text("5")
    sweep = naps.start(*SWEEP, "--caps", "200", "--", *NAP)
    eventually(lambda: naps.events("sweep_started"))
    second = here(*SWEEP, "--caps", "200", "--", *NAP)
    sweep.terminate()
    sweep.wait(120)
    assert second.returncode == 1
    assert "run is being written by another autocap" in second.stderr


@pytest.mark.slow
def test_each_set_of_gpus_is_shown_to_the_command_by_uuid_capped_and_put_back(tmp_path: Path) -> None:
    made = machine("quadro-rtx-6000/resnet50", gpus=2, arrivals_mw=[250_000, 240_000])
    node = Node(tmp_path, made)
    command = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES" >> ran; sleep 0.4')
    try:
        done = node(
            "sweep", "--gpus", "1;0,1", "--caps", "150", "--repeats", "1", "--no-warm-up", "--cool-down", "0",
            "--out", "run", "--", *command,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        uuids = [card.uuid for card in made.cards]
        assert (tmp_path / "ran").read_text().splitlines() == [uuids[1]] * 2 + [",".join(uuids)] * 2
        assert [(row["gpus"], row["cap_w"], row["emulated"]) for row in rows(node)] == [
            ("1", "150", "false"), ("1", "240", "false"), ("0,1", "150", "false"), ("0,1", "240", "false"),
        ]  # fmt: skip
        assert len(rows(node)[-1]["gpu_power_w"].split(";")) == 2
        assert node.limits_mw() == node.arrival_mw
    finally:
        node.end()


def test_several_gpus_have_to_be_named(tmp_path: Path) -> None:
    node = Node(tmp_path, machine("quadro-rtx-6000/resnet50", gpus=2))
    done = node("sweep", "--", *PLAYER)
    require_said(done, 1, "which of the GPUs here the command uses shows only once it runs")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("/usr/bin/python3 -u train.py --lr 1", "train.py"),
        ("python -m torch.distributed.run train.py", "torch.distributed.run"),
        ("python -c pass", "python"),
        ("python3 jobs/train.py", "train.py"),
        ("./train.sh --fast", "train.sh"),
    ],
)
def test_a_curve_is_named_after_what_is_run(words: str, name: str) -> None:
    parser = argparse.ArgumentParser()
    Sweep().prepare_parser(parser)
    args = parser.parse_args([])
    args.child = words.split()
    assert sweep_config(args).name == name
