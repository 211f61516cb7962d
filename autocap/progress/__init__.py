"""Where the iteration count comes from: samples in, marks out. A mark says how many iterations had ended by when.

Best first: `steps` (the job counts), `calls` (the kernel counts the calls of a function in it), `regex` (its output
counts), `period` (found in the power signal), `speed` (a proxy from the SM clock, of low confidence: where it is asked
for, and for `attach` without a period).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from autocap.config import PERIOD_AWAITED_SECONDS
from autocap.records import Sample

EXACT = ("steps", "calls")  # kinds that say to the moment when an iteration has ended,
COUNTED = (*EXACT, "regex")  # and that say so at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """iterations: iterations completed since the job's start. t_s: the time at which the last of them ended."""

    t_s: float
    iterations: float


LONGER = "pass a larger --wait if the job starts slowly"
HAVE_COUNTED = (
    "have its iterations counted: start it with `autocap run` (without PyTorch with --progress regex:PATTERN, by the "
    "lines that it prints), or call autocap.step() or use autocap.tune in its script"
)
_SMOOTHED_S = 5.0  # of a clock
NEVER_S = -math.inf  # a time that has always been over


class Progress(Protocol):
    """A source of marks, fed with every sample of the run."""

    @property
    def kind(self) -> str:
        """ "steps", "calls", "regex", "period" or "speed"."""

    @property
    def confidence(self) -> str:
        """ "high", or "low" for a proxy that is not a count."""

    @property
    def trouble(self) -> str | None:
        """Why there are no marks at present; `None` while there are."""

    @property
    def advice(self) -> str:
        """What may help where there are none, to stand behind the trouble: "call autocap.step() once an iteration"."""

    @property
    def worth_until_s(self) -> float:
        """Until when, on the run's clock, it is worth waiting for marks, as something shows; `NEVER_S` otherwise."""

    @property
    def unproven_s(self) -> float | None:
        """The period, seconds, of a pattern in the power that only a trial at another cap can prove to be the job's;
        `None` where there is none."""

    @property
    def is_over(self) -> bool:
        """Whether no mark will come any more, whatever the job does."""

    @property
    def notice(self) -> str | None:
        """What the user is to be told, once: what is waited for, or why a proxy must do; `None` for nothing."""

    @property
    def follows_power(self) -> bool:
        """Whether iterations are looked for in the power, so that each reading of it says something."""

    @property
    def step_s(self) -> float:
        """Seconds from one sample to the next that will do while what is followed goes on, 0 where each reading of the
        power says something."""

    @property
    def changed(self) -> str | None:
        """Why what is counted at these caps is another job's than before; `None` where it is the same."""

    def marks(self, sample: Sample) -> tuple[Mark, ...]:
        """The marks that this sample brings, oldest first; none when no iteration is known to have ended since.

        A mark may lie in the past: a period is only recognised afterwards. Two marks with the same count enclose a
        pause that is no part of an iteration.
        """


