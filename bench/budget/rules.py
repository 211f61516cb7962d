"""What others share a budget by, without any job's curve: to compare with.

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

from autocap.plugins.fleet.budget.plan import uniform
from autocap.plugins.fleet.budget.shares import Curves
from bench.budget.fleet import Fleet, Floats, Indices, Readings

_SHARED_S = 10.0  # between two times at which those without a period of their own share anew, unless somebody came
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
