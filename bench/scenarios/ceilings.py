"""A budget's ceiling that falls and rises while a job is tuned, in any stage of its search: is the best cap under it
held, at which cost until then, and is what is said of the job true?

The controller, its sensors and the simulated card are real but for time, which is virtual; the truth is the published
curve's. A ceiling's first move comes when the stage has begun, by what the controller announces.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from autocap import events
from autocap.clock import Clock
from autocap.config import TuneConfig
from autocap.controller import Controller
from autocap.controller.known_curve import KnownCurve
from autocap.devices.model import profile_names, profiles
from autocap.devices.model.profiles import Profile
from autocap.events import Event, State
from autocap.metrics import Metric
from autocap.records import StepReading
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from bench.budget.curves import job_curve
from bench.simulation.jobs import Outcome, exact, tune

METRICS = (
    Metric(name="eds", k=2.0),  # the default
    Metric(name="eds", k=1.2),
    Metric(name="edp"),
    Metric(name="ed2p"),
    Metric(name="energy"),
    Metric(name="energy", max_slowdown=0.1),
    Metric(name="cost", energy_price=0.3, hour_price=0.2),
)
STRATEGIES = ("model", "model", "golden", "linear", "bandit", "bayesian")
_OPTIONS = {"linear": (("step", "20"), ("patience", "3"))}
STAGES = ("start", "baseline", "first trial", "later trial", "confirming", "holding")
PATTERNS = ("falls", "falls twice", "falls and rises", "falls and is gone", "moves by a watt or two")
_AFTER_S = 300.0  # of the last move, until the cap is judged
_LATEST_S = 600.0  # by when a stage that never comes is given up
_CLOSE_PCT, _FREE_PCT, _LOST_POINTS, _SURE, _SURE_SHARE = 0.5, 1.5, 2.0, 2.0, 0.95
_WALK = 3  # trials one after the other, each lower and dearer than the ceiling itself
_LEAST_S = 60.0  # a search counts as if it had taken so long: one that is over in 5 s has lost little
_LOOK_S = 5.0
_KNOWN = 0.006  # a relative error of the slowdown, of what a limit on it allows beyond two of them
_UNKNOWN_S = 2.0  # after a cap was set, until its slowdown is asked about


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingCase:
    """As drawn from a seed. moves: seconds from the stage's begin on, and watts, `None` for no ceiling."""

    seed: int
    profile: Profile
    metric: Metric
    strategy: str
    stage: str
    after: int  # trials that have begun, of a later one
    moves: tuple[tuple[float, float | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingRow:
    """What came of a case. came: whether its stage did. bound: whether a ceiling holds in the end; decided:
    whether the search had come to an end. held_w: the cap in the end; regret_pct: its true cost above that of the
    best that may be held then. lost_points: the mean slowdown while a search went on under a ceiling,
    above that of the ceiling or of the lowest cap that is
    within half a percent of the best below it, whichever is slower; `None` where none went on. walked:
    whether trials went down, each below and dearer than the ceiling. told_off: what is known of the caps in force, off
    the truth by so many of its standard errors, looked at every few seconds. tuning_s: of that search."""

    seed: int
    what: str
    came: bool
    bound: bool
    decided: bool
    held_w: float
    best_w: float
    regret_pct: float
    lost_points: float | None
    tuning_s: float
    walked: bool
    told_off: tuple[float, ...]
    story: str


def draw(seed: int) -> CeilingCase:
    """Ceilings from 0.72 to 1.3 of the best cap, inside the range of the card; the first of them falls, or is there
    before anything is measured."""
    rng = np.random.default_rng([seed, 39])

    def one_of(some: Sequence[str]) -> str:
        return some[int(rng.integers(len(some)))]

    names = profile_names()
    profile = profiles.load(names[int(rng.integers(len(names)))])
    metric, strategy = METRICS[int(rng.integers(len(METRICS)))], one_of(STRATEGIES)
    stage, pattern, after = one_of(STAGES), one_of(PATTERNS), int(rng.integers(2, 5))
    best_w = _best_w(profile, metric, profile.cap_range.default_w, profile.cap_range.default_w)
    low_w, found_w = profile.cap_range.min_w, profile.cap_range.default_w

    def ceiling_w() -> float:
        return round(float(np.clip(best_w * rng.uniform(0.72, 1.3), low_w + 2.0, 0.97 * found_w)), 2)

    first_w, at_s = ceiling_w(), float(rng.uniform(0.0, 4.0))
    moves: list[tuple[float, float | None]] = [(at_s, first_w)]
    later_s = at_s + float(rng.choice([5.0, 20.0, 90.0]))
    match pattern:
        case "falls twice":
            moves.append((later_s, max(low_w + 1.0, 0.85 * first_w)))
        case "falls and rises":
            moves.append((later_s, min(0.97 * found_w, 1.2 * first_w)))
        case "falls and is gone":
            moves.append((later_s, None))
        case "moves by a watt or two":
            moves += [
                (at_s + 5.0 * number, round(max(low_w, first_w + float(rng.uniform(-2.5, 2.5))), 2))
                for number in range(1, 30)
            ]
        case _:
            pass
    return CeilingCase(seed=seed, profile=profile, metric=metric, strategy=strategy, stage=stage, after=after,
                       moves=tuple(moves))  # fmt: skip


@dataclass(slots=True)
class _Watch:
    """Hears what the controller announces, and notes what holds at each sample."""

    case: CeilingCase
    trials: int = 0
    curve: KnownCurve | None = None
    at: list[tuple[float, float, State, KnownCurve | None]] = field(default_factory=list)

    def begun(self, event: Event) -> bool:
        """Whether the stage begins with an event."""
        self.trials += isinstance(event, events.TrialStarted)
        match self.case.stage:
            case "start":
                return True
            case "baseline":
                return isinstance(event, events.BaselineMeasured) or _enters(event, State.BASELINE)
            case "first trial":
                return self.trials >= 1
            case "later trial":
                return self.trials >= self.case.after
            case "confirming":
                return _enters(event, State.CONFIRMING)
            case _:
                return _enters(event, State.HOLDING)

    def counter(
        self, device: SimulatedDevice, clock: Clock, controller: Controller
    ) -> Callable[[], StepReading | None]:
        def steps() -> StepReading | None:
            self.at.append((clock.now(), controller.settings[0], controller.state, controller.curve))
            return device.steps(clock.now())

        return steps


def _enters(event: Event, state: State) -> bool:
    return isinstance(event, events.StateEntered) and event.state is state


def play(seed: int) -> CeilingRow:
    """Draw a case and tune its job."""
    return play_case(draw(seed))


def play_case(case: CeilingCase) -> CeilingRow:
    """What comes of a case."""
    watch = _Watch(case)
    outcome = tune(
        SimulatedJob(profile=case.profile),
        TuneConfig(metric=case.metric),
        case.strategy,
        options=_OPTIONS.get(case.strategy, ()),
        seed=case.seed,
        end_s=_LATEST_S,
        grants=case.moves,
        since=watch.begun,
        after_s=_AFTER_S,
        counter=watch.counter,
    )
    granted = [(one.t_s, one.ceiling_w) for one in outcome.log.events if isinstance(one, events.Granted)]
    held_w = _held_w(outcome)
    last_w = granted[-1][1] if granted else None
    found_w = case.profile.cap_range.default_w
    base_w = _base_w(outcome)
    best_w = _best_w(case.profile, case.metric, last_w or found_w, base_w, outcome.grid)
    lost, tuning_s = _lost(case, watch, granted, outcome)
    return CeilingRow(
        seed=case.seed,
        what=f"{case.profile.name} {case.metric.name}{case.metric.k or ''}{case.metric.max_slowdown or ''} "
        f"{case.strategy} {case.stage}",
        came=len(granted) == len(case.moves),
        bound=last_w is not None,
        decided=bool(watch.at) and watch.at[-1][2] is State.HOLDING,
        held_w=held_w,
        best_w=best_w,
        regret_pct=_regret_pct(case, held_w, best_w, base_w),
        lost_points=lost,
        tuning_s=tuning_s,
        walked=_walks(case, outcome),
        told_off=tuple(_told_off(case, watch)),
        story=outcome.story,
    )


def _cost(profile: Profile, metric: Metric, cap_w: float, base_w: float) -> float:
    return metric.cost(exact(profile, cap_w), exact(profile, base_w)).value


def _regret_pct(case: CeilingCase, held_w: float, best_w: float, base_w: float) -> float:
    """Of a cap that is slower than allowed, by how much it is."""
    held, base = exact(case.profile, held_w), exact(case.profile, base_w)
    if held_w < best_w and not case.metric.allows(held, base):
        return 100 * (held.period_s / base.period_s - 1 - (case.metric.max_slowdown or 0.0))
    costs = [_cost(case.profile, case.metric, cap_w, base_w) for cap_w in (held_w, best_w)]
    return 100 * (costs[0] / costs[1] - 1)


def _best_w(profile: Profile, metric: Metric, ceiling_w: float, base_w: float, grid: Sequence[float] = ()) -> float:
    """The best cap up to a ceiling by the published curve, watts, against the baseline at a cap; the ceiling where none
    is within the limit on slowdown."""
    low_w, found_w = profile.cap_range.min_w, profile.cap_range.default_w
    most_w = min(ceiling_w, found_w)
    caps_w = [cap_w for cap_w in (grid or np.arange(low_w, most_w, 1.0).tolist()) if cap_w < most_w]
    base = exact(profile, base_w)
    base = replace(base, period_rel_stderr=_KNOWN if metric.max_slowdown else 0.0)  # what is surely allowed
    allowed = [cap_w for cap_w in (*caps_w, most_w) if metric.allows(exact(profile, cap_w), base)] or [most_w]
    return min(allowed, key=lambda cap_w: _cost(profile, metric, cap_w, base_w))


def _lowest_good_w(case: CeilingCase, ceiling_w: float, base_w: float, grid: Sequence[float]) -> float:
    """The lowest cap that counts as the best under a ceiling, watts."""
    best_w = _best_w(case.profile, case.metric, ceiling_w, base_w, grid)
    most = (1 + _CLOSE_PCT / 100) * _cost(case.profile, case.metric, best_w, base_w)
    return min(
        (cap_w for cap_w in grid if cap_w < best_w and _cost(case.profile, case.metric, cap_w, base_w) <= most),
        default=best_w,
    )


def _base_w(outcome: Outcome) -> float:
    """The limit that the last baseline was measured at, watts."""
    baselines = [one for one in outcome.log.events if isinstance(one, events.BaselineMeasured | events.BaselineRefined)]
    return baselines[-1].measurement.setting[0] if baselines else outcome.device.gpus[0].cap_range.default_w


def _slow(profile: Profile, cap_w: float) -> float:
    return float(profile.slowdown(cap_w)) - 1


def _lost(
    case: CeilingCase, watch: _Watch, granted: Sequence[tuple[float, float | None]], outcome: Outcome
) -> tuple[float | None, float]:
    """In points, of a minute at least, and for how many seconds it was searched under a ceiling."""
    lost_s, all_s, found_w = 0.0, 0.0, case.profile.cap_range.default_w
    share = {
        ceiling_w: max(
            _slow(case.profile, min(ceiling_w, found_w)),
            _slow(case.profile, _lowest_good_w(case, ceiling_w, _base_w(outcome), outcome.grid)),
        )
        for _, ceiling_w in granted
        if ceiling_w is not None
    }
    for (t_s, cap_w, state, _), (next_s, *_) in pairwise(watch.at):
        known = [ceiling_w for from_s, ceiling_w in granted if from_s <= t_s]
        if not known or known[-1] is None or state not in (State.BASELINE, State.SEARCHING, State.CONFIRMING):
            continue
        all_s += next_s - t_s
        lost_s += (next_s - t_s) * (_slow(case.profile, cap_w) - share[known[-1]])
    return (100 * lost_s / max(all_s, _LEAST_S) if all_s else None), all_s


def _walks(case: CeilingCase, outcome: Outcome) -> bool:
    """Whether caps that were not tried before were set one after the other, each lower, and dearer than the ceiling
    is; of `linear` that is what was asked for. A trial that waits for what it may cost has not begun."""
    ceiling_w, before_w, steps, asked_w, tried = None, 0.0, 0, 0.0, set[float]()
    for event in outcome.log.events:
        if isinstance(event, events.Granted):
            ceiling_w, steps = event.ceiling_w, 0
        elif isinstance(event, events.TrialStarted):
            asked_w = event.setting
        elif isinstance(event, events.CapSet) and ceiling_w is not None and event.setting[0] == asked_w not in tried:
            costs = [_cost(case.profile, case.metric, cap_w, _base_w(outcome)) for cap_w in (asked_w, ceiling_w)]
            steps = steps + 1 if costs[0] > costs[1] and asked_w < min(before_w or ceiling_w, ceiling_w) else 0
            before_w = asked_w if steps else 0.0
            tried.add(asked_w)
            if steps >= _WALK and case.strategy != "linear":
                return True
    return False


def _told_off(case: CeilingCase, watch: _Watch) -> Iterator[float]:
    next_s, since_s, before_w, found_w = 0.0, 0.0, 0.0, case.profile.cap_range.default_w
    for t_s, cap_w, _, curve in watch.at:
        if cap_w != before_w:
            since_s, before_w = t_s, cap_w
        if curve is None or t_s < max(next_s, since_s + _UNKNOWN_S) or cap_w > found_w - 1:
            continue
        next_s = t_s + _LOOK_S
        known = job_curve(replace(curve, asked_w=curve.baseline_w).published(found_w), case.profile)
        said = float(np.interp(cap_w, known.caps_w, known.slowdown))
        error = float(np.interp(cap_w, known.caps_w, np.broadcast_to(known.slowdown_stderr, known.caps_w.shape)))
        yield (said - _slow(case.profile, cap_w)) / max(error, 1e-4)


def _held_w(outcome: Outcome) -> float:
    """The cap that was set last while the job ran, watts."""
    found_w = outcome.device.gpus[0].cap_range.default_w
    held = [event.setting[0] for event in outcome.log.events if isinstance(event, events.CapSet)]
    return held[-1] if held else found_w


def promises(rows: Sequence[CeilingRow]) -> Iterator[tuple[str, bool]]:
    """Each promise with its numbers, and whether it was kept."""
    came = [row for row in rows if row.came]
    for bound, most, where in ((True, _CLOSE_PCT, "under the ceiling"), (False, _FREE_PCT, "once there is none")):
        regrets = np.array([row.regret_pct for row in came if row.decided and row.bound is bound])
        if not regrets.size:
            continue
        close = int(np.sum(regrets <= most))
        yield (
            f"held cap within {most:g} % of the best {where}: {close} of {len(regrets)}, mean {regrets.mean():.2f} %, "
            f"worst {regrets.max():.2f} %",
            close == len(regrets) or not bound,
        )
    open_still = sum(not row.decided for row in came)
    yield f"not decided {_AFTER_S:g} s after the last move: {open_still} of {len(came)}", True
    lost = np.array([row.lost_points for row in came if row.lost_points is not None])
    if lost.size:
        dear = int(np.sum(lost > _LOST_POINTS))
        yield (
            f"time lost by searching under a ceiling, over the ceiling's or the best cap's: mean {lost.mean():.2f} "
            f"points, worst {lost.max():.2f}; above {_LOST_POINTS:g}: {dear} of {len(lost)}",
            not dear,
        )
    walked = sum(row.walked for row in came)
    yield f"went down the grid, cap by cap: {walked} of {len(came)}", not walked
    off = np.abs([value for row in came for value in row.told_off])
    if off.size:
        sure = float(np.mean(off <= _SURE))
        yield (
            f"slowdown said of the cap in force within {_SURE:g} of its errors: {100 * sure:.1f} % of {len(off)} looks",
            sure >= _SURE_SHARE,
        )


def promised(rows: Sequence[CeilingRow]) -> bool:
    return all(kept for _, kept in promises(rows))


def report(rows: Sequence[CeilingRow]) -> Iterator[str]:
    """The promises of all, and of the default strategy alone; then the cases that broke one."""
    for name, some in (("all strategies", rows), ("model", [row for row in rows if " model " in row.what])):
        yield f"{name}, {sum(row.came for row in some)} of {len(some)} whose stage came:"
        yield from (f"{'  ' if kept else '✗ '}{text}" for text, kept in promises(some))
    for row in rows:
        dear = row.lost_points is not None and row.lost_points > _LOST_POINTS
        far = row.decided and row.regret_pct > (_CLOSE_PCT if row.bound else _FREE_PCT)
        if row.came and (far or dear or row.walked):
            lost = "–" if row.lost_points is None else f"{row.lost_points:.1f} points in {row.tuning_s:.0f} s"
            yield (
                f"  seed {row.seed}: {row.what}, held {row.held_w:g} W, best {row.best_w:g} W, "
                f"{row.regret_pct:.2f} % dearer, lost {lost}{', walked' if row.walked else ''}"
            )
