"""The training loop: plain PyTorch, one process, one device."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from autocap.workloads import WorkloadError, WorkloadUsageError
from autocap.workloads.data import HostPhase, SyntheticImages
from autocap.workloads.models import IMAGENET_CLASSES, Network

# Goyal et al. 2017: 0.1 at 256 images, in proportion to the batch.
_LEARNING_RATE_PER_IMAGE = 0.1 / 256
_MOMENTUM = 0.9
_WEIGHT_DECAY = 1e-4
_CALIBRATION_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """What to train and for how long.

    device: "cpu", "cuda" or "auto" (a GPU if torch sees one). batch_size, samples: images per step and per epoch.
    image_size: pixels per side. iterations, seconds: training ends at whichever comes first; `None` is no limit.
    host_share: share of a step that the host phase takes, in [0, 1). threads: torch's CPU threads, `None` for its
    own choice.
    """

    network: Network
    device: str
    batch_size: int
    image_size: int
    iterations: int | None
    seconds: float | None
    samples: int
    seed: int
    host_share: float
    log_every: int
    threads: int | None

    def __post_init__(self) -> None:
        if self.samples < self.batch_size:
            raise WorkloadUsageError(
                f"--samples {self.samples} is less than one batch of {self.batch_size}; pass a smaller --batch-size"
            )
        if self.image_size < self.network.stride:
            raise WorkloadUsageError(
                f"--image-size {self.image_size} is too small for {self.network.name}; "
                f"pass {self.network.stride} pixels or more"
            )
        if self.batch_size == 1 and self.image_size <= self.network.stride:
            raise WorkloadUsageError(
                f"batch normalisation needs more than one value a channel: with --batch-size 1 pass an --image-size "
                f"above {self.network.stride}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """After `iteration` iterations: the last one's loss, and the speed since the line before."""

    iteration: int
    loss: float
    images_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What a run came to.

    seconds: the iterations alone, without start-up. loss_first, loss_last: `None` where the training diverged.
    peak_memory_bytes: allocated on the GPU, or resident in this process on the CPU.
    """

    network: str
    device: str
    batch_size: int
    image_size: int
    iterations: int
    seconds: float
    images_per_s: float
    loss_first: float | None
    loss_last: float | None
    peak_memory_bytes: int


def train(config: TrainConfig, report: Callable[[Progress], None]) -> TrainResult:
    """Train with SGD and momentum, and report every `log_every` iterations and after the last.

    Raises WorkloadError when the device is not there or its memory does not suffice.
    """
    device = _device(config.device)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    try:
        return _train(config, device, report)
    except RuntimeError as error:
        # On the CPU torch has no exception of its own for this, only its allocator's name in the text.
        if not isinstance(error, torch.cuda.OutOfMemoryError) and "DefaultCPUAllocator" not in str(error):
            raise
        raise WorkloadError(
            f"memory of {device.type} does not hold {config.network.name} at {config.batch_size} images of "
            f"{config.image_size} pixels; pass a smaller --batch-size or --image-size"
        ) from error


def _train(config: TrainConfig, device: torch.device, report: Callable[[Progress], None]) -> TrainResult:
    images = SyntheticImages(
        samples=config.samples,
        batch_size=config.batch_size,
        image_size=config.image_size,
        classes=IMAGENET_CLASSES,
        seed=config.seed,
        device=device,
    )
    step = _Step(config.network.build(IMAGENET_CLASSES).to(device), config.batch_size)
    host = _Host(config, device)
    first = last = torch.zeros((), device=device)
    start_s = logged_s = time.perf_counter()
    logged = 0
    ends_s = math.inf if config.seconds is None else start_s + config.seconds
    for iteration in count(1):
        host.before_step()
        last = step(*images.batch(iteration - 1))
        host.after_step()
        if iteration == 1:
            first = last
        ends = iteration == config.iterations or time.perf_counter() >= ends_s
        if ends or iteration % config.log_every == 0:
            loss = last.item()  # waits for the GPU, so the time below is of finished work
            now_s = time.perf_counter()
            speed = (iteration - logged) * config.batch_size / (now_s - logged_s)
            report(Progress(iteration=iteration, loss=loss, images_per_s=speed))
            logged, logged_s = iteration, now_s
        if ends:
            break
    seconds = logged_s - start_s
    return TrainResult(
        network=config.network.name,
        device=device.type,
        batch_size=config.batch_size,
        image_size=config.image_size,
        iterations=logged,
        seconds=seconds,
        images_per_s=logged * config.batch_size / seconds,
        loss_first=_finite(first),
        loss_last=_finite(last),
        peak_memory_bytes=_peak_memory_bytes(device),
    )


class _Step:
    """One optimiser step on one batch; gives the loss before it."""

    def __init__(self, model: nn.Module, batch_size: int) -> None:
        self._model = model.train()
        self._optimizer = torch.optim.SGD(
            model.parameters(),
            lr=_LEARNING_RATE_PER_IMAGE * batch_size,
            momentum=_MOMENTUM,
            weight_decay=_WEIGHT_DECAY,
        )

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        loss = cross_entropy(self._model(images), labels)
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        self._optimizer.step()
        return loss.detach()


class _Host:
    """Adds the host phase to each step, once the first few have shown how long a step takes without it."""

    def __init__(self, config: TrainConfig, device: torch.device) -> None:
        self._share, self._device = config.host_share, device
        self._phase = HostPhase(seed=config.seed)
        self._step_s: list[float] = []
        self._began_s = 0.0

    def before_step(self) -> None:
        if self._share == 0:
            return
        if len(self._step_s) == _CALIBRATION_STEPS:
            self._phase.run()
        self._began_s = time.perf_counter()

    def after_step(self) -> None:
        if self._share == 0:
            return
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # otherwise the host phase would hide behind the GPU's queue
        if len(self._step_s) == _CALIBRATION_STEPS:
            return
        self._step_s.append(time.perf_counter() - self._began_s)
        if len(self._step_s) == _CALIBRATION_STEPS:
            # The quickest: whatever disturbs a step only lengthens it, and the first one allocates.
            self._phase.calibrate(min(self._step_s) * self._share / (1 - self._share))


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise WorkloadError("--device cuda: torch sees no GPU; pass --device cpu, or install a CUDA build of torch")
    return torch.device(name)


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
