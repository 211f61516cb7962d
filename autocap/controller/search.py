"""One search: a strategy kept at arm's length, and the trials it was told.

A strategy may be a stranger's: whatever it raises or returns, the job must not feel it.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from autocap.controller import bounded
from autocap.controller.known_curve import KnownCurve
from autocap.controller.noted import Noted
from autocap.errors import AutocapError, StrategyError
from autocap.measurement.batches import measured_beside, no_better, pool
from autocap.measurement.probe import ProbeRules
from autocap.metrics import Metric, slowdown
from autocap.records import Cost, Measurement, Prediction, Trial, TrialLength, TrialState, same_limit, same_limits
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid

_MOST_FAILED = 3
_SURE = 2.0  # standard errors
_FINEST = 0.0025  # of the time per iteration
_KNOWN = 0.005  # relative errors of time and energy at a ceiling
_REPEAT_ERROR = 0.5  # a cap asked for again is measured to this share of the target error
# From the baseline, trials of earlier searches, the caps that it may ask for, and the metric.
NewStrategy = Callable[[Measurement, Sequence[Trial], CapGrid, Metric], StrategyLike]


class Search:
    """Asks the strategy and checks its answers; every method raises StrategyError when the strategy misbehaves.

    grid: the caps that may be asked for at all. prune_sigmas: a trial this many standard errors worse than the best is
    not worth finishing. before: trials of earlier searches. most_w: above which no cap may be asked for now, watts.
    baseline: as measured last; first: as measured at the beginning. metric: by which caps are ranked. top_w: the
    ceiling that stands for the baseline in the eyes of the strategy, as the baseline's limit may not hold, watts;
    `None` where it may.
    """

    def __init__(
        self,
        new_strategy: NewStrategy,
        grid: CapGrid,
        metric: Metric,
        baseline: Measurement,
        prune_sigmas: float,
        before: Sequence[Trial] = (),
        most_w: float = math.inf,
    ) -> None:
        self._whole, self.grid, self._before = grid, _up_to(grid, most_w), tuple(before)
        self.metric, self._sigmas = metric, prune_sigmas
        self.baseline = self.first = baseline
        self.top_w: float | None = None
        self._new_strategy = new_strategy
        self._noted = Noted()
        self._shared = most_w < math.inf
        self._drawn: KnownCurve | None = None  # while nothing new is known
        self._predicted: tuple[Prediction, ...] | None = None  # the same
        self._told: tuple[Trial, ...] = ()  # as the strategy knows them, oldest first
        self.is_full = False  # whether no more trials are to be made, as the job ends
        self._failed, self._outdated = 0, False  # in a row; whether the strategy goes by another metric
        with _arms_length():
            self._strategy = self._made(self.grid)
            self._length: TrialLength | None = getattr(self._strategy, "trial_length", None)

    def rebase(self, baseline: Measurement) -> None:
        """The baseline was measured again: what follows is compared with this one, so that a slow drift of the machine
        cancels. The strategy is told what the cap would have shown at the first one. Under a budget that one was
        measured long, to be compared with other jobs', so that nothing but a real drift is to move what it says."""
        ratio, error = slowdown(baseline, self.first)
        self.baseline = self.first if self._shared and abs(ratio - 1) < _SURE * error else baseline

    def anchor(self, baseline: Measurement) -> tuple[Trial, ...]:
        """The baseline was rough and is known now: a new strategy is told all trials as they cost against this one.
        Those that were measured, oldest first."""
        self.first = self.baseline = baseline
        self._drawn = self._predicted = None
        self._told = tuple(self._restated(trial, baseline, self.metric) for trial in self._told)
        self._outdated = True
        return self.history

    def stated(self, trial: Trial) -> Trial:
        """As it is announced: with the error of the baseline that was measured last, which the strategy, who compares
        caps with each other, is not told."""
        if trial.measurement is None:
            return trial
        return replace(trial, cost_stderr=self.metric.versus(trial.measurement, self.baseline).stderr)

    def _restated(self, trial: Trial, baseline: Measurement, metric: Metric) -> Trial:
        if trial.measurement is None:
            return trial
        cost = metric.cost(trial.measurement, baseline)
        return replace(trial, cost=cost.value, cost_stderr=cost.stderr)

    def at_first(self, measurement: Measurement) -> Measurement:
        """What caps would have shown at the first baseline, given what they showed beside the one measured last: no
        better known than that one is, where that is less than the first."""
        return measured_beside(measurement, self.baseline, self.first)

    @property
    def history(self) -> tuple[Trial, ...]:
        """All that were measured, as at the first baseline, oldest first."""
        return tuple(trial for trial in self._told if trial.measurement is not None)

    @property
    def shown(self) -> tuple[Measurement, ...]:
        """The first baseline, and what the trials have shown, as at it."""
        return self.first, *(trial.measurement for trial in self._told if trial.measurement is not None)

    @property
    def _complete(self) -> list[Trial]:
        return [trial for trial in self._told if trial.state is TrialState.COMPLETE]

    def ask(self) -> float | None:
        """The next cap to try, watts; `None` when the search is over. A ceiling that stands for the baseline comes
        first, where too little is known of it."""
        if self.is_full and self._complete:
            return None
        if self.top_w is not None and not self._knows_ceiling(self.top_w):
            return self.top_w
        if self.top_w is not None and self._against_ceiling(self.top_w) is None:
            return None  # nothing is faster than the ceiling, and it is too slow already
        strategy = self._brought_up()
        with _arms_length():
            cap_w = strategy.ask()
            if cap_w is not None and cap_w not in self.grid:
                raise StrategyError(f"it asked for {cap_w!r} W, which is not on its grid")
            return None if cap_w is None else float(cap_w)

    def rules(self, cap_w: float, usual: ProbeRules) -> ProbeRules:
        """When the trial of a cap ends, given when one does that the strategy has no rule of its own for."""
        if self._length is not None:
            return usual.lasting(self._length)
        return replace(usual, target_stderr=_REPEAT_ERROR * usual.target_stderr) if self.measured(cap_w) else usual

    def tell(self, trial: Trial) -> None:
        """The fate of the cap that was asked for last."""
        self._failed = self._failed + 1 if trial.state is TrialState.FAILED else 0
        if trial.measurement is not None:
            trial = replace(trial, measurement=self.at_first(trial.measurement))
        strategy = None if self.top_w is not None or self._outdated else self._strategy
        self._told, self._drawn, self._predicted = (*self._told, trial), None, None
        if strategy is None:  # what the ceiling is worth is known better, too
            self._outdated = True
            return
        with _arms_length():
            strategy.tell(trial)

    def widen(self, time: float, energy: float) -> None:
        """No trial is known better than so, relative errors, as is only known now."""
        wide = [shown and no_better(shown, time, energy) for shown in (trial.measurement for trial in self._told)]
        if wide != [trial.measurement for trial in self._told]:
            told = (replace(trial, measurement=shown) for trial, shown in zip(self._told, wide, strict=True))
            self._told = tuple(self._restated(trial, self.first, self.metric) for trial in told)
            self._outdated, self._drawn, self._predicted = True, None, None

    def withdraw(self, cap_w: float) -> None:
        """Whatever was measured of a cap was wrong: a new strategy is told all but that, and goes on from there. Trials
        that it has cut short count as they are, with their larger errors."""
        kept = (trial for trial in self._told if trial.cap_w != cap_w or trial.measurement is None)
        self._told = tuple(
            replace(trial, state=TrialState.COMPLETE) if trial.reason == bounded.worse_than(cap_w) else trial
            for trial in kept
        )
        self._drawn = self._predicted = None
        self._outdated = True

    def restrict(self, most_w: float) -> bool:
        """Ask for no cap above most_w, watts, from now on: whether that takes or gives caps, so that a new strategy
        goes on from what is known. Where it is below the baseline's own limit, it stands for that; but one that has
        moved by a watt or two upward does not."""
        self._shared = most_w < math.inf
        top_w, grid = None, _up_to(self._whole, most_w)
        if not self._is_highest(most_w):
            before_w = self.top_w or 0.0
            top_w = before_w if before_w <= most_w < (1 + bounded.BESIDE) * before_w else most_w
            grid = CapGrid([*(cap_w for cap_w in self._whole if cap_w < (1 - bounded.BESIDE / 2) * top_w), top_w])
        changed = grid != self.grid or top_w != self.top_w
        if changed:
            self.grid, self.top_w, self._outdated = grid, top_w, True
        return changed

    def _is_highest(self, most_w: float) -> bool:
        """Whether the baseline is that of the highest limits that may hold, or lower than the grid by itself."""
        first_w = max(self.first.cap_w)
        return first_w <= most_w or same_limit(first_w, most_w)

    def rate(self, metric: Metric) -> None:
        """Rank caps by another metric from now on: a new strategy goes on from what the trials cost by that, once it is
        asked anything that depends on it."""
        self.metric, self._drawn, self._outdated = metric, None, True

    def note(self, shown: Measurement) -> None:
        """Take in what a cap has shown while it was held, outside of any trial."""
        self._noted.hold(self.at_first(shown))
        self._drawn, self._outdated = None, self._outdated or self.top_w is not None

    def note_closely(self, shown: Measurement) -> None:
        """The same of a close look: without a baseline that was measured anew, whose error would come to that of each
        of many. What is of the baseline's own limits makes that a better one."""
        is_baseline = same_limits(shown.cap_w, self.first.cap_w)
        self._noted.look(shown, instead=not is_baseline)
        self._drawn = self._predicted = None
        if is_baseline:
            self.first = self.baseline = pool([self.first, shown])
            self._outdated = True

    def is_close(self, cap_w: float, since_s: float) -> bool:
        """Whether a cap, watts, was looked at closely since then."""
        return self._noted.is_close(cap_w, since_s)

    @property
    def seen(self) -> tuple[Measurement, ...]:
        """What trials and caps that were held have shown, as at the first baseline."""
        return (*self.shown[1:], *self._noted.close, *self._noted.held)

    def knows(self, cap_w: float, error: float) -> bool:
        """Whether the time at a cap, watts, is known to a relative error, the baseline's apart."""
        return bool(self.seen) and self.curve.own_error(cap_w) <= error

    @property
    def curve(self) -> KnownCurve:
        """All that is known of the caps, those included that may not be asked for now."""
        if self._drawn is None:
            if self._predicted is None:
                self._predicted = self._expected()
            believed = {one.cap_w for one in self._predicted}
            shown = [one for one in (*self.shown[1:], *self._noted.close) if max(one.cap_w) not in believed]
            self._drawn = KnownCurve.of(self.first, shown, self._predicted, self.metric, self._noted.held)
        return self._drawn

    def _expected(self) -> tuple[Prediction, ...]:
        """Of the caps that may be asked for at some time, by the trials. Where caps are looked at again and again, by
        what they have shown as well, and of the caps that were measured where the strategy says that of them, too."""
        close = self._noted.close
        grid = self._with_measured(math.inf)
        with _arms_length():
            anew = self.grid != grid or self.top_w is not None or self._outdated or close
            strategy = self._made(grid, (*self._told, *self._as_trials(close))) if anew else self._strategy
        return _predictions(strategy, grid, measured=True)

    def _as_trials(self, shown: Iterable[Measurement]) -> Iterator[Trial]:
        for one in shown:
            cost, cap_w = self.metric.cost(one, self.first), max(one.cap_w)
            if cap_w in self._whole and cap_w < max(self.first.cap_w):
                yield Trial(
                    cap_w=cap_w, state=TrialState.COMPLETE, cost=cost.value, cost_stderr=cost.stderr, measurement=one
                )

    def _with_measured(self, most_w: float) -> CapGrid:
        """All caps up to one, and what was measured beside them, as at a ceiling."""
        beside = {trial.cap_w for trial in self._told if trial.measurement is not None} - set(self._whole)
        first_w = max(self.first.cap_w)
        return CapGrid(sorted({*_up_to(self._whole, most_w), *(w for w in beside if w <= min(most_w, first_w))}))

    def _knows_ceiling(self, ceiling_w: float) -> bool:
        """Whether what is known of a ceiling, watts, does to compare caps with it; or nothing more is to be had."""
        if any(abs(trial.cap_w - ceiling_w) <= bounded.BESIDE / 2 * ceiling_w for trial in self._told):
            return True
        return self.curve.own_errors(ceiling_w) <= _KNOWN

    def _against_ceiling(self, ceiling_w: float) -> tuple[Measurement, Metric] | None:
        """What stands for the baseline, and by which metric caps are held against it; `None` where the ceiling is
        slower than allowed."""
        ceiling = bounded.reference(self.curve, ceiling_w)
        metric = bounded.against(self.metric, self.first, ceiling)
        return None if metric is None else (ceiling, metric)

    def _brought_up(self) -> StrategyLike:
        """The strategy, told of what the trials cost by the metric of now, against what holds now."""
        if self._outdated:
            self._outdated = False
            out = {bounded.MOVED}
            with _arms_length():
                if self.top_w is None:
                    self.grid = self._with_measured(max(self.grid))
                    self._told = tuple(self._restated(trial, self.first, self.metric) for trial in self._told)
                    self._strategy = self._made(self.grid, [bounded.as_now(trial, out) for trial in self._told])
                else:
                    self._strategy = self._made_below(self.top_w, out)
        return self._strategy

    def _made_below(self, top_w: float, out: set[str]) -> StrategyLike:
        """A strategy for which a ceiling stands for the baseline. What was measured above is history, the baseline
        too."""
        found = self._against_ceiling(top_w)
        if found is None:
            return self._strategy
        ceiling, metric = found
        above = {trial.cap_w for trial in self._told if trial.cap_w > top_w}
        out |= {bounded.WORSE, *map(bounded.worse_than, above)}
        first = _as_trial(max(self.first.cap_w), self.first)
        told = [self._restated(bounded.as_now(trial, out), ceiling, metric) for trial in (first, *self._told)]
        near = (1 - bounded.BESIDE / 2) * top_w
        told = [_at(top_w, trial) if near <= trial.cap_w < top_w else trial for trial in told]
        at_top = _as_trial(top_w, ceiling)
        if not any(trial.cap_w == top_w and trial.state is TrialState.COMPLETE for trial in told):
            told.append(self._restated(at_top, ceiling, metric))
        return self._made(self.grid, told, ceiling, metric)

    def _made(
        self,
        grid: CapGrid,
        told: Sequence[Trial] = (),
        baseline: Measurement | None = None,
        metric: Metric | None = None,
    ) -> StrategyLike:
        """A strategy with those caps that was told of the trials; what is outside of them counts as earlier. baseline,
        metric: the search's own unless given."""
        outside = tuple(trial for trial in told if trial.cap_w not in grid and trial.measurement is not None)
        strategy = self._new_strategy(baseline or self.first, (*self._before, *outside), grid, metric or self.metric)
        for trial in told:
            if trial.cap_w in grid:
                strategy.tell(trial)
        return strategy

    @property
    def has_own_length(self) -> bool:
        """Whether the strategy has a rule of its own for how long its trials are."""
        return self._length is not None

    @property
    def blind(self) -> bool:
        """Whether trials fail one after the other, so that going on would only cost the job time."""
        return self._failed >= _MOST_FAILED

    def recommend(self) -> float | None:
        """The cap to keep, watts, one that was measured to the end; `None` when there is none."""
        strategy = self._brought_up()
        with _arms_length():
            cap_w = strategy.recommend()
            if cap_w is not None and not self.measured(cap_w):
                raise StrategyError(f"it recommended {cap_w!r} W, which was never measured to the end")
            return None if cap_w is None else float(cap_w)

    def runner_up(self, refused: Collection[float]) -> float | None:
        """The best cap that was measured, allowed and better than the baseline, above all that were refused for being
        too slow, or too uncertain, watts; `None` when there is none. Where a proxy counts, better by two sigma: no
        measurement would make it surer."""
        rivals = [
            trial
            for trial in self._complete
            if trial.cap_w > max(refused)
            and trial.measurement is not None
            and trial.cost is not None
            and trial.cost_stderr is not None
            and trial.cost + (_SURE * trial.cost_stderr if trial.measurement.is_relative else 0.0) < 1
            and self.metric.allows(trial.measurement, self.first)
        ]
        best = min(rivals, key=lambda trial: trial.cost or 0.0, default=None)
        return None if best is None else best.cap_w

    def expectation(self) -> str | None:
        """What the strategy expects of the cap it recommends, in a sentence; `None` where it does not say."""
        if self.top_w is not None:  # it would be over the ceiling
            return None
        strategy = self._brought_up()
        with _arms_length():
            explain = getattr(strategy, "explain", None)
            text = None if explain is None else explain()
            return None if text is None else str(text)

    def predictions(self) -> tuple[Prediction, ...]:
        """What the strategy predicts of caps that were not measured; nothing where it does not predict."""
        return self._expected() if self.top_w is not None else _predictions(self._brought_up(), self.grid)

    @property
    def expected_trials(self) -> int | None:
        """How many trials the strategy is likely to need; `None` where it does not say."""
        with _arms_length():
            expected = getattr(self._strategy, "expected_trials", None)
            return int(expected) if expected is not None else None

    def measured(self, cap_w: float) -> bool:
        """Whether a trial of that cap was completed."""
        return any(trial.cap_w == cap_w for trial in self._complete)

    def cost(self, measurement: Measurement) -> Cost:
        """The metric against the baseline as it was measured last."""
        return self.metric.cost(measurement, self.baseline)

    def decided(self, measurement: Measurement) -> bool:
        """Whether it is known if the cap is within the limit on slowdown, as far as that can be known."""
        return (
            self.metric.max_slowdown is None
            or self.metric.allows(measurement, self.baseline)
            or self.metric.forbids(measurement, self.baseline)
            or measurement.period_rel_stderr < _FINEST
        )

    def hopeless(self, measurement: Measurement, cost: Cost) -> str | None:
        """Why measuring on is of no use: too slow, or worse than the baseline or the best trial; `None` if it is.

        It always is of use to a strategy whose trials have a length of their own.
        """
        if self._length is not None:
            return None
        if self.metric.forbids(measurement, self.baseline, self._sigmas):
            ratio, _ = slowdown(measurement, self.baseline)
            return f"{100 * (ratio - 1):.1f} % slower, {100 * (self.metric.max_slowdown or 0):g} % allowed"
        if max(measurement.cap_w) == self.top_w:
            return None  # all others are held against it
        versus = self.metric.versus(measurement, self.baseline)
        if self.top_w is None and versus.value - self._sigmas * versus.stderr > 1:
            return bounded.WORSE
        for trial in self._complete:
            assert trial.cost is not None
            assert trial.cost_stderr is not None
            assert trial.measurement is not None
            if trial.measurement.cap_w == measurement.cap_w:
                continue  # a repeat is pooled with its first trial
            if self.top_w is not None and trial.cap_w > self.top_w:
                continue  # it may not hold
            if self.metric.max_slowdown is not None and trial.measurement.cap_w < measurement.cap_w:
                continue  # a lower cap may yet turn out to be too slow
            if cost.value - trial.cost > self._sigmas * math.hypot(cost.stderr, trial.cost_stderr):
                return bounded.worse_than(trial.cap_w)
        return None


