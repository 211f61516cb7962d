"""What jobs lose by a lower cap, as the allocator sees it: tables of many jobs at once, for numpy.

    curves = Curves.of([curve_of_one_job, …])

A job's curve may be measured, remembered, or a prior of its device model. It is taken as it is believed to be: the
budget is kept by caps, whatever the curves are, and to take those that are known less for steeper would only slow the
others down.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autocap.controller.known_curve import exponent_below

Floats = NDArray[np.float64]

_COLUMNS = ("caps_w", "slowdown", "energy", "slowdown_stderr", "energy_stderr")
POINTS = 64  # of a job's curve
_SURE = 2.0  # standard errors
_IDLE = 0.2  # of what a job draws, at rest
_BELOW = 8  # points, where it goes on below the lowest cap that is known
_COMPUTE_BOUND = 1 / 3  # the exponent of time against power that a job without a curve is taken to have: power ∝ clock³


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCurve:
    """One job. Arrays have shape (points,), caps ascend.

    caps_w: per device, watts, from the lowest that may be set to the one that the job asks for, above which it gains
    nothing by its own metric. slowdown: seconds per iteration over those at the job's baseline, less 1. energy: joules
    per iteration over those at its baseline. slowdown_stderr, energy_stderr: of these. devices: under this cap. weight:
    of its slowdown against others'; one of weight 2 is slowed down by half as much. most_slowdown: above which it is
    slowed down only where there is no other way left.

    Raises ValueError for what is no such curve.
    """

    caps_w: Floats
    slowdown: Floats
    energy: Floats
    slowdown_stderr: Floats | float = 0.0
    energy_stderr: Floats | float = 0.0
    devices: int = 1
    weight: float = 1.0
    most_slowdown: float = np.inf

    def __post_init__(self) -> None:
        if not (self.caps_w.shape == self.slowdown.shape == self.energy.shape and self.caps_w.ndim == 1):
            raise ValueError("a curve has one slowdown and one energy for each cap")
        if not self.caps_w.size or np.any(np.diff(self.caps_w) <= 0) or self.caps_w[0] <= 0:
            raise ValueError(f"a curve's caps are above 0 W and ascend, got {self.caps_w}")
        if not (np.isfinite(self.slowdown).all() and np.all(self.slowdown > -1) and np.all(self.energy > 0)):
            raise ValueError("a curve's slowdowns are above -1 and its energies above 0")
        if self.devices < 1 or not self.weight > 0 or not self.most_slowdown >= 0:
            raise ValueError(
                f"a job has a device or more, a weight above 0 and a limit of 0 or more, got {self.devices}, "
                f"{self.weight:g} and {self.most_slowdown:g}"
            )

    def up_to(self, cap_w: float) -> "JobCurve":
        """The part of it up to a cap, watts, such as what the job draws at most: more is of no use to it. The lowest
        cap stays."""
        top_w = max(cap_w, float(self.caps_w[0]))
        inside = self.caps_w < top_w
        if inside.all():
            return self
        at = [np.append(column[inside], np.interp(top_w, self.caps_w, column)) for column in self._columns()]
        return self._of(at)

    def at(self, caps_w: Floats) -> "JobCurve":
        """The curve at these caps, watts, ascending; at those outside of it as at its ends."""
        return self._of([caps_w, *(np.interp(caps_w, self.caps_w, column) for column in self._columns()[1:])])

    def _of(self, columns: Sequence[Floats]) -> "JobCurve":
        named: dict[str, Any] = dict(zip(_COLUMNS, columns, strict=True))  # Any: of the fields some are numbers
        return replace(self, **named)

    def down_to(self, cap_w: float) -> "JobCurve":
        """The curve from a cap on, watts, such as the lowest that may be set. Where it does not reach down there, time
        goes on as it came (`exponent_below`), and energy with it: that less power is drawn there than at the lowest cap
        that is known, for the time that it takes, nobody has seen, and below a cliff it is not so."""
        low_w = float(self.caps_w[0])
        if cap_w == low_w:
            return self
        if cap_w > low_w:
            top_w = max(cap_w, float(self.caps_w[-1]))
            inside = self.caps_w > cap_w
            at = [np.insert(column[inside], 0, np.interp(cap_w, self.caps_w, column)) for column in self._columns()]
            return self._of(at) if top_w > cap_w else self._of([column[:1] for column in at])
        caps_w = np.geomspace(cap_w, low_w, _BELOW, endpoint=False)
        far, times = np.log(low_w / caps_w), 1 + self.slowdown
        errors = np.broadcast_to(self.slowdown_stderr, self.caps_w.shape) / times
        exponent, off = exponent_below(self.caps_w.tolist(), times.tolist(), errors.tolist())
        grown = np.exp(exponent * far)
        time = times[0] * grown
        below = (caps_w, time - 1, self.energy[0] * grown, time * np.hypot(errors[0], off * far), np.full(_BELOW, 0.2))
        return self._of([np.concatenate(columns) for columns in zip(below, self._columns(), strict=True)])

    def _columns(self) -> tuple[Floats, ...]:
        return tuple(np.broadcast_to(getattr(self, name), self.caps_w.shape) for name in _COLUMNS)


def prior(min_w: float, draw_w: float, *, devices: int = 1) -> JobCurve:
    """A job of which nothing is known but what it draws: it draws its cap, computes all the time, and its clock is as
    the cube root of what it draws above idle, as power is the clock times the square of a voltage that follows it.
    That it takes less energy under a lower cap is not known: one that waits for memory, or falls off a cliff, takes
    more, so that its energy goes with its time. draw_w: a device's, watts; also the most it gets."""
    top_w = max(draw_w, min_w + 1e-6)
    caps_w = np.linspace(min_w, top_w, POINTS)
    share = (caps_w / top_w - _IDLE) / (1 - _IDLE)
    time = np.maximum(share, 1e-3) ** -_COMPUTE_BOUND
    return JobCurve(
        caps_w=caps_w,
        slowdown=time - 1,
        energy=time,
        slowdown_stderr=(time - 1) / 2,
        energy_stderr=0.2,
        devices=devices,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Many jobs. caps_w, slowdown, energy: shape (jobs, points); caps ascend along the second axis, slowdowns never
    rise. energy: what a job surely takes no more than, as nobody is to be at a cap for its joules that is not known to
    save any. devices, weight, most_slowdown: shape (jobs,)."""

    caps_w: Floats
    slowdown: Floats
    energy: Floats
    devices: Floats
    weight: Floats
    most_slowdown: Floats

    @classmethod
    def of(cls, jobs: Sequence[JobCurve], points: int = POINTS) -> "Curves":
        """All of them on as many points each."""
        shape = (len(jobs), points)
        caps_w, slowdown, energy = np.empty(shape), np.empty(shape), np.empty(shape)
        for row, job in enumerate(jobs):
            caps_w[row] = np.linspace(job.caps_w[0], job.caps_w[-1], points)
            slowdown[row] = np.interp(caps_w[row], job.caps_w, np.maximum.accumulate(job.slowdown[::-1])[::-1])
            energy[row] = np.interp(caps_w[row], job.caps_w, job.energy + _SURE * job.energy_stderr)
        return cls(
            caps_w=caps_w,
            slowdown=slowdown,
            energy=energy,
            devices=np.array([job.devices for job in jobs], dtype=float),
            weight=np.array([job.weight for job in jobs]),
            most_slowdown=np.array([job.most_slowdown for job in jobs]),
        )

    def __len__(self) -> int:
        return len(self.devices)

    def of_jobs(self, some: "NDArray[np.bool_] | NDArray[np.intp]") -> "Curves":
        """Of some jobs, by whether or which they are."""
        return Curves(**{one.name: getattr(self, one.name)[some] for one in fields(self)})

    def slowdown_at(self, caps_w: Floats) -> Floats:
        """At one cap a job, watts; shape (jobs,)."""
        return self._at(self.slowdown, caps_w)

    def energy_at(self, caps_w: Floats) -> Floats:
        """The same of the energy per iteration."""
        return self._at(self.energy, caps_w)

    def _at(self, values: Floats, caps_w: Floats) -> Floats:
        steps = self.caps_w.shape[1] - 1
        low_w, width_w = self.caps_w[:, 0], np.maximum(self.caps_w[:, -1] - self.caps_w[:, 0], 1e-12)
        place = np.clip((caps_w - low_w) / width_w, 0, 1) * steps  # points of a job are evenly spaced
        left = np.minimum(place.astype(int), max(0, steps - 1))
        right = np.minimum(left + 1, steps)
        rows = np.arange(len(self))
        share = place - left
        return np.asarray((1 - share) * values[rows, left] + share * values[rows, right])
