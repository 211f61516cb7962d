"""One fleet through one story under one rule, autocap's own sharing among them, and what came of it."""

from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from autocap.controller.known import latest
from autocap.controller.known_curve import KnownCurve
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.budget.orders import Order
from autocap.plugins.fleet.budget.shares import Curves, JobCurve, prior, share
from autocap.plugins.fleet.config import Policy
from autocap.records import Prediction
from bench.budget.curves import Searched, job_curve, truth
from bench.budget.fleet import GAIN_ERROR, STEP_S, Fleet, Floats, Indices, Periodic, Rule, Seen, Shared, Story

_GUARD_W = 1.0  # of the sum of as many sensors, times its root, as the manager reserves
_DRAWN_S, _QUANTILE = 10.0, 0.95  # over which, and of which readings, a draw counts
# A job has measured its slowdown once it was held for so many half seconds, nearly still (relative). The time of an
# iteration scatters by so much.
_WINDOW, _STILL, _JITTER = 20, 0.02, 0.01
_SEARCHES = 5  # of each kind
_DOUBT = 0.5  # of what caps do to it, with which a curve is believed that another run remembers


@dataclass(slots=True)
class _Lowering:
    order: Order
    set_s: float


class Ledgered:
    """fleet, story: the jobs. seed: of the searches that made their curves, and of the slowdowns measured. exact: the
    ledger is told the true curve of a job as soon as one is known, whatever was measured."""

    def __init__(self, fleet: Fleet, story: Story, policy: Policy, seed: int, *, exact: bool = False) -> None:
        self._fleet, self._story, self._seed, self._exact = fleet, story, seed, exact
        self._ledger = Ledger(story.budget_w, policy=policy)
        self._rng = np.random.default_rng([seed, 2])
        self._here: set[int] = set()
        self._known: dict[int, KnownCurve] = {}
        self._held: dict[int, tuple[Prediction, ...]] = {}
        self._lowering: dict[int, _Lowering] = {}
        self._draws_w: dict[int, deque[tuple[float, float]]] = {}
        # Of the last half seconds, newest last: what acts, and by how much it slows down; NaN where it did not train.
        self._acted_w = np.full((_WINDOW, len(fleet.kinds)), np.nan)
        self._slowed = self._acted_w.copy()
        self._read_s = -np.inf

    def decide(self, seen: Seen) -> tuple[Indices, Floats]:
        self._come_and_go(seen)
        self._ledger.budget(seen.t_s, seen.budget_w)
        self._ledger.reserve(_GUARD_W * float(np.sqrt(self._fleet.devices[seen.jobs].sum())))
        self._learn(seen)
        self._confirm(seen)
        orders = self._ledger.decide(seen.t_s).orders
        caps_w = dict[int, float]()
        for order in orders:
            job = int(order.name)
            caps_w[job] = order.cap_w
            if self._ledger[order.name].standing_w <= order.cap_w:
                self._ledger.confirm(order.name, order.serial)
            elif job not in self._lowering or self._lowering[job].order != order:
                self._lowering[job] = _Lowering(order, seen.t_s)
        return np.array(list(caps_w), dtype=np.intp), np.array(list(caps_w.values()))

    def _come_and_go(self, seen: Seen) -> None:
        if not seen.changed and self._here:
            return
        now = set(seen.jobs.tolist())
        for job in self._here - now:
            self._ledger.leave(seen.t_s, str(job))
            self._lowering.pop(job, None)
        for job in sorted(now - self._here):
            self._ledger.join(seen.t_s, str(job), self._prior(job), float(self._fleet.caps_w[job]))
            self._draws_w[job] = deque()
        self._here = now

    def _prior(self, job: int) -> JobCurve:
        devices = int(self._fleet.devices[job])
        return prior(float(self._fleet.lowest_w[job]), float(self._fleet.found_w[job]), devices=devices)

    def _learn(self, seen: Seen) -> None:
        """Curves that have become known, the jobs' own measurements, and what they draw."""
        story = self._story
        for job in seen.jobs[story.known_s[seen.jobs] <= seen.t_s].tolist():
            if job not in self._known:
                self._known[job] = self._remembered(job)
                self._held[job] = ()
                self._tell(job)
        if seen.t_s < self._read_s + 0.5:
            return
        self._read_s = seen.t_s
        for job in seen.jobs.tolist():
            self._see_draw(job, seen)
        self._measure(seen)

    def _measure(self, seen: Seen) -> None:
        """What jobs with a curve have measured of their own slowdown while their cap hardly moved."""
        fleet = self._fleet
        trains = fleet.there & ~fleet.paused
        self._acted_w = np.vstack([self._acted_w[1:], np.where(trains, fleet.acting_w, np.nan)])
        self._slowed = np.vstack([self._slowed[1:], np.where(trains, fleet.slowdown(), np.nan)])
        still = np.ptp(self._acted_w, axis=0) < _STILL * fleet.caps_w  # false where one is NaN
        for job in seen.jobs[still[seen.jobs]].tolist():
            if job in self._known:
                slowed = 1 + float(self._slowed[:, job].mean())
                iterations = _WINDOW / 2 / (slowed * self._story.curves.profiles[self._story.kinds[job]].default_time_s)
                error = _JITTER / float(np.sqrt(iterations))
                cap_w = float(self._acted_w[:, job].mean())
                time_noise, energy_noise = 1 + error * self._rng.standard_normal(2)
                held = Prediction(
                    setting=cap_w,
                    energy=float(self._story.curves.energy_at(int(self._story.kinds[job]), cap_w) * energy_noise),
                    time=float(slowed / self._search(job).baseline * time_noise),
                    energy_rel_stderr=error,
                    period_rel_stderr=error,
                    time_energy_corr=0.0,
                )
                self._held[job] = latest((*self._held[job], held), lambda one: one.setting)
                self._tell(job)
                self._acted_w[:, job] = np.nan

    def _see_draw(self, job: int, seen: Seen) -> None:
        """A cap that binds is drawn as far as it goes, whatever the mean draw is: only a job that draws less than even
        the lowest cap for long, and is held down by nothing, needs no more."""
        draws_w, draw_w = self._draws_w[job], float(seen.readings.power_w[job])
        draws_w.append((seen.t_s, draw_w))
        while draws_w[0][0] < seen.t_s - _DRAWN_S:
            draws_w.popleft()
        most_w = float(np.quantile([watts for _, watts in draws_w], _QUANTILE))
        if seen.readings.binding[job] or draw_w >= self._fleet.lowest_w[job]:
            draws_w.clear()
            self._ledger.drew(str(job), float(self._fleet.found_w[job]))
        elif seen.t_s >= draws_w[0][0] + _DRAWN_S - 0.6 and most_w < self._fleet.lowest_w[job]:
            self._ledger.drew(str(job), most_w)

    def _tell(self, job: int) -> None:
        """What is known of a job by now."""
        profile, devices = self._story.curves.profiles[int(self._story.kinds[job])], int(self._fleet.devices[job])
        known = self._known[job].bent_to(self._held[job])
        curve = replace(truth(profile), devices=devices) if self._exact else job_curve(known.points, profile, devices)
        self._ledger.curve(str(job), curve)

    def _search(self, job: int, kind: int | None = None) -> Searched:
        """One of those that were done of its kind, or of another."""
        kind = int(self._story.kinds[job]) if kind is None else kind
        return self._story.curves.searched(kind, _SEARCHES * self._seed + job % _SEARCHES)

    def _remembered(self, job: int) -> KnownCurve:
        """Of its own search, or of another job's that is taken for it: stretched to its card, and believed less."""
        believed, kind = int(self._story.believed[job]), int(self._story.kinds[job])
        known = self._search(job, believed).known
        if believed == kind:
            return known
        card, other = self._story.curves.profiles[kind].cap_range, self._story.curves.profiles[believed].cap_range
        wide = (card.default_w - card.min_w) / (other.default_w - other.min_w)

        def doubted(one: Prediction) -> Prediction:
            time_error = max(one.period_rel_stderr, _DOUBT * (1 - 1 / one.time))
            energy_error = max(one.energy_rel_stderr, _DOUBT * abs(1 / one.energy - 1))
            cap_w = card.min_w + wide * (one.setting - other.min_w)
            return replace(one, setting=cap_w, period_rel_stderr=time_error, energy_rel_stderr=energy_error)

        return replace(known, points=tuple(map(doubted, known.points)))

    def _confirm(self, seen: Seen) -> None:
        """Once a lower cap holds, and a reading shows no more, or has had the time to."""
        held = self._fleet.settled(seen.t_s)
        for job, lowering in list(self._lowering.items()):
            most_w = lowering.order.cap_w * 1.03 + 3
            if held[job] and (seen.readings.power_w[job] <= most_w or seen.t_s >= lowering.set_s + 2):
                self._ledger.confirm(lowering.order.name, lowering.order.serial)
                del self._lowering[job]