def _up_to(grid: CapGrid, most_w: float) -> CapGrid:
    """The caps of a grid that are not above a ceiling, watts; the lowest in any case."""
    return CapGrid([cap_w for cap_w in grid if cap_w <= most_w] or grid[:1])


def _at(cap_w: float, trial: Trial) -> Trial:
    """A trial of a cap beside another one, as of that, watts."""
    shown = trial.measurement
    return replace(
        trial, cap_w=cap_w, measurement=None if shown is None else replace(shown, cap_w=(cap_w,) * len(shown.cap_w))
    )


def _as_trial(cap_w: float, shown: Measurement) -> Trial:
    """What stands for a baseline, as a trial of a cap, watts, against itself."""
    return Trial(cap_w=cap_w, state=TrialState.COMPLETE, cost=1.0, cost_stderr=0.0, measurement=shown)


def _predictions(strategy: StrategyLike, grid: CapGrid, *, measured: bool = False) -> tuple[Prediction, ...]:
    with _arms_length():
        predict = getattr(strategy, "predict", None)
        predict = getattr(strategy, "expect", predict) if measured else predict
        found = () if predict is None else tuple(predict())
        for one in found:
            if not isinstance(one, Prediction) or one.cap_w not in grid:
                raise StrategyError(f"it predicted {one!r}, which is no Prediction of a cap on its grid")
        return found


@contextmanager
def _arms_length() -> Iterator[None]:
    try:
        yield
    except AutocapError as error:
        raise StrategyError(f"the strategy failed: {error}") from error
    except Exception as error:  # a plug-in may raise anything
        raise StrategyError(f"the strategy failed: {type(error).__name__}: {error}") from error
