"""Many jobs under caps, in steps of a tenth of a second, all at once: what they draw and how fast they are.

A cap that is set takes hold after a call of 10 to 20 ms and evenly over a lag of 50 to 200 ms, as on the simulated
device. A job that trains draws what its published curve says at the cap that acts; while it pauses, to validate or to
write a checkpoint, an idle card's draw. A reading is of one moment within an iteration, whose power follows the
simulated device's waveform, and has its card's gain error and noise.

What happens to a fleet: which jobs come and go when, when they pause, what is known of each, and the budget.

What others share a budget by, without any job's curve: to compare with.

- uniform: every device has the same share of its own limit found; equal watts: the same watts.
- ear: every device has its default share, the budget over all devices. Every 120 s, devices that draw less than they
  may give up what they do not draw, and what is free goes in equal parts to those that ask for more; where the power
  has passed the budget, all get the default share again (EAR, `EARGMPowerPeriod` and `cluster_powercap.c`).
- demand: every 90 s, watts move from devices that draw less than their cap to those held down by it (NVIDIA's power
  reservation steering; example values of DPS 0.7.6: loop of 90 s, window of 5 samples).

A job that comes has the lowest cap until the caps of the others hold that make room for it.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from autocap.plugins.fleet.budget.plan import uniform
from autocap.plugins.fleet.budget.shares import Curves
from autocap.testing.simulated.job import DEEP
from bench.budget.curves import Kinds

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]

STEP_S = 0.1
GAIN_ERROR, _NOISE = 0.02, 0.003  # standard deviations: of a card's sensor, and of a reading
_OVERSHOOT = 1.05  # how far peaks of power pass a cap that holds the average down, as on the simulated device


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What the sensors show, shape (jobs,), of a device of each: watts, and whether its cap holds the clocks down."""

    power_w: Floats
    binding: Bools


class Fleet:
    """curves: that there are. kinds: of each job, the number of its curve. devices: of each. Arrays have shape (jobs,);
    jobs that have not come yet, or are gone, draw nothing here."""

    def __init__(self, curves: Kinds, kinds: Indices, devices: Floats, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 1])
        self.curves, self._tables = curves, curves.tables
        ranges = [profile.cap_range for profile in curves.profiles]
        self.kinds, self.devices = kinds, devices
        self.lowest_w = np.array([one.min_w for one in ranges])[kinds]
        self.found_w = np.array([one.default_w for one in ranges])[kinds]
        self._idle_w = np.array([profile.idle_w for profile in curves.profiles])[kinds]
        self._powers_w = np.stack(
            [profile.power_w(self._tables.caps_w[row]) for row, profile in enumerate(curves.profiles)]
        )
        jobs = len(kinds)
        self.there, self.paused = np.zeros(jobs, dtype=bool), np.zeros(jobs, dtype=bool)
        self.caps_w = self.lowest_w.copy()  # as set; of a device that nobody uses the lowest
        self.acting_w = self.caps_w.copy()
        self._from_w, self._begin_s, self._end_s = self.caps_w.copy(), np.zeros(jobs), np.zeros(jobs)
        self._gain = 1 + GAIN_ERROR * self._rng.standard_normal(jobs)
        shares, levels = (np.array([getattr(part, name) for part in DEEP]) for name in ("share", "power"))
        self._levels, self._phases = levels / (shares @ levels / shares.sum()), np.cumsum(shares / shares.sum())

    def set_caps(self, t_s: float, jobs: Indices, caps_w: Floats) -> None:
        """Set caps, watts, of a device of each of these jobs."""
        self._from_w[jobs], self.caps_w[jobs] = self.acting_w[jobs], caps_w
        self._begin_s[jobs] = t_s + self._rng.uniform(0.010, 0.020, len(jobs))
        self._end_s[jobs] = self._begin_s[jobs] + self._rng.uniform(0.05, 0.20, len(jobs))

    def advance(self, t_s: float) -> None:
        """It is now so late, seconds."""
        way = np.clip((t_s - self._begin_s) / np.maximum(self._end_s - self._begin_s, 1e-9), 0, 1)
        self.acting_w = self._from_w + way * (self.caps_w - self._from_w)

    def settled(self, t_s: float) -> Bools:
        """Whose caps hold fully."""
        return np.asarray(t_s >= self._end_s)

    def power_w(self) -> Floats:
        """The mean draw of each job's devices together over an iteration, watts; shape (jobs,)."""
        return np.asarray(self.there * self.devices * np.where(self.paused, self._idle_w, self._training_w()))

    def slowdown(self) -> Floats:
        """By how much more time an iteration takes than at the limit found, less 1; whether it trains now or not."""
        return self._at(self._tables.slowdown)

    def read(self) -> Readings:
        """What the sensors show now."""
        mean_w, jobs = self._training_w(), len(self.kinds)
        level = self._levels[np.searchsorted(self._phases, self._rng.random(jobs))]
        room = np.maximum(0.0, _OVERSHOOT * self.acting_w / mean_w - 1)
        flat = np.minimum(1.0, room / (self._levels.max() - 1))
        power_w = np.where(self.paused, self._idle_w, mean_w * (1 + (level - 1) * flat))
        noise = 1 + _NOISE * self._rng.standard_normal(jobs)
        return Readings(
            power_w=power_w * self._gain * noise, binding=~self.paused & (self.acting_w < self.found_w - 0.5)
        )

    def _training_w(self) -> Floats:
        return self._at(self._powers_w)

    def _at(self, table: Floats) -> Floats:
        steps = table.shape[1] - 1
        place = (self.acting_w - self.lowest_w) / (self.found_w - self.lowest_w) * steps
        left = np.clip(place.astype(int), 0, steps - 1)
        share = place - left
        return np.asarray((1 - share) * table[self.kinds, left] + share * table[self.kinds, left + 1])


