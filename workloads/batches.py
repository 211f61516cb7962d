"""How batches reach the training loop: made on its device, or by the processes of a real DataLoader."""

from collections.abc import Iterator
from itertools import count

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from autocap.workloads.config import TrainConfig
from autocap.workloads.data import Source, source
from autocap.workloads.ranks import Ranks

# As many as ImageNet has to validate on, relative to its training images.
_VALIDATION_SHARE = 50_000 / 1_281_167

Batch = tuple[Tensor, Tensor]


def training_batches(config: TrainConfig, ranks: Ranks, device: torch.device) -> Iterator[Batch]:
    """Inputs and targets on the device without end, one epoch after the other; each rank gets its own."""
    if config.data == "loader":
        return _loaded(config, ranks, device)
    return _made(source(config, device), ranks)


def validation_source(config: TrainConfig, device: torch.device) -> Source:
    """Samples that do not occur in training, at least one batch of them."""
    samples = max(config.batch_size, round(config.samples * _VALIDATION_SHARE))
    return source(config, device, samples=samples, skipped=config.samples)


class _Samples(Dataset[Batch]):
    """The epoch sample by sample, each made on the CPU of the process that asks for it."""

    def __init__(self, config: TrainConfig) -> None:
        self._length = config.samples
        self._source = source(config, torch.device("cpu"), batch_size=1)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Batch:
        inputs, targets = self._source.batch(index)
        return inputs[0], targets[0]


def _loaded(config: TrainConfig, ranks: Ranks, device: torch.device) -> Iterator[Batch]:
    samples = _Samples(config)
    sampler: DistributedSampler[Batch] = DistributedSampler(
        samples, num_replicas=ranks.size, rank=ranks.rank, seed=config.seed, drop_last=True
    )
    loader = DataLoader(
        samples,
        batch_size=config.batch_size,
        sampler=sampler,
        num_workers=config.workers,
        pin_memory=device.type == "cuda",
        drop_last=True,
        persistent_workers=config.workers > 0,
    )
    for epoch in count():
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            yield inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)


def _made(epoch: Source, ranks: Ranks) -> Iterator[Batch]:
    for step in count():
        yield epoch.batch(step * ranks.size + ranks.rank)