RULES = ("fair", "fair, true curves", "throughput", "energy", "uniform", "equal watts", "ear", "demand")
_DECIDE_EVERY = 2  # steps
_BEGUN_S = 10.0  # what a budget's own beginning takes is looked at as a drop of it
_JUDGED_S = 60.0  # with a curve
_AWAKE_S = 15.0  # after a pause: its watts had gone to others
_FEW = 2
_END_W = 1.0  # from a job's lowest or highest cap, which it cannot leave


@dataclass(slots=True)
class _Over:
    """Power above a budget: joules, and seconds in a row."""

    joules: float = 0.0
    longest_s: float = 0.0
    _since_s: float = 0.0

    def add(self, over_w: float) -> None:
        self._since_s = self._since_s + STEP_S if over_w > 0 else 0.0
        self.longest_s = max(self.longest_s, self._since_s)
        self.joules += max(0.0, over_w) * STEP_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """spread_pct: highest less lowest slowdown of the jobs that are judged, in points, median and 95th percentile over
    time; `None` where there never were two. worst_pct: the highest slowdown, the mean over time. optimum: the work,
    over what the policy allows with the true curves, `fair` for rules that are no policy; `None` for energy. work: of
    what would be done without a budget. over_j, over_s: power above the budget and the sensors' error.
    lowered_s, below_s: from the drop to caps that fit, and to power that does; `None` where it did not within the
    story, or the lowest caps are above it."""

    spread_pct: tuple[float, float] | None
    worst_pct: float
    optimum: float | None
    work: float
    over_j: float
    over_s: float
    lowered_s: float | None
    below_s: float | None


