"""One fleet through one story under one rule, and what came of it."""

from dataclasses import dataclass, field

import numpy as np

from autocap.plugins.fleet.budget.shares import Curves, share
from autocap.plugins.fleet.config import Policy
from bench.budget.fleet import GAIN_ERROR, STEP_S, Fleet, Floats, Indices
from bench.budget.ledgered import Ledgered
from bench.budget.rules import Periodic, Rule, Seen, Shared
from bench.budget.story import Story

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
