"""The jobs' curves: the truth, and what real searches on it have shown.

A search is the whole controller on the simulated device, sensor errors included (`bench.simulation`); five are done for
each curve and seed, which the jobs of one kind share.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.interpolate import PchipInterpolator

from autocap.clock import Clock
from autocap.config import TuneConfig
from autocap.controller import Controller
from autocap.controller.known_curve import KnownCurve
from autocap.devices.model.profiles import Profile
from autocap.events import State
from autocap.metrics import Metric
from autocap.plugins.fleet.budget.shares import Curves, Floats, JobCurve
from autocap.records import CapRange, Prediction, StepReading
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from bench.simulation.jobs import seed_profiles, tune
from bench.strategies.curves import CapCurve

METRIC = Metric(name="edp")  # its searches go to the middle of the range, where caps under a budget lie
_SEARCH_S = 400.0
_POINTS = 200
# What tables of cap, power and time do not say: the time of an iteration at the highest cap, and the draw at rest over
# that there.
_ITERATION_S, _IDLE_SHARE = 0.25, 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search has shown. known: the curve. baseline: the time per iteration that was measured at the limit found,
    over the true one: every slowdown that the job measures later is off by it."""

    known: KnownCurve
    baseline: float


class Kinds:
    """The curves that jobs may have; a job's kind is the number of one of them."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self.profiles = tuple(profiles)
        self._searched: dict[tuple[int, int], Searched] = {}

    def __len__(self) -> int:
        return len(self.profiles)

    @cached_property
    def tables(self) -> Curves:
        """The truth of all, a row a kind."""
        return Curves.of([truth(profile) for profile in self.profiles], _POINTS)

    def energy_at(self, kind: int, cap_w: float) -> float:
        """Joules per iteration of a kind at a cap, watts, over those at its default cap."""
        return float(np.interp(cap_w, self.tables.caps_w[kind], self.tables.energy[kind]))

    def draws_w(self, kinds: "np.ndarray[tuple[int], np.dtype[np.intp]]") -> Floats:
        """What a device of each kind draws at its default cap, watts."""
        at_default = np.array([profile.power_w(profile.cap_range.default_w) for profile in self.profiles])
        return np.asarray(at_default[kinds])

    def searched(self, kind: int, number: int) -> Searched:
        """One search of a kind. number: of the search; each has its own sensor error and noise."""
        if (kind, number) not in self._searched:
            self._searched[kind, number] = _search(self.profiles[kind], len(self) * number + kind)
        return self._searched[kind, number]


@cache
def seed_kinds() -> Kinds:
    """The twelve published ones."""
    return Kinds(seed_profiles())


def kinds_of(curves: Sequence[CapCurve]) -> Kinds:
    """Those of tables, as `bench strategies` has them."""
    return Kinds([_profile_of(curve) for curve in curves])


class _Tabled:
    """A `Shape` between the points of a table, as `CapCurve` has it."""

    def __init__(self, curve: CapCurve) -> None:
        relative = np.array(curve.caps_w) / curve.caps_w[-1]
        self._power_w = PchipInterpolator(relative, curve.powers_w)
        self._slowdown = PchipInterpolator(relative, np.array(curve.times_s) / curve.times_s[-1])

    def power_w(self, relative_cap: Floats) -> Floats:
        return np.asarray(self._power_w(relative_cap))

    def slowdown(self, relative_cap: Floats) -> Floats:
        return np.asarray(self._slowdown(relative_cap))


def _profile_of(curve: CapCurve) -> Profile:
    low_w, high_w = curve.caps_w[0], curve.caps_w[-1]
    return Profile(
        name=curve.name,
        gpu_name=curve.family,
        cap_range=CapRange(min_w=low_w, max_w=high_w, default_w=high_w),
        batch_size=1,
        default_time_s=_ITERATION_S,
        idle_w=_IDLE_SHARE * curve.powers_w[-1],
        shape=_Tabled(curve),
        source="a table",
    )


def truth(profile: Profile) -> JobCurve:
    """What caps really cost against the default one."""
    caps_w = np.linspace(profile.cap_range.min_w, profile.cap_range.default_w, _POINTS)
    time, energy = profile.time_s(caps_w), profile.energy_j(caps_w)
    return JobCurve(caps_w=caps_w, slowdown=time / time[-1] - 1, energy=energy / energy[-1])


def _search(profile: Profile, seed: int) -> Searched:
    known = list[KnownCurve]()

    def counter(device: SimulatedDevice, clock: Clock, controller: Controller) -> Callable[[], StepReading | None]:
        def steps() -> StepReading | None:
            if not known and controller.state is State.HOLDING and controller.curve is not None:
                known.append(controller.curve)
            return device.steps(clock.now())

        return steps

    job, config, found_w = SimulatedJob(profile=profile), TuneConfig(metric=METRIC), profile.cap_range.default_w
    tune(job, config, "model", seed=seed, end_s=_SEARCH_S, counter=counter, grants=[(0.0, found_w)])
    return Searched(known=known[0], baseline=known[0].baseline.period_s / float(profile.time_s(found_w)))


def job_curve(points: Sequence[Prediction], profile: Profile, devices: int = 1) -> JobCurve:
    """The allocator's view of what is known of a job, down to the lowest cap that may be set."""
    time = np.array([one.time for one in points])
    return JobCurve(
        caps_w=np.array([one.setting for one in points]),
        slowdown=time - 1,
        energy=np.array([one.energy for one in points]),
        slowdown_stderr=time * np.array([one.period_rel_stderr for one in points]),
        energy_stderr=np.array([one.energy * one.energy_rel_stderr for one in points]),
        devices=devices,
    ).down_to(profile.cap_range.min_w)
