"""The default: physical curves are fitted to what was measured, and the next trial is where that promises most.

A few thousand curves that power and time may follow (`shapes`), of jobs that compute and of jobs that wait for memory,
are weighed by the baseline and the trials, and bent to them (`belief`). That gives every cap's cost, for whatever
metric, with its uncertainty. A trial is worth it if the rest of the job is expected to gain more from it, its own error
considered, than the trial itself is expected to lose; of such trials the one that loses little comes before the one
that gains a little more, which can still be made later. Where the job is likely to have a knee, the neighbours of the
best cap are worth a trial for less. When none is worth it, a measured cap is tried once more if that is expected to
tell which of those measured is the best. Above the draw, where all caps are one, nothing is to be gained. The cap kept
is the one that was measured and is expected to be the cheapest, with its neighbours' measurements taken into account.

Downward it goes in steps: not below 0.85 of the lowest cap measured (at first, 0.57 of the draw), and to no cap with
more than a small chance of being much worse than the best known: below an unseen cliff an iteration takes four times
as long.

Where energy is the whole machine's, the rest of it is taken to draw the same at every cap, until trials tell.

What other jobs have shown on the card, and this job on others, is one more family of curves (`card`). Where with it
nothing but the limit is left to keep, the search goes on without it: it may be wrong, and talks no job out of a search.

A warm start's trials count as measurements that are a common factor and a percent off. If the baseline's draw or a
trial is not where they put it they are dropped, and the search goes on as if they had never been. Where they say that
nothing is to be gained, the highest of their caps is tried, so that this can be seen to be wrong.
"""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from autocap.records import Measurement, Prediction, Trial
from autocap.strategies.base import Strategy
from autocap.strategies.findings import Finding
from autocap.strategies.model.belief import Belief, Costs
from autocap.strategies.model.card import with_card
from autocap.strategies.model.parameters import Floats
from autocap.strategies.model.residual import AKIN, BENT, POWER, POWER_LEVEL, STRANGE, TIME, Observation, kernels
from autocap.strategies.model.shapes import FAMILIES, shapes, with_rest
from autocap.strategies.options import Needs, Option

_MOST_CAPS = 128  # of a finer grid only every second, third … cap is looked at
_REST = 60.0  # how many trials' lengths the job is taken to last: a trial must gain what it loses in that time
_PATIENCE = 25.0  # how many it may take until a gain is found: which of the trials worth their while comes first
_WORTH = 1 / 7  # of a trial's error: what a trial must be expected to gain
_LEAST_GAIN = 4e-4
_NEXT_TO_NOTHING = 0.01  # with a gain of less, what was recorded elsewhere is not believed to be all there is
_AKIN_WORTH = 0.7  # how much more that is of a job that is like others on the card, of which much is known before
_KNEE, _WORTH_AT_KNEE, _LEAST_AT_KNEE = 0.5, 1 / 15, 1e-4  # the same beside the best cap of a job that may have a knee
_LEAST_AGAIN = 4e-4  # what a further trial of a measured cap must be expected to gain: it loses next to nothing
_MUCH_WORSE, _RISK = 0.15, 0.19  # a cap with this chance of costing that much more than the best is not tried
_STEP, _FIRST_STEP = 0.85, 0.57
_USUAL_SHARE = 0.9  # the mean draw over the cap, where the cap binds
_LEAST_CHANCE = 0.3  # of respecting the slowdown limit, for a cap to be tried
_PAST_ERROR = 0.005  # of a measurement in another run, relative
_PAST_LEVEL = 1
_TRIAL_ERROR = 0.01  # the largest
_SURPRISE = 3.0  # standard deviations between a trial and what was expected of it


