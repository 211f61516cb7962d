"""The training jobs: sizes as published, training that learns, and a command line that says what is wrong."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch

from autocap.workloads.__main__ import PROG, main
from autocap.workloads.data import HostPhase, SyntheticImages
from autocap.workloads.models import NETWORKS, find, summarise
from autocap.workloads.train import Progress, TrainConfig, TrainResult, train

TINY = ("--device", "cpu", "--threads", "1", "--image-size", "32", "--batch-size", "4", "--samples", "4")


@pytest.fixture(autouse=True)
def _threads_put_back() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("name", "parameters", "giga_multiply_adds"),
    [("resnet18", 11_689_512, 1.814), ("resnet50", 25_557_032, 3.858)],
)
def test_networks_have_the_published_size(name: str, parameters: int, giga_multiply_adds: float) -> None:
    summary = summarise(find(name))

    assert summary.parameters == parameters
    assert summary.flops_per_image == pytest.approx(2e9 * giga_multiply_adds, rel=1e-3)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("image_size", [224, 299])
def test_a_network_gives_a_logit_per_class_at_imagenet_sizes(name: str, image_size: int) -> None:
    with torch.device("meta"):
        logits = find(name).build(1000)(torch.empty(2, 3, image_size, image_size))

    assert logits.shape == (2, 1000)


def images(seed: int) -> SyntheticImages:
    return SyntheticImages(samples=10, batch_size=4, image_size=32, classes=1000, seed=seed, device=torch.device("cpu"))


def test_an_epoch_leaves_out_an_incomplete_batch_and_then_repeats() -> None:
    epoch = images(seed=0)

    first, labels = epoch.batch(0)
    other, _ = epoch.batch(1)
    again, labels_again = epoch.batch(2)

    assert first.shape == (4, 3, 32, 32)
    assert not torch.equal(first, other)
    assert torch.equal(first, again)
    assert torch.equal(labels, labels_again)


def test_the_seed_decides_the_images() -> None:
    assert torch.equal(images(seed=1).batch(0)[0], images(seed=1).batch(0)[0])
    assert not torch.equal(images(seed=1).batch(0)[0], images(seed=2).batch(0)[0])


def run(
    *,
    network: str = "resnet18",
    iterations: int | None = 8,
    seconds: float | None = None,
    host_share: float = 0.0,
) -> tuple[TrainResult, list[Progress]]:
    config = TrainConfig(
        network=find(network),
        device="cpu",
        batch_size=8,
        image_size=32,
        iterations=iterations,
        seconds=seconds,
        samples=8,
        seed=0,
        host_share=host_share,
        log_every=3,
        threads=1,
    )
    lines: list[Progress] = []
    return train(config, lines.append), lines


@pytest.mark.parametrize("name", NETWORKS)
def test_the_loss_falls_on_a_small_fixed_set(name: str) -> None:
    result, _ = run(network=name)

    assert result.loss_first is not None
    assert result.loss_last is not None
    assert 5 < result.loss_first < 10  # ln 1000 = 6.9 before anything is learnt
    assert result.loss_last < 0.6 * result.loss_first


def test_progress_is_reported_at_intervals_and_at_the_end() -> None:
    result, lines = run()

    assert [line.iteration for line in lines] == [3, 6, 8]
    assert lines[-1].loss == result.loss_last
    assert all(line.images_per_s > 0 for line in lines)


def test_training_ends_at_its_time_limit() -> None:
    result, lines = run(iterations=None, seconds=0.2)

    assert result.seconds >= 0.2
    assert lines[-1].iteration == result.iterations


def test_training_ends_at_its_iterations_when_time_is_left() -> None:
    assert run(iterations=1, seconds=3600)[0].iterations == 1


def test_the_host_phase_changes_no_loss() -> None:
    assert run(host_share=0.3)[0].loss_last == run()[0].loss_last


def test_the_host_phase_is_as_much_work_as_it_was_calibrated_for() -> None:
    phase = HostPhase(seed=0)
    phase.calibrate(0.1)

    start_s = time.thread_time()
    phase.run()

    assert time.thread_time() - start_s == pytest.approx(0.1, rel=0.6)


def status_of(arguments: tuple[str, ...]) -> int | str | None:
    try:
        return main(arguments)
    except SystemExit as exit_:  # argparse leaves this way
        return exit_.code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "the following arguments are required: COMMAND"),
        (("train",), "the following arguments are required: NETWORK"),
        (("train", "resnet34"), "unknown network 'resnet34'; choose one of resnet18, resnet50"),
        (("train", "vgg19"), "network vgg19 is not available yet; choose one of resnet18, resnet50"),
        (
            ("train", "resnet18", "--batch-size", "0"),
            "argument --batch-size: 0 is not a whole number from 1 to 1048576",
        ),
        (("train", "resnet18", "--iterations", "ten"), "argument --iterations: 'ten' is not a whole number from 1 up"),
        (
            ("train", "resnet18", "--host-phase", "1"),
            "argument --host-phase: '1' is not a share from 0 to 0.95 (or 95%)",
        ),
        (("train", "resnet18", "--host-phase", "nan"), "'nan' is not a share"),
        (("train", "resnet18", "--seconds", "0"), "argument --seconds: '0' is not a number of seconds above 0"),
        (("train", "resnet18", "--device", "tpu"), "argument --device: invalid choice: 'tpu'"),
        (
            ("train", "resnet18", "--image-size", "16"),
            "--image-size 16 is too small for resnet18; pass 32 pixels or more",
        ),
        (
            ("train", "resnet18", "--samples", "8"),
            "--samples 8 is less than one batch of 128; pass a smaller --batch-size",
        ),
        (("train", "resnet18", *TINY, "--batch-size", "1"), "with --batch-size 1 pass an --image-size above 32"),
    ],
)
def test_a_wrong_command_line_gives_one_line_and_status_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = status_of(arguments)

    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(PROG)
    assert message in captured.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")
def test_a_missing_gpu_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["train", "resnet18", *TINY, "--device", "cuda"])

    assert status == 1
    assert "--device cuda: torch sees no GPU; pass --device cpu" in capsys.readouterr().err


def test_too_little_memory_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    size = ("--image-size", "16384", "--batch-size", "1048576", "--samples", "1048576")  # petabytes

    status = main(["train", "resnet18", *TINY, *size])

    assert status == 1
    assert capsys.readouterr().err == (
        f"{PROG}: memory of cpu does not hold resnet18 at 1048576 images of 16384 pixels; "
        "pass a smaller --batch-size or --image-size\n"
    )


def test_list_prints_json_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["list", "--json"])

    rows = json.loads(capsys.readouterr().out)
    assert status == 0
    assert [row["name"] for row in rows] == list(NETWORKS)
    assert rows[1] == {
        "name": "resnet50",
        "parameters": 25_557_032,
        "flops_per_image": summarise(find("resnet50")).flops_per_image,
        "batch_size": 128,
        "image_size": 224,
    }


def without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; sys.modules['torch'] = None; "
        "from autocap.workloads.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_help_needs_no_torch() -> None:
    assert without_torch("train", "--help").returncode == 0


@pytest.mark.parametrize("arguments", [("list",), ("train", "resnet18")])
def test_a_missing_torch_is_explained_in_one_line(arguments: tuple[str, ...]) -> None:
    process = without_torch(*arguments)

    assert process.returncode == 1
    assert process.stderr.count("\n") == 1
    assert "this needs PyTorch: pip install 'autocap[workloads]'" in process.stderr


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "autocap.workloads", "train", "resnet18", *TINY, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_job_prints_progress_and_ends_with_its_result() -> None:
    with start("--iterations", "6", "--log-every", "3", "--host-phase", "20%") as process:
        out, err = process.communicate()

    *lines, last = out.splitlines()
    result = json.loads(last)
    assert process.returncode == 0
    assert err == ""
    assert [re.sub(r"\d+\.\d+", "X", line) for line in lines] == [
        "iteration 3/6  loss X  X images/s",
        "iteration 6/6  loss X  X images/s",
    ]
    assert result["iterations"] == 6
    assert result["images_per_s"] == pytest.approx(6 * 4 / result["seconds"])
    assert result["peak_memory_bytes"] > 50e6  # the weights alone


def test_a_signal_ends_a_job_by_that_signal_without_a_traceback() -> None:
    with start("--iterations", "100000", "--log-every", "1") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()

    assert first.startswith("iteration 1/100000")  # progress arrives through a pipe at once
    assert process.returncode == -signal.SIGINT
    assert err == ""