SEARCH_S = 60.0  # after which a job that came has a curve
_STAY_S, _GAP_S = 900.0, 60.0  # mean time that a job stays, and that its devices are free after it
_TRAIN_S, _PAUSE_S = (120.0, 400.0), (3.0, 25.0)  # between two pauses, and their length; of the jobs that pause
_PAUSING = 0.5  # of the jobs
_WRONG, _UNTUNED = 0.1, 0.1  # of the jobs: remembered as another one, never tuned
_DEVICES = (1, 1, 2, 4, 8)  # of a place, all of which its job takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """curves: that there are. Arrays have shape (jobs,). come_s, go_s: seconds. known_s: from when on a curve is known,
    infinite for a job that nobody tunes. believed: the number of the curve that it is remembered by; another than its
    own where that is wrong. pauses: begin and end of each, by job. budget_w, drop_s: watts, a quarter less from then.
    end_s: of it all."""

    curves: Kinds
    kinds: Indices
    believed: Indices
    devices: Floats
    come_s: Floats
    go_s: Floats
    known_s: Floats
    pauses: tuple[tuple[tuple[float, float], ...], ...]
    budget_w: float
    drop_s: float
    end_s: float

    def there(self, t_s: float) -> Bools:
        return np.asarray((self.come_s <= t_s) & (t_s < self.go_s))

    def paused(self, t_s: float) -> Bools:
        return np.array([any(begin <= t_s < end for begin, end in some) for some in self.pauses], dtype=bool)

    def budget_at(self, t_s: float) -> float:
        """Watts."""
        return self.budget_w if t_s < self.drop_s else 0.75 * self.budget_w


def story(curves: Kinds, places: int, share: float, seed: int, *, drop_s: float, end_s: float) -> Story:
    """As many jobs at a time as there are places, at most; they come and go. share: the budget over what the first of
    them draw at their default caps."""
    rng = np.random.default_rng([seed, places])
    come_s, go_s, devices_of = list[float](), list[float](), list[int]()
    for place in range(places):
        t_s = 0.0
        while t_s < end_s:
            devices_of.append(_DEVICES[place % len(_DEVICES)])
            come_s.append(t_s)
            t_s += float(rng.exponential(_STAY_S))
            go_s.append(t_s)
            t_s += float(rng.exponential(_GAP_S))
    jobs, count = len(come_s), len(curves)
    kinds = rng.integers(count, size=jobs)
    wrong, untuned = np.split(rng.permutation(jobs)[: round((_WRONG + _UNTUNED) * jobs)], [round(_WRONG * jobs)])
    believed = kinds.copy()
    believed[wrong] = (kinds[wrong] + rng.integers(1, count, size=len(wrong))) % count
    came = np.array(come_s)
    known_s = np.where(came > 0, came + SEARCH_S, 0.0)
    known_s[wrong] = came[wrong]  # remembered, as it seems
    known_s[untuned] = np.inf
    devices = np.array(devices_of, dtype=float)
    first = came == 0
    return Story(
        curves=curves,
        kinds=kinds,
        believed=believed,
        devices=devices,
        come_s=came,
        go_s=np.array(go_s),
        known_s=known_s,
        pauses=tuple(_pauses(rng, come, go) for come, go in zip(come_s, go_s, strict=True)),
        budget_w=share * float(devices[first] @ curves.draws_w(kinds[first])),
        drop_s=drop_s,
        end_s=end_s,
    )


def _pauses(rng: np.random.Generator, come_s: float, go_s: float) -> tuple[tuple[float, float], ...]:
    if rng.random() > _PAUSING:
        return ()
    out, t_s = list[tuple[float, float]](), come_s + float(rng.uniform(0, _TRAIN_S[1]))
    while t_s < go_s:
        end_s = t_s + float(rng.uniform(*_PAUSE_S))
        out.append((t_s, end_s))
        t_s = end_s + float(rng.uniform(*_TRAIN_S))
    return tuple(out)


_ROOM = 0.10  # above the draw, which who gives up watts keeps
_ROUNDS = 40
_CLOSE = 1e-6
_OLD = 0.95  # of what was seen, at the next sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """At a moment: the jobs there, what the sensors show of each device, and the budget, watts. changed: whether a job
    has come or gone since the last one."""

    t_s: float
    jobs: Indices
    readings: Readings
    budget_w: float
    changed: bool


class Rule(Protocol):
    """Shares a budget."""

    def decide(self, seen: Seen) -> tuple[Indices, Floats]:
        """Jobs, and the caps that their devices are to have now, watts."""


class Shared:
    """Caps of a formula, for all at once. fleet: for limits and devices."""

    def __init__(self, fleet: Fleet, *, alike: bool) -> None:
        self._fleet, self._alike = fleet, alike
        self._before: tuple[float, float] | None = None  # when, and of which budget

    def decide(self, seen: Seen) -> tuple[Indices, Floats]:
        if self._before is not None and not seen.changed and self._before[1] == seen.budget_w:
            return _NOBODY
        self._before = (seen.t_s, seen.budget_w)
        return _two_phases(self._fleet, seen.jobs, self.caps_w(seen.jobs, seen.budget_w))

    def caps_w(self, jobs: Indices, budget_w: float) -> Floats:
        """Of these jobs."""
        fleet = self._fleet
        if self._alike:
            return _level(fleet, jobs, budget_w)
        return uniform(_limits(fleet, jobs), budget_w).caps_w


_NOBODY = (np.empty(0, dtype=np.intp), np.empty(0))


class Periodic:
    """Watts go to those who ask for them, now and then. uniformly: whether the first share is uniform (demand), or the
    same watts (ear)."""

    def __init__(self, fleet: Fleet, *, every_s: float, uniformly: bool) -> None:
        self._fleet, self._every_s, self._uniformly = fleet, every_s, uniformly
        self._next_s, self._drawn_w = every_s, np.zeros(len(fleet.kinds))  # the highest of the last few samples
        self._mean_w = 0.0  # of all, over as many
        self._begun = False

    def decide(self, seen: Seen) -> tuple[Indices, Floats]:
        fleet, jobs = self._fleet, seen.jobs
        drawn_w = self._drawn_w = np.maximum(_OLD * self._drawn_w, seen.readings.power_w)
        power_w = float(fleet.devices[jobs] @ seen.readings.power_w[jobs])
        self._mean_w = _OLD * self._mean_w + (1 - _OLD) * power_w
        if seen.changed or not self._begun:
            self._begun = True
            return _two_phases(fleet, jobs, self._with_newcomers(jobs, seen.budget_w))
        if seen.t_s < self._next_s:
            return _NOBODY
        self._next_s += self._every_s
        if self._mean_w > seen.budget_w or self._charged_w(jobs) > seen.budget_w * (1 + _CLOSE):
            return _two_phases(fleet, jobs, self._first_w(jobs, seen.budget_w))
        caps_w = fleet.caps_w[jobs].copy()
        spare = ~seen.readings.binding[jobs] & (drawn_w[jobs] * (1 + _ROOM) < caps_w)
        caps_w = np.where(spare, np.maximum(fleet.lowest_w[jobs], drawn_w[jobs] * (1 + _ROOM)), caps_w)
        free_w = seen.budget_w - float(fleet.devices[jobs] @ caps_w)
        return _two_phases(fleet, jobs, self._spread(jobs, caps_w, seen.readings.binding[jobs], free_w))

    def _first_w(self, jobs: Indices, budget_w: float) -> Floats:
        if self._uniformly:
            return uniform(_limits(self._fleet, jobs), budget_w).caps_w
        return _level(self._fleet, jobs, budget_w)

    def _charged_w(self, jobs: Indices) -> float:
        return float(self._fleet.devices[jobs] @ self._fleet.caps_w[jobs])

    def _with_newcomers(self, jobs: Indices, budget_w: float) -> Floats:
        """Who has come gets its first share, for which the others give up evenly what they have above theirs."""
        fleet, first_w = self._fleet, self._first_w(jobs, budget_w)
        held_w = fleet.caps_w[jobs]
        wanted_w = np.maximum(held_w, first_w)
        over_w = float(fleet.devices[jobs] @ wanted_w) - budget_w
        extra_w = np.maximum(0.0, wanted_w - first_w)
        all_extra_w = float(fleet.devices[jobs] @ extra_w)
        given_up = 0.0 if over_w <= 0 else min(1.0, over_w / max(all_extra_w, 1e-9))
        return np.asarray(wanted_w - given_up * extra_w)

    def _spread(self, jobs: Indices, caps_w: Floats, asking: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
                free_w: float) -> Floats:  # fmt: skip
        """Free watts in equal parts to the devices that ask, up to their limits."""
        fleet, caps_w = self._fleet, caps_w.copy()
        for _ in range(_ROUNDS):
            asks = asking & (caps_w < fleet.found_w[jobs] - 1e-6)
            devices = float(fleet.devices[jobs] @ asks)
            if free_w < 1e-3 or not devices:
                break
            more_w = np.minimum(free_w / devices, fleet.found_w[jobs] - caps_w) * asks
            caps_w = caps_w + more_w
            free_w -= float(fleet.devices[jobs] @ more_w)
        return caps_w


def _two_phases(fleet: Fleet, jobs: Indices, caps_w: Floats) -> tuple[Indices, Floats]:
    """Those that change. Lowered and raised at once: none of these rules waits for what it has lowered."""
    changed = np.abs(caps_w - fleet.caps_w[jobs]) > 1e-9
    return jobs[changed], caps_w[changed]


def _level(fleet: Fleet, jobs: Indices, budget_w: float) -> Floats:
    """The same watts for every device, but no more than its limit found and no less than its lowest cap."""
    low, high = 0.0, float(np.max(fleet.found_w[jobs], initial=0.0))
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        caps_w = np.clip(middle, fleet.lowest_w[jobs], fleet.found_w[jobs])
        low, high = (low, middle) if float(fleet.devices[jobs] @ caps_w) > budget_w else (middle, high)
    return np.asarray(np.clip(low, fleet.lowest_w[jobs], fleet.found_w[jobs]))


def _limits(fleet: Fleet, jobs: Indices) -> Curves:
    """Their lowest caps and the limits found, as a table; nothing is known of what they cost."""
    caps_w = np.stack([fleet.lowest_w[jobs], fleet.found_w[jobs]], axis=1)
    ones = np.ones(len(jobs))
    return Curves(
        caps_w=caps_w,
        slowdown=np.zeros_like(caps_w),
        energy=np.ones_like(caps_w),
        devices=fleet.devices[jobs],
        weight=ones,
        most_slowdown=ones * np.inf,
    )
