"""python -m autocap.workloads as a user meets it: what it refuses, what it prints, and how its processes end."""

import csv
import gzip
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autocap.progress.steps.map import StepMap
from autocap.workloads.__main__ import PROG, main
from autocap.workloads.models import NETWORKS
from tests.workloads.test_models import OPERATIONS, PARAMETERS

ROOT = Path(__file__).resolve().parents[2]
OF_TINY = "--device cpu --threads 1 --image-size 32 --batch-size 4 --samples 4"
TINY = tuple(OF_TINY.split())


def status_of(arguments: tuple[str, ...]) -> int | str | None:
    try:
        return main(arguments)
    except SystemExit as exit_:  # argparse leaves this way
        return exit_.code


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("train", "the following arguments are required: NETWORK"),
        ("train resnet34", "unknown network 'resnet34'; choose one of alexnet, vgg16"),
        ("train resnet18 --batch-size 0", "argument --batch-size: 0 is not a whole number from 1 to 1048576"),
        ("train resnet18 --iterations ten", "argument --iterations: 'ten' is not a whole number from 1 up"),
        ("train resnet18 --iterations 1 --epochs 1", "argument --epochs: not allowed with argument --iterations"),
        ("train resnet18 --host-phase 1", "argument --host-phase: '1' is not a share from 0 to 0.95 (or 95%)"),
        ("train resnet18 --host-phase nan", "'nan' is not a share"),
        ("train resnet18 --seconds 0", "argument --seconds: '0' is not a number of seconds above 0"),
        ("train resnet18 --iteration-seconds 0", "argument --iteration-seconds: '0' is not a number of seconds"),
        (
            "train resnet18 --iteration-seconds 1 --batch-size 8",
            "argument --batch-size: not allowed with argument --iteration-seconds",
        ),
        ("train resnet18 --device tpu", "argument --device: invalid choice: 'tpu'"),
        ("train vgg16 --image-size 31", "--image-size 31 is too small for vgg16; pass 32 pixels or more"),
        (
            f"train resnet18 {OF_TINY} --samples 3",
            "--samples 3 is less than one batch of 4; pass a smaller --batch-size",
        ),
        (f"train resnet18 {OF_TINY} --batch-size 1", "pass --batch-size 2 or more, or an --image-size of 33 or more"),
        ("train inception3 --batch-size 1", "needs more than one value a channel: pass --batch-size 2 or more"),
        ("train lstm --channels-last", "--channels-last is for images, and lstm takes none"),
        ("train lstm --checkpoint a.pt", "--checkpoint PATH and --checkpoint-every N go together"),
        ("record out.txt -- lstm", "trace out.txt is neither a .csv nor a .csv.gz"),
        ("record out.csv -- gru", "unknown network 'gru'"),
        ("record out.csv", "the following arguments are required: NETWORK …"),
    ],
)
def test_a_wrong_command_line_gives_one_line_and_status_2(line, message, capsys) -> None:
    status = status_of(tuple(shlex.split(line)))
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(PROG)
    assert message in captured.err


def test_a_missing_gpu_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("torch sees a GPU here")
    status = main(["train", "resnet18", *TINY, "--device", "cuda"])
    assert status == 1
    assert "--device cuda: torch sees no GPU; pass --device cpu" in capsys.readouterr().err


@pytest.mark.slow
def test_too_little_memory_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    size = ("--image-size", "16384", "--batch-size", "1048576", "--samples", "1048576")  # petabytes
    status = main(["train", "resnet18", *TINY, *size])
    assert status == 1
    assert capsys.readouterr().err == (
        f"{PROG}: memory of cpu does not hold resnet18 at 1048576 samples of size 16384; "
        "pass a smaller --batch-size or --image-size\n"
    )


@pytest.mark.slow
def test_list_gives_scripts_the_published_sizes_and_operations_of_every_network(capsys) -> None:
    status = main(["list", "--json"])
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert status == 0
    assert list(rows) == list(NETWORKS)
    assert {name: row["parameters"] for name, row in rows.items()} == PARAMETERS
    operations = {name: rows[name]["flops_per_image"] for name in OPERATIONS}
    assert operations == pytest.approx({name: 2e9 * billions for name, billions in OPERATIONS.items()}, rel=1e-3)
    assert set(rows["resnet50"]) == {"name", "parameters", "flops_per_image", "batch_size", "image_size"}
    assert (rows["resnet50"]["batch_size"], rows["resnet50"]["image_size"]) == (128, 224)


