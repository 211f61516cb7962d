"""The records of the period detector: what it found, how sure it is, and why it found nothing."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Verdict(StrEnum):
    """PERIODIC: found. AMBIGUOUS: something repeats, but what is not clear. APERIODIC: nothing repeats.
    UNRESOLVABLE: the signal is too short, too slow or too coarse to say.
    """

    PERIODIC = "periodic"
    AMBIGUOUS = "ambiguous"
    APERIODIC = "aperiodic"
    UNRESOLVABLE = "unresolvable"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodEstimate:
    """What the detector sees in a stretch of signal.

    start_s, end_s: the stretch. period_s: mean time of a cycle over the part of it that belongs to the pattern, or
    `None`. rel_stderr: its relative standard error against the mean realised in that part. cycles: how many were
    seen. confidence: share of the variation that the repeated waveform explains, 0 to 1. verified: proven, as no load
    faster than the sensor can look like this; an unverified period must not drive a search. open: it repeats, and
    nothing but such a load speaks against it; triable: which a trial at another cap would decide. multiples: how many
    iterations, beside one, the period may hold, since its waveform is made of so many alike. reason: why the verdict is
    what it is, and what would decide it where that is open.
    """

    start_s: float
    end_s: float
    verdict: Verdict
    period_s: float | None = None
    rel_stderr: float | None = None
    cycles: float = 0.0
    confidence: float = 0.0
    verified: bool = False
    open: bool = False
    triable: bool = False
    multiples: tuple[int, ...] = ()
    reason: str

    def __post_init__(self) -> None:
        if self.verdict is Verdict.PERIODIC and (self.period_s is None or self.rel_stderr is None):
            raise ValueError(f"a periodic signal has a period and its error, got {self}")
        if self.period_s is not None and not 0 < self.period_s < math.inf:
            raise ValueError(f"a period is above 0, got {self.period_s} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The waveform of one cycle, as learned at the baseline.

    coefficients: complex amplitude of each harmonic of 1/period_s, shape (harmonics,), watts, seen through the
    sensor. level_w: the mean that they are about. noise_w: what the waveform leaves
    unexplained. jitter: relative standard deviation of a
    cycle's time, as tracked. unseen: the longest part of the cycle without a reading, in cycles. update_s, window_s: of
    the sensor. rel_stderr, cycles: of period_s.
    """

    period_s: float
    rel_stderr: float
    cycles: float
    coefficients: NDArray[np.complex128]
    level_w: float
    noise_w: float
    jitter: float
    unseen: float
    update_s: float
    window_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioEstimate:
    """The period at another cap over the template's. ratio, rel_stderr: `None` where nothing repeats; the
    error covers both periods. cycles: seen at the other cap. ok: whether the ratio may be used, reason: why (not).
    seen: the waveform as it is at the other cap, which flattens it, to count by.
    """

    ratio: float | None = None
    rel_stderr: float | None = None
    cycles: float = 0.0
    ok: bool = False
    seen: Template | None = None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """Cycles counted in a stretch of signal.

    t_s, count: boundaries of cycles and the cycles counted up to each, shape (m,); the count stands still across an
    excluded span. excluded: spans (start_s, end_s) that do not belong to the pattern. period_s: mean time of a cycle
    outside of them, rel_stderr: its relative standard error against the realised mean.
    """

    t_s: Floats
    count: Floats
    excluded: tuple[tuple[float, float], ...]
    period_s: float
    rel_stderr: float
