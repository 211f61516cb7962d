"""Which run of a sweep is next: the order, what a resumed sweep has done already, and where a descent ends."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from statistics import fmean

import numpy as np

from autocap.config import RANDOM
from autocap.events.sweep import DISCARDED, FinishedRun, GpuSet, PlannedRun, SweepPlan
from autocap.strategies.grid import DEFAULT_STEP_W

_WIDE_W = 200.0  # a range of caps beyond this is stepped through coarsely
_WIDE_STEP_W = 25.0
_TRIES = 2  # of one run, before something is taken to be wrong with the command


def default_step_w(min_w: float, max_w: float) -> float:
    """The spacing of a sweep's caps where none is asked for, watts: each costs whole runs of the command."""
    return DEFAULT_STEP_W if max_w - min_w <= _WIDE_W else _WIDE_STEP_W


def in_order(plan: SweepPlan) -> Iterator[PlannedRun]:
    """Every run of the plan, set by set. The same plan gives the same order."""
    for place, one in enumerate(plan.sets):
        if plan.discard:
            yield PlannedRun(gpus=one.label, cap_w=one.baseline_w, repeat=DISCARDED)
        repeats = range(1, plan.repeats + 1)
        if plan.order == RANDOM:  # in rounds, so that a drift of the machine meets all caps alike
            rng = np.random.default_rng([plan.seed, place])
            pairs = [(one.caps_w[index], repeat) for repeat in repeats for index in rng.permutation(len(one.caps_w))]
        else:
            pairs = [(cap_w, repeat) for cap_w in one.caps_w for repeat in repeats]
        for cap_w, repeat in pairs:
            yield PlannedRun(gpus=one.label, cap_w=cap_w, repeat=repeat)


class Schedule:
    """The caller runs what `next` says and passes the finished run to `add`, until there is nothing more.

    done: the finished runs of an earlier, interrupted sweep of the same plan; those that count are not run again.
    """

    def __init__(self, plan: SweepPlan, done: Sequence[FinishedRun] = ()) -> None:
        self._plan = plan
        self._runs = tuple(in_order(plan))
        self._counted: dict[PlannedRun, FinishedRun] = {}
        self._failed: Counter[PlannedRun] = Counter()
        self.hopeless: str | None = None
        for finished in done:
            if finished.trouble is None:
                self._counted[finished.run] = finished

    @property
    def left(self) -> int:
        """How many runs are to come, as far as is known."""
        stops_w = self._stops_w()
        return sum(self._is_due(run, stops_w) for run in self._runs)

    def next(self) -> PlannedRun | None:
        """The run that is due; `None` when the sweep is complete."""
        stops_w = self._stops_w()
        return next((run for run in self._runs if self._is_due(run, stops_w)), None)

    def add(self, finished: FinishedRun) -> None:
        """Add a run that has ended. One with trouble is due again; after the second, `hopeless` says why to stop."""
        if finished.trouble is None:
            self._counted[finished.run] = finished
            return
        run = finished.run
        self._failed[run] += 1
        if self._failed[run] >= _TRIES:
            self.hopeless = f"the run at {run.cap_w:g} W on GPU {run.gpus} failed {_TRIES} times: {finished.trouble}"

    def _is_due(self, run: PlannedRun, stops_w: Mapping[str, float]) -> bool:
        return run not in self._counted and run.cap_w >= stops_w[run.gpus]

    def _stops_w(self) -> dict[str, float]:
        """For each set the cap, watts, below which nothing is run: the highest that is too slow."""
        limit = self._plan.stop_slowdown
        times_s: dict[tuple[str, float], list[float]] = {}
        for run, finished in self._counted.items():
            if run.repeat != DISCARDED and finished.used:
                times_s.setdefault((run.gpus, run.cap_w), []).append(finished.used.time_s)
        stops_w = {}
        for one in self._plan.sets:
            # No mean before all repeats of the cap are done.
            mean_s = {
                cap_w: fmean(some)
                for cap_w in one.caps_w
                if len(some := times_s.get((one.label, cap_w), ())) == self._plan.repeats
            }
            longest_s = math.inf if limit is None else (1 + limit) * mean_s.get(one.baseline_w, math.inf)
            slow_w = (cap_w for cap_w, time_s in mean_s.items() if cap_w < one.baseline_w and time_s > longest_s)
            stops_w[one.label] = max(slow_w, default=-math.inf)
        return stops_w


def differences(before: SweepPlan, now: SweepPlan) -> list[str]:
    """What keeps a plan from going on with an earlier one's runs: sentences; none where it can."""
    found: list[str] = []
    for field in fields(SweepPlan):
        old, new = getattr(before, field.name), getattr(now, field.name)
        if field.name == "sets":
            found += _set_differences(before.sets, now.sets)
        elif old != new:
            found.append(f"{field.name} was {_said(old)} and is {_said(new)}")
    return found


def _set_differences(before: Sequence[GpuSet], now: Sequence[GpuSet]) -> Iterator[str]:
    labels = [[one.label for one in sets] for sets in (before, now)]
    if labels[0] != labels[1]:
        yield f"the GPU sets were {'; '.join(labels[0])} and are {'; '.join(labels[1])}"
        return
    for old, new in zip(before, now, strict=True):
        if old.baseline_w != new.baseline_w:
            yield f"the limit found on GPU {old.label} was {old.baseline_w:g} W and is {new.baseline_w:g} W"
        elif old.caps_w != new.caps_w:
            yield f"the caps were {_said(old.caps_w)} W and are {_said(new.caps_w)} W"
        elif old.gpus != new.gpus:
            yield f"GPU {old.label} was {_names(old)} and is {_names(new)}"


def _names(one: GpuSet) -> str:
    return ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in one.gpus)


def _said(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_said, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