@dataclass(slots=True)
class _Book:
    spreads: list[float] = field(default_factory=list)
    worst: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    works: list[float] = field(default_factory=list)


def rule_of(name: str, fleet: Fleet, story: Story, seed: int) -> Rule:
    match name:
        case "uniform" | "equal watts":
            return Shared(fleet, alike=name == "equal watts")
        case "ear" | "demand":
            return Periodic(fleet, every_s=120.0 if name == "ear" else 90.0, uniformly=name == "demand")
        case "fair, true curves":
            return Ledgered(fleet, story, Policy.FAIR, seed, exact=True)
        case _:
            return Ledgered(fleet, story, Policy(name), seed)


def play(story: Story, name: str, seed: int) -> Result:
    """Every tenth of a second what the jobs do, every second what it is worth."""
    fleet = Fleet(story.curves, story.kinds, story.devices, seed)
    rule = rule_of(name, fleet, story, seed)
    policy = Policy(name) if name in set(Policy) else Policy.FAIR
    before, over, book = np.zeros(len(story.kinds), dtype=bool), _Over(), _Book()
    awake_s = np.zeros(len(story.kinds))
    lowered_s: float | None = None
    below_s: float | None = None
    changed = True
    for step in range(round(story.end_s / STEP_S)):
        t_s = step * STEP_S
        there = story.there(t_s)
        changed |= bool((there != before).any())
        gone = before & ~there
        fleet.there, before = there, there
        if gone.any():  # nobody uses them any more
            fleet.set_caps(t_s, np.flatnonzero(gone), fleet.lowest_w[gone])
        if step % 5 == 0:
            fleet.paused = story.paused(t_s)
            awake_s[fleet.paused] = t_s
        fleet.advance(t_s)
        budget_w = story.budget_at(t_s)
        if step % _DECIDE_EVERY == 0:
            jobs = np.flatnonzero(there)
            seen = Seen(t_s=t_s, jobs=jobs, readings=fleet.read(), budget_w=budget_w, changed=changed)
            fleet.set_caps(t_s, *rule.decide(seen))
            changed = False
        power_w = float(fleet.power_w().sum())
        error_w = GAIN_ERROR * budget_w / np.sqrt(max(1.0, story.devices[there].sum()))
        if t_s >= story.drop_s:
            charged_w = float(story.devices[there] @ fleet.caps_w[there])
            lowered_s = t_s - story.drop_s if lowered_s is None and charged_w <= budget_w else lowered_s
            below_s = t_s - story.drop_s if below_s is None and power_w <= budget_w else below_s
        elif t_s >= _BEGUN_S:
            over.add(power_w - budget_w - error_w)
            if step % 10 == 0:
                _note(book, fleet, story, t_s, awake_s, policy)
    return Result(
        spread_pct=(float(np.median(book.spreads)), float(np.quantile(book.spreads, 0.95))) if book.spreads else None,
        worst_pct=float(np.mean(book.worst)),
        optimum=None if policy is Policy.ENERGY else float(np.mean(book.ratios)),
        work=float(np.mean(book.works)),
        over_j=over.joules,
        over_s=over.longest_s,
        lowered_s=lowered_s,
        below_s=below_s,
    )


def _note(book: _Book, fleet: Fleet, story: Story, t_s: float, awake_s: Floats, policy: Policy) -> None:
    trains = fleet.there & ~fleet.paused & (t_s > awake_s + _AWAKE_S)
    slowdown = fleet.slowdown()
    known = trains & (story.known_s + _JUDGED_S <= t_s)
    free = (fleet.caps_w > fleet.lowest_w + _END_W) & (fleet.caps_w < fleet.found_w - _END_W)
    judged = slowdown[known & free]
    if judged.size >= _FEW:
        book.spreads.append(100 * float(np.ptp(judged)))
    if known.any():
        book.worst.append(100 * float(slowdown[known].max()))
    if not trains.any():
        return
    here = np.flatnonzero(fleet.there)
    best = share(_true(fleet, here), story.budget_at(t_s), policy)
    ideal = 1 / (1 + best.slowdown)
    done = 1 / (1 + slowdown[here])
    weights = story.devices[here] * trains[here]
    book.ratios.append(float(weights @ done) / float(weights @ ideal))
    book.works.append(float(weights @ done) / float(weights.sum()))


def _true(fleet: Fleet, jobs: Indices) -> Curves:
    tables, kinds = fleet.curves.tables, fleet.kinds[jobs]
    ones = np.ones(len(jobs))
    return Curves(
        caps_w=tables.caps_w[kinds],
        slowdown=tables.slowdown[kinds],
        energy=tables.energy[kinds],
        devices=fleet.devices[jobs],
        weight=ones,
        most_slowdown=ones * np.inf,
    )
