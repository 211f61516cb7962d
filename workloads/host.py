"""The host's share of a step: what the CPU does alone, in one thread, while the device waits."""

import random
import time
import zlib

import torch

_CALIBRATION_STEPS = 5
_CALIBRATION_TRIES = 3


class HostPhase:
    """A fixed amount of work, not a fixed time: a slower machine, or one that is being held back, takes longer.

    It decompresses, as a loader does: one thread, which holds no lock that training needs.
    """

    def __init__(self, *, seed: int) -> None:
        pixels = random.Random(seed).choices(range(16), k=1 << 16)  # 4 bits of entropy a byte, as in a photograph
        self._packed = zlib.compress(bytes(pixels))
        self._chunks = 0

    def calibrate(self, duration_s: float) -> None:
        """Set the amount of work to what fits into duration_s of wall time, in the best of a few tries."""
        # Wall time, as a step is measured: on a busy machine both take longer, and their ratio stays.
        self._chunks = max(self._chunks_within(duration_s) for _ in range(_CALIBRATION_TRIES))

    def run(self) -> None:
        self._decode(self._chunks)

    def _chunks_within(self, duration_s: float) -> int:
        end_s = time.perf_counter() + duration_s
        chunks = 0
        while time.perf_counter() < end_s:
            self._decode(1)
            chunks += 1
        return chunks

    def _decode(self, chunks: int) -> None:
        for _ in range(chunks):
            zlib.decompress(self._packed)


class HostShare:
    """Adds the host phase to each step, once the first few have shown how long a step takes without it.

    share: of the whole step, phase included, in [0, 1); at 0 nothing is done. Call `before_step` and `after_step`
    around each step.
    """

    def __init__(self, share: float, *, seed: int, device: torch.device) -> None:
        self._share, self._device = share, device
        self._phase = HostPhase(seed=seed)
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
