"""The jobs' curves: the truth, and what real searches on it have shown.

A search is the whole controller on the simulated device, sensor errors included (`bench.simulation`); five are done for
each curve and seed, which the jobs of one kind share.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from autocap.budget.curves import Curves, Floats, JobCurve
from autocap.clock import Clock
from autocap.config import TuneConfig
from autocap.controller import Controller
from autocap.controller.known_curve import KnownCurve
from autocap.devices.model.profiles import Profile
from autocap.devices.simulated.device import SimulatedDevice, SimulatedJob
from autocap.events import State
from autocap.metrics import Metric
from autocap.records import Prediction, StepReading
from bench.simulation.jobs import seed_profiles, tune

METRIC = Metric(name="edp")  # its searches go to the middle of the range, where caps under a budget lie
_SEARCH_S = 400.0
_POINTS = 200


def profiles() -> list[Profile]:
    return seed_profiles()


def truth(profile: Profile) -> JobCurve:
    """What caps really cost against the default one."""
    caps_w = np.linspace(profile.cap_range.min_w, profile.cap_range.default_w, _POINTS)
    time, energy = profile.time_s(caps_w), profile.energy_j(caps_w)
    return JobCurve(caps_w=caps_w, slowdown=time / time[-1] - 1, energy=energy / energy[-1])


@cache
def true_tables() -> Curves:
    """All of them, a row a profile."""
    return Curves.of([truth(profile) for profile in profiles()], _POINTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search has shown. known: the curve. baseline: the time per iteration that was measured at the limit found,
    over the true one: every slowdown that the job measures later is off by it."""

    known: KnownCurve
    baseline: float


@cache
def searched(kind: int, number: int) -> Searched:
    """Of the curve of that number, under a budget that has room for its baseline. number: of the search; each has its
    own errors."""
    profile, known = profiles()[kind], list[KnownCurve]()

    def counter(device: SimulatedDevice, clock: Clock, controller: Controller) -> Callable[[], StepReading | None]:
        def steps() -> StepReading | None:
            if not known and controller.state is State.HOLDING and controller.curve is not None:
                known.append(controller.curve)
            return device.steps(clock.now())

        return steps

    job, config, found_w = SimulatedJob(profile=profile), TuneConfig(metric=METRIC), profile.cap_range.default_w
    seed = len(profiles()) * number + kind
    tune(job, config, "model", seed=seed, end_s=_SEARCH_S, counter=counter, grants=[(0.0, found_w)])
    return Searched(known=known[0], baseline=known[0].baseline.period_s / float(profile.time_s(found_w)))


def job_curve(points: Sequence[Prediction], profile: Profile, devices: int = 1) -> JobCurve:
    """The allocator's view of what is known of a job, down to the lowest cap that may be set."""
    time = np.array([one.time for one in points])
    return JobCurve(
        caps_w=np.array([one.cap_w for one in points]),
        slowdown=time - 1,
        energy=np.array([one.energy for one in points]),
        slowdown_stderr=time * np.array([one.period_rel_stderr for one in points]),
        energy_stderr=np.array([one.energy * one.energy_rel_stderr for one in points]),
        devices=devices,
    ).down_to(profile.cap_range.min_w)


def draws_w(kinds: "np.ndarray[tuple[int], np.dtype[np.intp]]") -> Floats:
    """What a device of each kind draws at its default cap, watts."""
    at_default = np.array([profile.power_w(profile.cap_range.default_w) for profile in profiles()])
    return np.asarray(at_default[kinds])
