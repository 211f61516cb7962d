"""What torch reports and a user can do something about, in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from autocap.workloads import WorkloadError
from autocap.workloads.config import TrainConfig


@contextmanager
def explained(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Raises WorkloadError in place of an error of torch's that a user can do something about."""
    try:
        yield
    except RuntimeError as error:
        sentence = _sentence(error, config, device)
        if sentence is None:
            raise
        raise WorkloadError(sentence) from error


def _sentence(error: RuntimeError, config: TrainConfig, device: torch.device) -> str | None:
    """On an error of torch's that a user can do something about; `None` for any other."""
    text = str(error)
    # On the CPU torch has no exception of its own for this, only its allocator's name in the text.
    if isinstance(error, torch.cuda.OutOfMemoryError) or "DefaultCPUAllocator" in text:
        return (
            f"memory of {device.type} does not hold {config.network.name} at {config.batch_size} samples of size "
            f"{config.image_size}; pass a smaller --batch-size or --image-size"
        )
    if "DataLoader worker" in text:
        return f"{text.splitlines()[0]}; pass fewer --workers, or give shared memory (/dev/shm) more room"
    if config.compiled and type(error).__module__.startswith("torch."):
        return f"--compile: {text.splitlines()[0]}; leave it out, or install what is missing"
    return None
