"""Synthetic ImageNet and a synthetic load series, made on the device that uses them.

Nothing is stored: a batch is regenerated from its seed whenever its turn comes, so an epoch of any length costs no
memory and the same samples come back in every epoch.
"""

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from autocap.workloads.config import TrainConfig

_PATTERN_SIZE = 8  # pixels; coarse, so that it survives at any image size
_SIGNAL = 0.5  # amplitude of a class's pattern against unit noise: learnable, not obvious
_DAY_H, _WEEK_H, _YEAR_H = 24, 168, 8766
_LOAD_NOISE = 0.02  # of the full scale


class Source(Protocol):
    """An epoch of samples. batches: how many whole batches it has."""

    batches: int

    def batch(self, index: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one batch; past the last one the first comes again."""
        ...


def source(
    config: TrainConfig,
    device: torch.device,
    *,
    batch_size: int | None = None,
    samples: int | None = None,
    skipped: int = 0,
) -> Source:
    """What that job trains on. batch_size, samples: other than its own. skipped: samples that belong to another epoch,
    such as the training one."""
    size, samples = batch_size or config.batch_size, samples or config.samples
    if config.network.classes is None:
        return SyntheticLoad(
            samples=samples,
            batch_size=size,
            hours=config.image_size,
            seed=config.seed,
            device=device,
            skipped=skipped,
        )
    return SyntheticImages(
        samples=samples,
        batch_size=size,
        image_size=config.image_size,
        classes=config.network.classes,
        seed=config.seed,
        device=device,
        skipped=skipped,
    )


class SyntheticImages:
    """An epoch of labelled images: unit noise plus a coarse random pattern that belongs to the label.

    samples: images per epoch; an incomplete last batch is left out. image_size: pixels per side. seed: same seed and
    device type, same images. skipped: images of an earlier epoch, none of which comes again in this one.
    """

    def __init__(
        self,
        *,
        samples: int,
        batch_size: int,
        image_size: int,
        classes: int,
        seed: int,
        device: torch.device,
        skipped: int = 0,
    ) -> None:
        self.batch_size, self.image_size, self.classes = batch_size, image_size, classes
        self.batches = samples // batch_size
        self._first_seed = seed + 1 + skipped
        self._generator = torch.Generator(device)
        self._generator.manual_seed(seed)
        self._patterns = self._normal(classes, _PATTERN_SIZE)

    def batch(self, index: int) -> tuple[Tensor, Tensor]:
        """Images, shape (batch_size, 3, image_size, image_size), float32, and labels, shape (batch_size,), int64."""
        self._generator.manual_seed(self._first_seed + index % self.batches)
        labels = torch.randint(
            self.classes, (self.batch_size,), generator=self._generator, device=self._generator.device
        )
        images = self._normal(self.batch_size, self.image_size)
        images += _SIGNAL * interpolate(self._patterns[labels], size=images.shape[-2:])
        return images, labels

    def _normal(self, count: int, size: int) -> Tensor:
        return torch.randn(count, 3, size, size, generator=self._generator, device=self._generator.device)


class SyntheticLoad:
    """Windows of one hourly series of electric load, which has a day, a week, a year and noise, within [0, 1].

    samples: windows per epoch, each beginning an hour after another, in shuffled order. hours: length of a window; the
    target is the window that follows it. seed: same seed, same series and order. skipped: hours before the first
    window.
    """

    def __init__(
        self, *, samples: int, batch_size: int, hours: int, seed: int, device: torch.device, skipped: int = 0
    ) -> None:
        self.batch_size, self.hours = batch_size, hours
        self.batches = samples // batch_size
        generator = torch.Generator()
        generator.manual_seed(seed)
        phases = (2 * math.pi * torch.rand(4, generator=generator)).tolist()
        generator.manual_seed(seed + 1 + skipped)
        load = _load(skipped, samples + 2 * hours, phases)
        load += _LOAD_NOISE * torch.randn(len(load), generator=generator)
        self._load = load.clamp(0, 1).to(device)
        self._starts = torch.randperm(samples, generator=generator).to(device)
        self._window = torch.arange(hours, device=device)

    def batch(self, index: int) -> tuple[Tensor, Tensor]:
        """Loads of one window and of the next, both of shape (batch_size, hours), float32, in [0, 1]."""
        first = index % self.batches * self.batch_size
        hours = self._starts[first : first + self.batch_size, None] + self._window
        return self._load[hours], self._load[hours + self.hours]


def _load(first_hour: int, hours: int, phases: list[float]) -> Tensor:
    """The series without noise, shape (hours,): half the full scale, and four waves about it."""
    hour = torch.arange(first_hour, first_hour + hours, dtype=torch.float64)
    waves = ((_DAY_H, 0.16), (_DAY_H / 2, 0.06), (_WEEK_H, 0.08), (_YEAR_H, 0.12))
    load = torch.full((hours,), 0.5, dtype=torch.float64)
    for (period_h, amplitude), phase in zip(waves, phases, strict=True):
        load += amplitude * torch.sin(2 * math.pi * hour / period_h + phase)
    return load.float()