class StepProgress:
    """Counts what is counted elsewhere: optimiser steps, calls of a function, or lines of the job's output that match a
    pattern. Of steps and calls, the samples may have either: `calls` takes calls alone, the others what is none.

    is_over: whether nothing is counted any more. doubt: why what is seen is not counted yet; `None` where nothing is.
    """

    confidence = "high"
    follows_power = False
    worth_until_s = NEVER_S
    unproven_s: float | None = None
    step_s = 0.0
    changed: str | None = None
    notice: str | None = None

    def __init__(
        self,
        kind: str = "steps",
        what: str = "optimiser step",
        is_over: Callable[[], bool] = lambda: False,
        doubt: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.kind = kind
        self._is_over, self._doubt, self._what = is_over, doubt, what
        self.advice = f"{LONGER}, or {HAVE_COUNTED if kind == 'calls' else 'call autocap.step() once an iteration'}"
        self._count, self._t_s = 0, NEVER_S
        self._goes_on = False  # after a while in which nothing was counted

    @property
    def is_over(self) -> bool:
        return self._is_over()

    @property
    def trouble(self) -> str | None:
        return None if self._count else self._doubt() or f"no {self._what} was seen"

    def marks(self, sample: Sample) -> tuple[Mark, ...]:
        steps = sample.steps
        if steps is None or steps.of_calls != (self.kind == "calls"):
            return ()
        if steps.suspended:
            self._goes_on = self._count > 0
            return ()
        goes_on = self._goes_on and steps.count == self._count and steps.t_s > self._t_s
        if steps.count <= self._count and not goes_on:
            return ()
        self._count, self._t_s, self._goes_on = steps.count, steps.t_s, False
        # A stamp cannot lie in the future of its sample; clocks of one machine agree, roundings may not.
        return (Mark(t_s=min(steps.t_s, sample.t_s), iterations=float(self._count)),)


class SpeedProgress:
    """Takes the SM clock for the speed: one "iteration" is the work of a second at the limits found on arrival.

    At 1/R of the clock that work takes between one second, where nothing of it follows the clock, and R seconds, where
    all of it does; it is counted by the middle of that range, and `measurement.prober` says how far the truth may be
    off. A job that waits for something else is not seen to wait at all.
    """

    kind = "speed"
    confidence = "low"
    follows_power = False
    is_over = False
    advice = HAVE_COUNTED
    worth_until_s = NEVER_S
    unproven_s: float | None = None
    step_s = 0.0
    changed: str | None = None
    notice: str | None = None

    def __init__(self) -> None:
        self._arrival: tuple[float | None, ...] | None = None  # limits
        self._full_hz = self._smooth_hz = 0.0  # the clock at these: its highest, without short peaks, and by now
        self._last_s: float | None = None
        self._done = 0.0
        self._marked = 0.0
        self.trouble: str | None = "the device does not report its SM clock"

    def marks(self, sample: Sample) -> tuple[Mark, ...]:
        clocks = [reading.sm_clock_hz for reading in sample.readings]
        known = [clock for clock in clocks if clock is not None]
        since_s, self._last_s = 0.0 if self._last_s is None else sample.t_s - self._last_s, sample.t_s
        if len(known) < len(clocks) or not known or min(known) <= 0:
            return ()
        self.trouble = None
        slowest_hz = min(known)  # a data-parallel job waits for its slowest device
        limits = tuple(reading.requested_w for reading in sample.readings)
        self._arrival = limits if self._arrival is None else self._arrival
        if limits == self._arrival:
            share = min(1.0, since_s / _SMOOTHED_S) if self._smooth_hz else 1.0
            self._smooth_hz += share * (slowest_hz - self._smooth_hz)
            # The highest: it may be low before the job computes, and then every cap would look harmless.
            self._full_hz = max(self._full_hz, self._smooth_hz)
        self._done += since_s / ((1 + self._full_hz / slowest_hz) / 2)
        if self._done - self._marked < 1.0:
            return ()
        self._marked = self._done
        return (Mark(t_s=sample.t_s, iterations=self._done),)


_LATE_MARKS = 3  # a helper process that steps once on the way is no count of the job's iterations


class BestProgress:
    """`auto`: the better source if it gives marks; the other one once it gave none for a while.

    better, other: of a child the steps and the period in the power; of a job that runs already the period and the
    speed, or the calls and that. within_s: how long the better one is waited for, and longer where it says that it is
    worth it; 0 for not at all, inf for as long as it may count. late: the better one is still listened to after that,
    as a step may take longer, and is taken once it has counted a few times. Where it is over, before or after that, the
    other one is taken.
    Whoever uses the marks begins anew then, which `kind` shows: a count that changes its meaning in the middle of a
    search would be worse than none.
    """

    def __init__(self, better: Progress, other: Progress, within_s: float, *, late: bool = False) -> None:
        self._better, self._other, self._within_s = better, other, within_s
        self._first_s: float | None = None
        self._chosen: Progress | None = None if within_s > 0 else other
        if math.isinf(within_s):
            self._chosen = better
        late_marks = 1 if better.follows_power else _LATE_MARKS
        self._awaited = late_marks if late else 0  # of the better one, until it takes the other's place
        self._made_do: str | None = None  # why the other one was taken, where it is a proxy

    @property
    def kind(self) -> str:
        return (self._chosen or self._better).kind

    @property
    def confidence(self) -> str:
        return (self._chosen or self._better).confidence

    @property
    def _open(self) -> tuple[Progress, ...]:
        """Those that may give marks by now."""
        return (self._better, self._other) if self._chosen is None else (self._chosen,)

    @property
    def trouble(self) -> str | None:
        return ", and ".join(one.trouble for one in self._open if one.trouble is not None) or None

    @property
    def advice(self) -> str:
        if self._chosen is None and self._other.trouble is None and self._other.confidence == "high":
            return f"pass --progress {self._other.kind}, or a --wait above {self._within_s:g} s, after which it is used"
        return (self._chosen or self._better).advice

    @property
    def worth_until_s(self) -> float:
        return max(one.worth_until_s for one in self._open)

    @property
    def unproven_s(self) -> float | None:
        return next((one.unproven_s for one in self._open if one.unproven_s), None)

    @property
    def is_over(self) -> bool:
        return self._chosen is not None and self._chosen.is_over

    @property
    def notice(self) -> str | None:
        return self._made_do or next((one.notice for one in self._open if one.notice), None)

    @property
    def step_s(self) -> float:
        if self._chosen is None or (self._chosen is self._other and self._awaited and self._better.follows_power):
            return 0.0
        return self._chosen.step_s

    @property
    def changed(self) -> str | None:
        return None if self._chosen is None else self._chosen.changed

    @property
    def follows_power(self) -> bool:
        awaited = self._awaited > 0 and self._better.follows_power
        return awaited or any(one.follows_power for one in self._open)

    def marks(self, sample: Sample) -> tuple[Mark, ...]:
        if self._better.is_over and self._chosen is not self._other:
            self._chosen, self._awaited = self._other, 0
        if self._better.follows_power and self._first_s is not None:  # that takes a sample for each reading
            self._awaited *= sample.t_s < self._first_s + PERIOD_AWAITED_SECONDS
        if self._chosen is self._other and self._awaited:
            counted = self._better.marks(sample)
            self._awaited -= bool(counted)
            if not self._awaited:
                self._chosen = self._better
                return counted
        if self._chosen is not None:
            return self._chosen.marks(sample)
        self._first_s = sample.t_s if self._first_s is None else self._first_s
        counted, found = self._better.marks(sample), self._other.marks(sample)
        if counted:
            self._chosen = self._better
            return counted
        if found and sample.t_s >= max(self._first_s + self._within_s, self._better.worth_until_s):
            self._chosen = self._other
            if self._other.confidence == "low":
                self._made_do = (
                    f"{self._better.trouble}, so iterations are counted by {self._other.kind}, with low confidence; "
                    f"better {HAVE_COUNTED}"
                )
            return found
        return ()
