"""What a trial at another cap says of a period that may be a beat.

A cap lowers the clock, and a cycle of the job's own lengthens by some of what the clock loses: that of a load that
computes by all of it, that of one that waits by less. A beat is the small difference between a fast load and the
sensor's sampling. Where the load slows down by s, a beat of F of its cycles changes by F·s: mostly to something else
altogether, to a shorter period, or to none, and not at all where the load does not follow the clock.
"""

from enum import Enum

from autocap.progress.period.estimate import Floats, Template
from autocap.progress.period.ratio import ratio

_SEARCHED = (0.3, 3.0)  # times the period, where another one is looked for
_LEAST_CLOCK = 1.02  # by which the clock must have changed, for the period to show it
_LEAST, _LEAST_SHARE = 0.008, 0.2  # that a cycle of its own lengthens by, and of what the clock lost
_BEYOND = 0.03  # that a cycle may lengthen by more than the clock says: of its reading
_USUAL_LOSS = 0.35  # of the clock, at a cautious cap, where it is not reported
_SIGMAS = 3.0


class Tried(Enum):
    """PROVEN: the period lengthened as a cycle of the job's own does. REFUTED: it went where none goes. UNCLEAR: the
    pattern was not found again, or hardly moved."""

    PROVEN = "proven"
    REFUTED = "refuted"
    UNCLEAR = "unclear"


def tried(
    template: Template, t_s: Floats, power_w: Floats, *, clock_hz: float | None, before_hz: float | None
) -> tuple[Tried, float | None]:
    """What readings at a lower cap say, and how many times as long the period is there.

    template: of the period at the limit found on arrival. t_s, power_w: readings, shape (n,). clock_hz, before_hz: the
    mean SM clock of these readings, and of the template's; `None` where it is not reported.
    """
    found = ratio(template, t_s, power_w, fastest=_SEARCHED[0], slowest=_SEARCHED[1])
    if not found.ok or found.ratio is None or found.rel_stderr is None:
        return Tried.UNCLEAR, found.ratio
    error = _SIGMAS * found.rel_stderr
    known = clock_hz is not None and before_hz is not None
    slower = before_hz / clock_hz if clock_hz is not None and before_hz is not None else 1.0 + _USUAL_LOSS
    least = 1.0 + max(_LEAST, _LEAST_SHARE * (slower - 1.0) if known else 0.0)
    most = slower * (1.0 + _BEYOND)
    if found.ratio + error < 1.0 - _LEAST or found.ratio - error > most:
        return Tried.REFUTED, found.ratio
    moved = slower > _LEAST_CLOCK and found.ratio - error > 1.0 and least < found.ratio < most
    return (Tried.PROVEN if moved else Tried.UNCLEAR), found.ratio
