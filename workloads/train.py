"""The training loop: plain PyTorch, one process a device."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from torch import Tensor

from autocap.workloads import WorkloadError
from autocap.workloads.batches import training_batches, validation_source
from autocap.workloads.checkpoint import check_writable, save
from autocap.workloads.config import TrainConfig
from autocap.workloads.host import HostShare
from autocap.workloads.ranks import Ranks, joined
from autocap.workloads.step import Step
from autocap.workloads.trouble import explained


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """After `iteration` of `total` iterations (`None`: until a time): rank 0's last loss, and the speed of all ranks
    since the line before."""

    iteration: int
    total: int | None
    loss: float
    images_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A validation pass: its mean loss, and how long it took."""

    iteration: int
    loss: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint is on disk, and how long that took."""

    iteration: int
    path: Path
    seconds: float


Line = Progress | Validated | Saved


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What a run came to.

    device: its type. batch_size: of each of the processes. seconds: from the first iteration to the end of the last,
    validation and checkpoints included. images_per_s: of all processes together. loss_first, loss_last: rank 0's,
    `None` where the training diverged. peak_memory_bytes: of rank 0, allocated on the GPU, or resident on the CPU.
    """

    network: str
    device: str
    processes: int
    batch_size: int
    image_size: int
    precision: str
    iterations: int
    seconds: float
    images_per_s: float
    loss_first: float | None
    loss_last: float | None
    peak_memory_bytes: int


def train(config: TrainConfig, report: Callable[[Line], None]) -> TrainResult | None:
    """Train, and report every `log_every` iterations and after the last. `None` in all ranks but the first, which
    report nothing either.

    Raises WorkloadError when the device is not there, its memory does not suffice, or a checkpoint cannot be written.
    """
    if config.checkpoint is not None:
        check_writable(config.checkpoint)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    with joined(config.device) as (ranks, device):
        config.epoch_iterations(ranks.size)
        torch.manual_seed(config.seed)
        torch.backends.cudnn.benchmark = True  # shapes never change
        with explained(config, device):
            return _Training(config, ranks, device, report).run()


class _Training:
    """The loop and what it needs to know between iterations."""

    def __init__(self, config: TrainConfig, ranks: Ranks, device: torch.device, report: Callable[[Line], None]) -> None:
        self._config, self._ranks, self._device = config, ranks, device
        self._report = report if ranks.leads else _ignore
        self._batches = training_batches(config, ranks, device)
        self._validation = validation_source(config, device) if config.validate_every else None
        self._step = Step(config.network.build(), config, ranks, device)
        self._host = HostShare(config.host_share, seed=config.seed, device=device)
        self._total = config.total_iterations(ranks.size)
        self._batch_size = config.batch_size * ranks.size

    def run(self) -> TrainResult | None:
        first = last = torch.zeros((), device=self._device)
        start_s = logged_s = time.perf_counter()
        logged = 0
        for iteration in count(1):
            self._host.before_step()
            last = self._step(*next(self._batches))
            self._host.after_step()
            if iteration == 1:
                first = last
            ends = self._ends(iteration, time.perf_counter() - start_s)
            if ends or iteration % self._config.log_every == 0:
                loss = last.item()  # waits for the GPU, so the time below is of finished work
                now_s = time.perf_counter()
                speed = (iteration - logged) * self._batch_size / (now_s - logged_s)
                self._report(Progress(iteration=iteration, total=self._total, loss=loss, images_per_s=speed))
                logged, logged_s = iteration, now_s
            self._between(iteration)
            if ends:
                break
        return self._result(iteration, time.perf_counter() - start_s, first, last) if self._ranks.leads else None

    def _ends(self, iteration: int, elapsed_s: float) -> bool:
        if iteration == self._total:
            return True
        return self._config.seconds is not None and self._ranks.agreed(elapsed_s >= self._config.seconds)

    def _between(self, iteration: int) -> None:
        """What happens between two iterations now and then: validation, and a checkpoint."""
        if self._config.validate_every and iteration % self._config.validate_every == 0:
            self._validate(iteration)
        if self._config.checkpoint_every and iteration % self._config.checkpoint_every == 0:
            self._save(iteration)

    def _validate(self, iteration: int) -> None:
        """Every rank validates on all of it: a few batches, and nothing to put together."""
        assert self._validation is not None
        start_s = time.perf_counter()
        batches = range(self._validation.batches)
        losses = [self._step.evaluate(*self._validation.batch(index)) for index in batches]
        loss = torch.stack(losses).mean().item()
        self._report(Validated(iteration=iteration, loss=loss, seconds=time.perf_counter() - start_s))

    def _save(self, iteration: int) -> None:
        path = self._config.checkpoint
        if path is None or not self._ranks.leads:
            return
        start_s = time.perf_counter()
        save(path, {"network": self._config.network.name, "iteration": iteration, **self._step.state()})
        self._report(Saved(iteration=iteration, path=path, seconds=time.perf_counter() - start_s))

    def _result(self, iterations: int, seconds: float, first: Tensor, last: Tensor) -> TrainResult:
        return TrainResult(
            network=self._config.network.name,
            device=self._device.type,
            processes=self._ranks.size,
            batch_size=self._config.batch_size,
            image_size=self._config.image_size,
            precision=self._config.precision,
            iterations=iterations,
            seconds=seconds,
            images_per_s=iterations * self._batch_size / seconds,
            loss_first=_finite(first),
            loss_last=_finite(last),
            peak_memory_bytes=_peak_memory_bytes(self._device),
        )


def _ignore(line: Line) -> None:
    """Only rank 0 reports."""


def _finite(loss: Tensor) -> float | None:
    value = loss.item()
    return value if math.isfinite(value) else None


def _peak_memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Not getrusage: its peak outlives exec, so a large parent's would be taken for ours.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise WorkloadError("/proc/self/status has no VmHWM line; this runs on Linux only")