class Model(Strategy):
    """Expected improvement on a belief made of physical curves."""

    NEEDS = Needs.POWER_LIMIT
    ELSEWHERE = True
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(name="trials", kind=int, default=8, meaning="most trials of one search", minimum=1),
        Option(
            name="gain",
            kind=float,
            default=0.0,
            meaning="percent; stop when no cap is expected to gain more, or more than a seventh of a trial's error",
            minimum=0.0,
        ),
    )

    families: ClassVar[tuple[str, ...]] = tuple(FAMILIES)  # of curves that are believed to be possible

    def _set_up(self) -> None:
        self._baseline_w = max(self.baseline.setting)
        self._past = [trial.measurement for trial in self.history if trial.measurement is not None]
        stride = math.ceil(len(self.grid) / _MOST_CAPS)
        self._candidates = sorted({*self.grid[::stride], self.grid[0], self.grid[-1]})
        known = {self._baseline_w, *(found.setting[0] for found in self._past)}
        self._places = {setting: place for place, setting in enumerate(sorted({*self._candidates, *known}))}
        self._settings = np.array(list(self._places))
        self._gpu_w = _drawn_w(self.baseline.of_gpus())
        at = self._settings, self._baseline_w, self._gpu_w, self.baseline.cap_binding
        rest = 1 - self._gpu_w / _drawn_w(self.baseline)
        plain = shapes(*at, self.families)
        curves = with_card(plain, *at, self.elsewhere)
        self._shapes = with_rest(curves, rest)
        self._plain = None if curves is plain else with_rest(plain, rest)  # to go on with
        where = self._settings, self._baseline_w
        self._kernels = kernels(*where, POWER), kernels(*where, TIME)
        self._learned: tuple[Belief, Costs] | None = None  # until more is told
        if self._past and abs(self._drawn_more()) > _SURPRISE * POWER_LEVEL:
            self._past, self._learned = [], None

    def tell(self, trial: Trial) -> None:
        """Take in a trial; the first that is not where it was expected ends a warm start."""
        expected = self._belief if self._past else None
        super().tell(trial)
        if trial.measurement is None:
            return
        if expected is not None and expected.surprise(self._observation(trial.measurement)) > _SURPRISE:
            self._past = []
        self._learned = None

    def recommend(self) -> float | None:
        """Of the caps that were measured to the end and are allowed, the one expected to cost least."""
        keepable = [finding.setting for finding in self._keepable()]
        mean = self._costs.mean
        return min(keepable, key=lambda setting: (mean[self._places[setting]], setting), default=None)

    def explain(self) -> str | None:
        """What is expected of the cap recommended, and of a better one that was not worth a trial."""
        kept_w = self.recommend()
        if kept_w is None:
            return None
        mean, spread = self._costs.mean, self._costs.spread
        untried = (setting for setting in self._candidates if setting not in self.findings)
        better = [setting for setting in untried if mean[self._places[setting]] < mean[self._places[kept_w]]]
        best_w = min(better, key=lambda setting: float(mean[self._places[setting]]), default=kept_w)

        def expected(setting: float) -> str:
            place = self._places[setting]
            return f"{mean[place]:.3f} ± {spread[place]:.3f} of the baseline's at {self.grid.text(setting)}"

        if best_w == kept_w:
            return expected(kept_w)
        return f"{expected(kept_w)}, and {expected(best_w)}, which was not measured"

    def predict(self) -> tuple[Prediction, ...]:
        """What is expected of every cap that has no trial with a cost, between the lowest that has one and the
        baseline: nothing announces a cliff below."""
        return tuple(one for one in self.expect() if one.setting not in self.findings)

    def expect(self) -> tuple[Prediction, ...]:
        """The same of those that have one as well, by all that was measured around them."""
        lowest_w = min(self.findings, default=math.inf)
        within = {setting for setting in self.grid if lowest_w <= setting < self._baseline_w}
        predictions = self._belief.predictions(self._settings, self._places[self._baseline_w])
        return tuple(one for one in predictions if one.setting in within)

    def expected_loss(self) -> tuple[float, float] | None:
        """How much more the cap recommended is expected to cost than the best of all, relative to the best, and the
        standard deviation of that; `None` where none is recommended."""
        kept_w = self.recommend()
        if kept_w is None:
            return None
        within = [self._places[setting] for setting in self._candidates]
        return self._costs.loss(self._places[kept_w], within, self._places[min(self.findings)])

    def _next(self) -> float | None:
        if sum(map(_counts_for, self._trials)) >= self._whole("trials"):
            return None
        kept_w = self.recommend()
        place = None if kept_w is None else self._places[kept_w]
        open_caps = [setting for setting in self._candidates if not self.tried(setting)]
        best = 1.0 if place is None else float(self._costs.mean[place])
        chance = self._chance_allowed()
        reach = [self._places[setting] for setting in self._within_reach(open_caps, best, chance)]
        errors = self._usual_errors()
        gain, loss = self._costs.gain_over(place, 1.0, *errors, of=reach)
        gain = gain * chance[reach]
        worth = (gain > self._worth_a_trial(kept_w, reach)) & (_REST * gain > loss)
        if not self.findings:
            worth[:] = True  # one is measured in any case
        if worth.any():
            choice = np.where(worth, _PATIENCE * gain - loss, -np.inf)
            return float(self._settings[reach[int(np.argmax(choice))]])
        if best > 1 - _NEXT_TO_NOTHING and (doubted_w := self._unproven()) is not None:
            return doubted_w
        if best > 1 - _NEXT_TO_NOTHING and self._plain is not None:
            self._shapes, self._plain, self._learned = self._plain, None, None
            return self._next()
        if kept_w is not None:
            return self._again(*errors)
        # Where nothing was better, the cap on arrival is measured like any other, so that there is a cap to keep.
        top_w = self._candidates[-1]
        return top_w if self.metric.max_slowdown is None and not self.tried(top_w) else None

    def _unproven(self) -> float | None:
        """Where a warm start alone says that nothing is to be gained, the highest cap of which it says so."""
        if any(trial.setting < self._baseline_w for trial in self._trials):
            return None
        past = {one.setting[0] for one in self._past}
        return max((one for one in self._candidates if one in past and one < self._baseline_w), default=None)

    def _usual_errors(self) -> tuple[float, float]:
        """Those of a trial's power and time: the least so far, as a baseline of a few iterations has larger ones."""
        seen = [self.baseline, *(trial.measurement for trial in self._trials if trial.measurement is not None)]
        power = min(one.power_rel_stderr for one in seen)
        return min(power, _TRIAL_ERROR), min(_TRIAL_ERROR, *(one.period_rel_stderr for one in seen))

    def _again(self, power_error: float, time_error: float) -> float | None:
        """The measured cap of which one more trial tells most about which of them is the best; `None` if too little."""
        settings = [finding.setting for finding in self._keepable() if not self.failures[finding.setting]]
        if len(settings) < 2:
            return None
        gain = self._costs.gain_again([self._places[setting] for setting in settings], power_error, time_error)
        best = int(np.argmax(gain))
        return settings[best] if gain[best] > _LEAST_AGAIN else None

    def _doubtful(self) -> float | None:
        """A cap that may be the best, of which only the slowdown limit is in doubt, is measured once more."""
        kept_w, mean = self.recommend(), self._costs.mean
        best = 1.0 if kept_w is None else float(mean[self._places[kept_w]])

        def in_doubt(finding: Finding) -> bool:
            undecided = finding.complete and not finding.allowed and not finding.forbidden and not finding.repeated
            return undecided and float(mean[self._places[finding.setting]]) < best - _LEAST_GAIN

        doubtful = [finding for finding in self.findings.values() if in_doubt(finding)]
        return min(doubtful, key=lambda finding: finding.slowdown).setting if doubtful else None

    def _within_reach(self, settings: Sequence[float], best: float, chance: Floats) -> list[float]:
        """The caps that are neither a long step below all that was measured, nor likely to be much worse than best.
        chance: of each to be allowed."""
        if self.findings:
            lowest_w = _STEP * min(self.findings)
        else:
            lowest_w = _FIRST_STEP * min(self._baseline_w, self._gpu_w / _USUAL_SHARE)
        slowest_w = self._slow_w()
        risk = self._costs.chance_above((1 + _MUCH_WORSE) * min(best, 1.0))

        def reachable(setting: float) -> bool:
            place = self._places[setting]
            return (
                setting >= lowest_w and setting > slowest_w and risk[place] <= _RISK and chance[place] >= _LEAST_CHANCE
            )

        return [setting for setting in settings if reachable(setting)] or ([] if self.findings else list(settings[-1:]))

    def _chance_allowed(self) -> Floats:
        """The probability that a trial would show a cap to respect the slowdown limit, shape (caps,)."""
        if self.metric.max_slowdown is None:
            return np.ones(len(self._settings))
        error = math.sqrt(2) * self.baseline.period_rel_stderr
        return self._belief.chance_within(max(1 + self.metric.max_slowdown - 2 * error, 1e-3))

    def _drawn_more(self) -> float:
        """How much more power, in ln, the warm start's trials drew than is now believed of their caps."""
        more = [seen.power - self._belief.expected_power(seen.place) for seen in self._observations() if seen.level]
        return sum(more) / len(more) if more else 0.0

    def _worth_a_trial(self, kept_w: float | None, of: Sequence[int]) -> Floats:
        """What a trial of some places must be expected to gain: little beside the cap kept, if there may be a knee, and
        more of a job that is like others on the card."""
        wanted = self._number("gain") / 100
        if kept_w is None:
            return np.full(len(of), max(wanted, _LEAST_GAIN))
        error = self.findings[kept_w].stderr
        usual = max(wanted, _WORTH * error, _LEAST_GAIN) * (1 + _AKIN_WORTH * self._belief.share_of(AKIN))
        if self._belief.share_of(BENT, STRANGE) < _KNEE:
            return np.full(len(of), usual)
        between = np.abs(
            np.searchsorted(self._candidates, self._settings[of]) - np.searchsorted(self._candidates, kept_w)
        )
        return np.where(between <= 1, max(wanted, _WORTH_AT_KNEE * error, _LEAST_AT_KNEE), usual)

    @property
    def _belief(self) -> Belief:
        return self._learn()[0]

    @property
    def _costs(self) -> Costs:
        return self._learn()[1]

    def _learn(self) -> tuple[Belief, Costs]:
        """What follows from all that was told: worked out once somebody asks, as trials may be told one after the
        other."""
        if self._learned is None:
            belief = Belief.after(self._shapes, *self._kernels, list(self._observations()))
            self._learned = belief, belief.costs(self.metric.terms(self.baseline))
        return self._learned

    def _observations(self) -> Iterator[Observation]:
        yield self._observation(self.baseline)
        for measurement in self._past:
            yield self._observation(measurement, past=True)
        tried = [trial.setting for trial in self._trials]
        for trial in sorted(self._trials, key=lambda trial: tried.index(trial.setting)):
            if trial.measurement is not None:
                yield self._observation(trial.measurement, trial.setting)

    def _observation(
        self, measurement: Measurement, setting: float | None = None, *, past: bool = False
    ) -> Observation:
        """A measurement as the belief takes it; past: in another run."""
        extra_error = _PAST_ERROR if past else 0.0
        return Observation(
            place=self._places[max(measurement.setting) if setting is None else setting],
            power=math.log(_drawn_w(measurement) / _drawn_w(self.baseline)),
            time=math.log(measurement.period_s / self.baseline.period_s),
            power_error=math.hypot(measurement.power_rel_stderr, extra_error),
            time_error=math.hypot(measurement.period_rel_stderr, extra_error),
            level=_PAST_LEVEL if past else None,
        )


def _counts_for(trial: Trial) -> float:
    """Of the most trials of a search: one whose time is known roughly, as other work keeps it short, is half a one."""
    shown = trial.measurement
    return 0.5 if shown is not None and shown.period_rel_stderr > _TRIAL_ERROR else 1.0


def _drawn_w(measurement: Measurement) -> float:
    """Mean power a device, watts, as the energy has it."""
    return measurement.energy_per_iteration_j / measurement.period_s / len(measurement.setting)
