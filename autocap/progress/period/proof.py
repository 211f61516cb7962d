"""What a trial at another cap says of a period that may be a beat.

A cap lowers the clock, and a cycle of the job's own lengthens by some of what the clock loses: that of a load that
computes by all of it, that of one that waits by less. A beat is the small difference between a fast load and the
sensor's sampling. Where the load slows down by s, a beat of F of its cycles changes by F·s: mostly to something else
altogether, to a shorter period, or to none, and not at all where the load does not follow the clock. But where F is
small, a load that feels little of what the clock loses lengthens its beat as much as a cycle would: so no trial is made
where a load may be behind of which F is below ten (`detect.py`), or whose phase follows the sensor's clock.
"""

from enum import Enum

from autocap.progress.period.estimate import Floats, Template
from autocap.progress.period.ratio import ratio

_SEARCHED = (0.3, 3.0)  # times the period, where another one is looked for
_LEAST_CLOCK = 1.02  # by which the clock must have changed, for the period to show it
_LEAST, _LEAST_SHARE = 0.008, 0.35  # that a cycle of its own lengthens by, and of what the clock lost
_BEYOND = 0.03  # that a cycle may lengthen by more than the clock says: of its reading
_USUAL_LOSS = 0.35  # of the clock, at a cautious cap, where it is not reported
_SIGMAS = 3.0
_SAME = 0.015  # how well two looks must agree


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
    known = clock_hz is not None and before_hz is not None
    slower = before_hz / clock_hz if clock_hz is not None and before_hz is not None else 1.0 + _USUAL_LOSS
    least = 1.0 + max(_LEAST, _LEAST_SHARE * (slower - 1.0) if known else 0.0)
    most = slower * (1.0 + _BEYOND)
    found = ratio(template, t_s, power_w, fastest=_SEARCHED[0], slowest=_SEARCHED[1])
    if found.ratio is not None and round(1.0 / found.ratio) > 1:  # of a pattern of several iterations one is found
        found = ratio(template, t_s, power_w, slowest=most)
    if not found.ok or found.ratio is None or found.rel_stderr is None:
        return Tried.UNCLEAR, found.ratio
    error = _SIGMAS * found.rel_stderr
    if found.ratio + error < 1.0 - _LEAST or found.ratio - error > most:
        return Tried.REFUTED, found.ratio
    moved = slower > _LEAST_CLOCK and found.ratio - error > 1.0 and least < found.ratio < most
    return (Tried.PROVEN if moved else Tried.UNCLEAR), found.ratio


def agree(one_s: float, other_s: float) -> bool:
    """Whether two looks found the same period."""
    return abs(one_s / other_s - 1) < _SAME


class Unproven:
    """A pattern at the limit found on arrival that repeats, and may be a beat's. A disturbed window that does not show
    it again changes nothing.

    template: as it was seen last, `None` before; clock_hz: the SM clock then, `None` where that is not reported.
    """

    def __init__(self) -> None:
        self.template: Template | None = None
        self.clock_hz: float | None = None
        self._found_twice = self._is_over = False

    @property
    def period_s(self) -> float | None:
        """Of a pattern that was found twice, and that a trial at another cap may prove, seconds."""
        return None if self.template is None or not self._found_twice or self._is_over else self.template.period_s

    @property
    def awaits_another_look(self) -> bool:
        return self.template is not None and not self._found_twice and not self._is_over

    def consider(self, template: Template, clock_hz: float | None) -> None:
        """This was found now."""
        self._found_twice = self.template is not None and agree(template.period_s, self.template.period_s)
        self.template, self.clock_hz = template, clock_hz

    def tried_with(self, t_s: Floats, power_w: Floats, clock_hz: float | None) -> tuple[Tried, float | None]:
        """As `tried`, for what was considered last."""
        if self.template is None:
            return Tried.UNCLEAR, None
        return tried(self.template, t_s, power_w, clock_hz=clock_hz, before_hz=self.clock_hz)

    def give_up(self) -> None:
        """The trial is over, and nothing was proven."""
        self._is_over = True
