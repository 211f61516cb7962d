"""A job that measures its iterations first: what it then trains with, and who sees the measuring."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from autocap.workloads.__main__ import PROG, main

JOB = ("lstm", "--device", "cpu", "--threads", "1", "--image-size", "24", "--samples", "8", "--iterations", "3")


@pytest.fixture
def optimizer_steps(threads_put_back: None) -> Iterator[list[object]]:
    """One entry a step of any optimiser of torch's, as autocap counts them."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    steps = []
    hook = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: steps.append(optimizer))
    yield steps
    hook.remove()


def trained(capfd: pytest.CaptureFixture[str], *options: str) -> tuple[str, dict[str, Any]]:
    """The first line that a job prints, and its result."""
    assert main(["train", *JOB, *options]) == 0
    first, *_, last = capfd.readouterr().out.splitlines()
    return first, json.loads(last)


@pytest.mark.slow
def test_the_batch_size_found_trains_as_if_it_had_been_passed_and_finding_it_makes_no_optimiser_step(
    capfd: pytest.CaptureFixture[str], optimizer_steps: list[object]
) -> None:
    first, found = trained(capfd, "--iteration-seconds", "1e-9")  # no machine is as fast, so it is the smallest
    assert len(optimizer_steps) == 3
    assert re.fullmatch(r"batch size 2  about \S+ s forward and backward, undisturbed", first)
    _, passed = trained(capfd, "--batch-size", "2")
    timed = {"seconds", "images_per_s", "peak_memory_bytes"}
    assert {key: found[key] for key in found.keys() - timed} == {key: passed[key] for key in passed.keys() - timed}


def test_several_processes_are_told_to_pass_a_batch_size(capsys, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", *JOB, "--iteration-seconds", "1"]) == 2
    told = f"{PROG}: --iteration-seconds is for one process; under torchrun pass --batch-size\n"
    assert capsys.readouterr().err == told