@pytest.mark.slow
def test_a_job_prints_progress_and_ends_with_its_result(tmp_path, capfd, threads_put_back) -> None:
    options = ("--iterations", "6", "--log-every", "3", "--host-phase", "20%", "--data", "loader", "--workers", "1")
    checkpoint = ("--validate-every", "4", "--checkpoint-every", "5", "--checkpoint", str(tmp_path / "a.pt"))
    status = main(["train", "lstm", *TINY, *options, *checkpoint])
    out, err = capfd.readouterr()
    *lines, last = out.splitlines()
    result = json.loads(last)
    assert status == 0
    assert err == ""
    assert [re.sub(r"\d+\.\d+", "X", line) for line in lines] == [
        "iteration 3/6  loss X  X images/s",
        "validation after 4  loss X  X s",
        f"checkpoint after 5  {tmp_path}/a.pt  X s",
        "iteration 6/6  loss X  X images/s",
    ]
    assert (result["iterations"], result["images_per_s"]) == (6, pytest.approx(6 * 4 / result["seconds"]))
    assert {"loss_first", "loss_last", "peak_memory_bytes"} <= set(result)


@pytest.mark.slow
def test_a_signal_ends_a_job_by_that_signal_without_a_traceback() -> None:
    endless = ("--iterations", "10000000", "--log-every", "1")
    command = [sys.executable, "-m", "autocap.workloads", "train", "lstm", *TINY, *endless]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert first.startswith("iteration 1/10000000")  # progress arrives through a pipe at once
    assert process.returncode == -signal.SIGINT
    assert err == ""


@pytest.mark.slow
def test_how_threads_wait_is_left_to_a_user_who_says_so() -> None:
    code = """import os, autocap.workloads.__main__ as command
command.main = lambda: print(os.environ['OMP_WAIT_POLICY'])
command._entry()"""
    env = {**os.environ, "OMP_WAIT_POLICY": "ACTIVE"}
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    assert process.stdout == "ACTIVE\n"


@pytest.mark.slow
def test_two_ranks_under_torchrun_agree_on_the_end_count_a_step_once_per_iteration_and_wait_asleep(tmp_path) -> None:
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    inherited["OMP_DISPLAY_ENV"] = "VERBOSE"  # what torch's OpenMP obeys; it is GNU's
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python")
    job = (sys.executable, "-m", "autocap.workloads", "train", "lstm", *TINY, "--samples", "64", "--seconds", "0.5")
    with StepMap.create(tmp_path) as steps:
        process = subprocess.run(
            [sys.executable, *torchrun, *job],
            env=steps.environment({**inherited, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        reading = steps.read(0.0)
    assert process.returncode == 0, process.stderr
    assert process.stderr.count("GOMP_SPINCOUNT = '0'") == 2  # of the ranks; the launcher is torch's own
    result = json.loads(process.stdout.splitlines()[-1])
    assert process.stdout.count("{") == 1  # only one rank speaks
    assert result["processes"] == 2
    assert result["images_per_s"] == pytest.approx(2 * 4 * result["iterations"] / result["seconds"])
    assert result["iterations"] > 3
    assert reading.count == result["iterations"]


@pytest.mark.slow
def test_record_keeps_the_power_and_the_steps_of_a_job(tmp_path: Path) -> None:
    out = tmp_path / "trace.csv.gz"
    command = [sys.executable, "-m", "autocap.workloads", "record", str(out), "--device", "emulated", "--"]
    process = subprocess.run(
        [*command, "lstm", *TINY, "--seconds", "1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "AUTOCAP_STATE_DIR": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout.splitlines()[-1])
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(out.read_bytes()).decode())))
    assert list(rows[0])[:4] == ["t_s", "power_w", "steps", "step_t_s"]
    assert float(rows[-1]["t_s"]) - float(rows[0]["t_s"]) > 1
    assert max(float(row["power_w"] or 0) for row in rows) > 60  # idle it draws 20 W; others may keep it from its CPU
    assert 0.5 * result["iterations"] < int(rows[-1]["steps"]) <= result["iterations"]
    assert all("." in row["step_t_s"] for row in rows if row["steps"])
