"""What is announced of a search for a cap per GPU; events as all others are (`autocap.events`)."""

from dataclasses import dataclass

from autocap.records import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class PerGpuTried:
    """Caps per GPU, watts, measured in turn with the common cap that was kept.

    accepted: whether they may be kept; reason: a sentence with numbers. cost: of
    `measurement`, which is as at the time when the common cap was confirmed; its error leaves out the baseline's.
    `None` where they could not be measured to the end.
    """

    t_s: float
    cap_w: tuple[float, ...]
    accepted: bool
    reason: str
    cost: float | None = None
    cost_stderr: float | None = None
    measurement: Measurement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerGpuDecided:
    """The end of the search for a cap per GPU: the caps held from here on, watts, and why.

    kept: whether they are other than the common cap. measurement, common: the windows of the kept caps and those of the
    common cap in between; `None` where the common cap is held. as_confirmed: `measurement` as at the time when the
    common cap was confirmed against the baseline.
    """

    t_s: float
    cap_w: tuple[float, ...]
    kept: bool
    reason: str
    measurement: Measurement | None = None
    common: Measurement | None = None
    as_confirmed: Measurement | None = None
