"""A trial that cannot be right: beside the other caps' times per iteration, or beside its own confirmation.

No card gets faster as its cap falls, nor slower as it rises. And where iterations are inferred from a period in the
power, a part or a multiple of one may be taken for one: time and energy per iteration are then off by that factor,
which looks like a saving that nothing else gives, or like a cap that is not worth a look. So what cannot be is measured
once more, after a look at the baseline, and counts only if both measurements agree; and what a confirmation contradicts
counts no more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocap.controller.search import Search
from autocap.controller.tuning import TUNING
from autocap.events.settled import failed
from autocap.measurement.drift import beside, differences, impossible
from autocap.metrics import ratios
from autocap.records import Measurement, Trial, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why a cap must be measured again. withdraws: what was measured of it before does not count any more."""

    why: str
    withdraws: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawal:
    """A cap, watts, of which nothing counts that was measured, and why."""

    setting: float
    why: str


class Doubts:
    """Those of one search."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._suspect: Measurement | None = None  # to be measured again, as at the first baseline
        self._sure = set[float]()  # caps that were measured twice, in agreement
        self._multiples = set[float]()  # caps that show what may be more than an iteration, each time
        self._withdrawn = set[float]()
        self._quiet = True  # no other work was seen on the machine

    def raised(self, trial: Trial, *, inferred: bool) -> Doubt | None:
        """Why a trial must be repeated before it counts; `None` where it counts. inferred: iterations are."""
        if trial.measurement is None or self._suspect is not None:
            return None
        repeated = None if trial.setting in self._sure else self.contradiction(trial.setting, trial.measurement)
        if repeated is not None:
            return repeated
        found = self._search.at_first(trial.measurement)
        why = self._against(found, self._witnesses) or (self._multiple(found) if inferred else None)
        if why is None:
            return None
        self._suspect = found
        return Doubt(why=why)

    def settled(self, trial: Trial, *, inferred: bool) -> tuple[Trial, Sequence[Withdrawal]]:
        """The trial as it counts, and what cannot be right beside it. One that disagrees with what it was to repeat has
        failed, but where iterations are counted and it can be right beside the others: then the first one was off, and
        only that does not count. Two in agreement count; but the same miscount may come at a cap each time, so that
        where iterations are inferred they must not stand against the baseline, against several caps, or against two
        more in agreement.
        """
        suspect, self._suspect = self._suspect, None
        if suspect is None or trial.measurement is None:
            return trial, ()
        found = self._search.at_first(trial.measurement)
        apart = differences(suspect, found)
        if apart is not None and not inferred and self._against(found, self._witnesses) is None:
            return trial, ()
        if apart is not None:
            return failed(trial, f"two measurements in a row disagree: {apart} per iteration in the second"), ()
        baseline_w = max(self._search.first.setting)
        wrong = {max(one.setting) for one in self._witnesses if self._against(found, (one,)) is not None}
        sure = wrong & self._sure
        text = self._search.knob.text
        since = f"beside {text(trial.setting)}, measured twice, it cannot be right"
        if inferred and (len(wrong) > 1 or baseline_w in wrong or sure):
            others = " and ".join(map(text, sorted(wrong)))
            miscounted = failed(trial, f"measured twice, it cannot be right beside {others}: iterations are miscounted")
            return miscounted, [Withdrawal(setting=setting, why=since) for setting in sure - {baseline_w}]
        self._sure.add(trial.setting)
        if inferred and self._multiple(found) is not None:
            self._multiples.add(trial.setting)
        return trial, [Withdrawal(setting=setting, why=since) for setting in wrong - sure - {baseline_w}]

    def beside_others(self, trial: Trial) -> tuple[Trial, Sequence[Withdrawal]] | None:
        """The trial as it counts where other work comes in bursts, and what cannot be right beside it. Such work makes
        iterations longer and never shorter: of two caps that cannot both be right the slower one was held up. `None`
        where that one is the baseline, which is to be measured again."""
        self._suspect = None
        if trial.measurement is None:
            return trial, ()
        found, gone = self._search.at_first(trial.measurement), list[Withdrawal]()
        for one in self._witnesses:
            why = impossible(found, one, self._search.knob)
            if why is not None and found.period_s > one.period_s:
                return failed(trial, f"{why}: other work has held it up"), ()
            if why is not None and one is self._search.first:
                return None
            if why is not None:
                gone.append(Withdrawal(setting=max(one.setting), why=f"{why}: other work had held that one up"))
        return trial, gone

    def of_another(self, baseline: Measurement, again: Measurement | None) -> Sequence[Withdrawal]:
        """The caps whose trials show another job than a baseline that was measured after them: they cannot be right
        beside it; and all, where a cap shows something else `again`, as nobody knows since when."""
        trials, gone = self._search.shown[1:], dict[float, str]()
        for one in trials:
            why = impossible(one, baseline, self._search.knob)
            if why is not None:
                gone[max(one.setting)] = why
        for one in trials:
            apart = differences(one, again) if again is not None and one.setting == again.setting else None
            if apart is not None:
                return self.of_all(f"{apart} per iteration at {self._search.knob.text(max(one.setting))}")
        return [Withdrawal(setting=setting, why=why) for setting, why in gone.items()]

    def of_all(self, why: str) -> Sequence[Withdrawal]:
        """All caps that were tried."""
        return [Withdrawal(setting=max(one.setting), why=why) for one in self._search.shown[1:]]

    def cut_short(self, least_s: float, *, quiet: bool) -> Sequence[Withdrawal]:
        """Once other work is seen on the machine, the caps of which all that is known was cut short before so many
        seconds: a stretch of that work may have taken up all of these. quiet: none was seen so far."""
        seen, self._quiet = self._quiet and not quiet, quiet
        lasted_s = dict[float, float]()
        for trial in self._search.history if seen else ():
            if trial.measurement is not None:
                known_s = math.inf if trial.state is TrialState.COMPLETE else trial.measurement.duration_s
                lasted_s[trial.setting] = max(known_s, lasted_s.get(trial.setting, 0.0))
        text = "it was cut short after {:.0f} s, which other work may have taken up"
        return [Withdrawal(setting=setting, why=text.format(s)) for setting, s in lasted_s.items() if s < least_s]

    @property
    def is_pending(self) -> bool:
        """Whether a trial is to be measured again before it counts."""
        return self._suspect is not None

    def drop(self) -> None:
        """What was to be measured again is not."""
        self._suspect = None

    @property
    def _witnesses(self) -> tuple[Measurement, ...]:
        """What others may be held against: all that may not be multiples of an iteration."""
        return tuple(one for one in self._search.shown if max(one.setting) not in self._multiples)

    def contradiction(self, setting: float, again: Measurement) -> Doubt | None:
        """Whether a cap that was tried shows something else now, as in its confirmation; `None` where it does not."""
        seen = self._search.at_first(again)
        for one in self._search.shown[1:]:
            apart = differences(one, seen) if max(one.setting) == setting else None
            if apart is not None:
                self._suspect = seen
                return Doubt(why=f"measured again, it showed {apart} per iteration", withdraws=True)
        return None

    def was_withdrawn(self, setting: float) -> bool:
        """Whether trials of a cap, watts, count no more."""
        return setting in self._withdrawn

    def withdrawn(self, setting: float) -> None:
        """Note that they do not."""
        self._withdrawn.add(setting)
        self._sure.discard(setting)
        self._multiples.discard(setting)

    def _against(self, found: Measurement, known: Sequence[Measurement]) -> str | None:
        """Why a time per iteration cannot be beside those of other caps, the nearest first; `None` where it can."""
        knob = self._search.knob
        nearest = sorted(known, key=lambda one: abs(max(one.setting) - max(found.setting)))
        return next((why for other in nearest if (why := impossible(found, other, knob)) is not None), None)

    def _multiple(self, found: Measurement) -> str | None:
        """Why a time per iteration may be a multiple of the iteration's; `None` where it is none of the next cap's. Of
        another knob nobody knows what lies between two settings."""
        above = [one for one in self._witnesses if max(one.setting) > max(found.setting)]
        if not above or not self._search.knob.is_power_limit:
            return None
        other = min(above, key=lambda one: max(one.setting))
        both = ratios(found, other)
        if both["time"].value < TUNING.miscount_time or both["energy"].value < TUNING.miscount_energy:
            return None
        return f"{beside(found, other)}, and a multiple of an iteration may have been taken for one"
