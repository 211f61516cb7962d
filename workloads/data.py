"""Synthetic ImageNet: images and labels made on the device, and the host's share of a step.

Nothing is stored: a batch is regenerated from its seed whenever its turn comes, so an epoch of any length costs no
memory and the same samples come back in every epoch.
"""

import random
import time
import zlib

import torch
from torch import Tensor
from torch.nn.functional import interpolate

_PATTERN_SIZE = 8  # pixels; coarse, so that it survives at any image size
_SIGNAL = 0.5  # amplitude of a class's pattern against unit noise: learnable, not obvious


class SyntheticImages:
    """An epoch of labelled images: unit noise plus a coarse random pattern that belongs to the label.

    samples: images per epoch; an incomplete last batch is left out. image_size: pixels per side. seed: same seed and
    device type, same images.
    """

    def __init__(
        self, *, samples: int, batch_size: int, image_size: int, classes: int, seed: int, device: torch.device
    ) -> None:
        self.batch_size, self.image_size, self.classes, self.seed = batch_size, image_size, classes, seed
        self.batches = samples // batch_size
        self._generator = torch.Generator(device)
        self._generator.manual_seed(seed)
        self._patterns = self._normal(classes, _PATTERN_SIZE)

    def batch(self, index: int) -> tuple[Tensor, Tensor]:
        """Images, shape (batch_size, 3, image_size, image_size), float32, and labels, shape (batch_size,), int64."""
        self._generator.manual_seed(self.seed + 1 + index % self.batches)
        labels = torch.randint(
            self.classes, (self.batch_size,), generator=self._generator, device=self._generator.device
        )
        images = self._normal(self.batch_size, self.image_size)
        images += _SIGNAL * interpolate(self._patterns[labels], size=images.shape[-2:])
        return images, labels

    def _normal(self, count: int, size: int) -> Tensor:
        return torch.randn(count, 3, size, size, generator=self._generator, device=self._generator.device)


class HostPhase:
    """What the CPU does alone between two steps: one thread decoding compressed images while the device waits.

    It is a fixed amount of work, not a fixed time: a slower machine, or one that is being held back, takes longer.
    """

    def __init__(self, *, seed: int) -> None:
        pixels = random.Random(seed).choices(range(16), k=1 << 16)  # 4 bits of entropy a byte, as in a photograph
        self._packed = zlib.compress(bytes(pixels))
        self._chunks = 0

    def calibrate(self, duration_s: float) -> None:
        """Set the amount of work to what takes duration_s of this thread's CPU time."""
        trial_chunks = 50
        start_s = time.thread_time()
        self._decode(trial_chunks)
        chunk_s = (time.thread_time() - start_s) / trial_chunks
        self._chunks = round(duration_s / chunk_s)

    def run(self) -> None:
        self._decode(self._chunks)

    def _decode(self, chunks: int) -> None:
        for _ in range(chunks):
            zlib.decompress(self._packed)
