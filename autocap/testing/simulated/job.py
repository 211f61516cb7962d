"""A looping data-parallel training job in virtual time: which power each GPU draws when, and when iterations end.

Iterations follow one another; each is a gap (usually none: a data stall, or the wait for the job's start) and then
work, whose speed is set by the slowest GPU. Inside the work power follows a waveform. All randomness is drawn per
iteration in blocks of fixed size, so that the job is the same however its time is cut into stretches.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.devices.model.profiles import Profile

Floats = NDArray[np.float64]

_BLOCK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of an iteration: its share of the time and its power, both relative to the others'."""

    share: float
    power: float


# Input, forward, backward, all-reduce and update.
DEEP = (
    Phase(share=0.10, power=0.35),
    Phase(share=0.30, power=1.05),
    Phase(share=0.52, power=1.20),
    Phase(share=0.08, power=0.60),
)
SHALLOW = (Phase(share=0.10, power=0.85), Phase(share=0.35, power=1.00), Phase(share=0.55, power=1.04))
NEARLY_FLAT = (Phase(share=0.35, power=0.995), Phase(share=0.65, power=1.003))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waveform:
    """Power within an iteration. bounds: shape (m+1,), from 0 to 1; power: shape (m,)."""

    bounds: Floats
    power: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Between two iterations the job does something else: a validation pass, a checkpoint.

    every: iterations between two of them, or, where `once`, the iteration before which it comes. duration_s: how long
    it takes. power: of the mean power while training at the cap that holds, 0 for what an idle card draws.
    """

    every: int
    duration_s: float
    power: float = 0.0
    once: bool = False

    def comes_before(self, index: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Before which iterations, counted from 0, it comes; shape of index."""
        here: NDArray[np.bool_] = index == self.every if self.once else (index > 0) & (index % self.every == 0)
        return here


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadChange:
    """From iteration `at` on, and before `until` where that is given, iterations take `time` times as long and draw
    `power` times as much."""

    at: int
    time: float = 1.0
    power: float = 1.0
    until: int | None = None

    def holds(self, index: NDArray[np.int64]) -> NDArray[np.bool_]:
        """In which iterations, counted from 0, it does; shape of index."""
        return (index >= self.at) & (index < (math.inf if self.until is None else self.until))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """What trains, and how regularly.

    jitter: relative standard deviation of the time of an iteration; jitter_correlation: of successive iterations.
    waveform: power within an iteration, or within each of its accumulation_steps alike parts; closing: phases that
    come once at the end of the iteration, such as an optimiser step (shares relative to one part's).
    stall_chance: how likely an iteration is to wait for data first, stall_s: for how long on average.
    warm_up_iterations: that the job takes to reach its speed; the first is warm_up_factor times as long as later ones.
    episodes: what comes between iterations. change: another batch size or resolution from some iteration on. bursts: of
    other load on the machine, which hold the iterations up for a while.
    start_s: when the first iteration begins. iterations: how many there are, `None` for a job without end.
    """

    profile: Profile
    jitter: float = 0.01
    jitter_correlation: float = 0.0
    waveform: tuple[Phase, ...] = DEEP
    accumulation_steps: int = 1
    closing: tuple[Phase, ...] = ()
    stall_chance: float = 0.0
    stall_s: float = 0.5
    start_s: float = 0.0
    iterations: int | None = None
    warm_up_iterations: int = 0
    warm_up_factor: float = 3.0
    episodes: tuple[Episode, ...] = ()
    change: WorkloadChange | None = None
    bursts: tuple[WorkloadChange, ...] = ()

    def relative_waveform(self) -> Waveform:
        """The waveform of a whole iteration, scaled to a mean of 1."""
        phases = self.waveform * self.accumulation_steps + self.closing
        shares = np.array([phase.share for phase in phases])
        powers = np.array([phase.power for phase in phases])
        bounds = np.concatenate(([0.0], np.cumsum(shares) / shares.sum()))
        bounds[-1] = 1.0
        return Waveform(bounds=bounds, power=powers * shares.sum() / (shares @ powers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """One GPU at a constant cap. time_s: per iteration, for its own part.

    waveform: power over that part, watts. wait_w: what it draws while it waits for slower GPUs; idle_w: while it has
    nothing to do.
    """

    time_s: float
    waveform: Waveform
    wait_w: float
    idle_w: float

    def stretched(self, period_s: float) -> Waveform:
        """Power over the whole iteration, once a slower GPU makes it period_s long."""
        if period_s <= self.time_s:
            return self.waveform
        bounds = np.append(self.waveform.bounds * (self.time_s / period_s), 1.0)
        return Waveform(bounds=bounds, power=np.append(self.waveform.power, self.wait_w))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStretch:
    """What happened between two moments.

    edges_s, power_w: per GPU, shapes (n+1,) and (n,), true power, piecewise constant. ends_s: when iterations were
    completed. progress: iterations done, with fractions, at each of ends_s and at the end of the stretch.
    """

    edges_s: tuple[Floats, ...]
    power_w: tuple[Floats, ...]
    ends_s: Floats
    progress: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Iterations:
    """Successive iterations, the last perhaps not completed; arrays of shape (n,).

    starts_s: when each begins. work_s: when its work does, after the gap. lengths_s: what its whole work takes.
    fractions: how much of the work was done before. ends_s: when it ends. powers: factors on the power while it
    works. gap_powers: the power in the gap before it, over that while training.
    """

    starts_s: Floats
    work_s: Floats
    lengths_s: Floats
    fractions: Floats
    ends_s: Floats
    powers: Floats
    gap_powers: Floats

    def power(self, waveform: Waveform, idle_w: float) -> tuple[Floats, Floats]:
        """Where power changes, and what it is from each such moment on."""
        offsets_s = (waveform.bounds[:-1] - self.fractions[:, None]) * self.lengths_s[:, None]
        phases_s = self.work_s[:, None] + np.maximum(offsets_s, 0.0)
        edges_s = np.column_stack((self.starts_s, phases_s)).ravel()
        mean_w = float(np.diff(waveform.bounds) @ waveform.power)
        gaps_w = np.maximum(idle_w, self.gap_powers * mean_w)
        working_w = np.maximum(idle_w, self.powers[:, None] * waveform.power)
        return edges_s, np.column_stack((gaps_w, working_w)).ravel()


class JobProgress:
    """The job at one moment, from begin_s on; `advance` moves it on."""

    def __init__(self, job: SimulatedJob, begin_s: float, rng: np.random.Generator) -> None:
        self.t_s = begin_s
        self.done = 0
        self._job = job
        self._rng = rng
        self._deviation = float(rng.standard_normal())
        self._drawn = 0
        # Of the current iteration and those after it: factors on its time and power, and the gaps before its work.
        self._factors: Floats = np.empty(0)
        self._powers: Floats = np.empty(0)
        self._gaps_s: Floats = np.empty(0)
        self._gap_powers: Floats = np.empty(0)
        self._fraction = 0.0
        self._draw()
        self._gaps_s[0] = max(0.0, job.start_s - begin_s)

    def fork(self) -> "JobProgress":
        """An independent job in the same state, with the same future."""
        twin = copy.copy(self)  # the arrays are only ever replaced, so they may be shared
        twin._rng = copy.deepcopy(self._rng)
        return twin

    def advance(self, until_s: float, paces: Sequence[Pace]) -> JobStretch:
        """Train up to a moment after the present one, each GPU at its pace; the slowest sets that of all."""
        period_s = max(pace.time_s for pace in paces)
        iterations, completed = self._iterations(until_s, period_s)
        edges_s, power_w = [], []
        for pace in paces:
            times_s, powers_w = iterations.power(pace.stretched(period_s), pace.idle_w)
            if len(iterations.starts_s) == completed:  # the job ended
                times_s = np.append(times_s, iterations.ends_s[-1] if completed else self.t_s)
                powers_w = np.append(powers_w, pace.idle_w)
            inside = int(np.searchsorted(times_s, until_s, side="left"))
            edges_s.append(np.append(times_s[:inside], until_s))
            power_w.append(powers_w[:inside])
        done = self.done + 1 + np.arange(completed, dtype=np.float64)
        self._move_to(until_s, iterations, completed)
        return JobStretch(
            edges_s=tuple(edges_s),
            power_w=tuple(power_w),
            ends_s=iterations.ends_s[:completed],
            progress=np.append(done, self.done + self._fraction),
        )

    def _iterations(self, until_s: float, period_s: float) -> tuple[_Iterations, int]:
        """The iterations that begin before until_s, and how many of them end by then."""
        while True:
            lengths_s = self._factors * period_s
            spans_s = self._gaps_s + lengths_s
            spans_s[0] -= self._fraction * lengths_s[0]
            ends_s = self.t_s + np.cumsum(spans_s)
            if ends_s[-1] > until_s:
                break
            self._draw()
        completed = int(np.searchsorted(ends_s, until_s, side="right"))
        begun = completed + 1
        if self._job.iterations is not None and begun > self._job.iterations - self.done:
            begun = completed = self._job.iterations - self.done
        starts_s = np.append(self.t_s, ends_s)[:begun]
        fractions = np.zeros(begun)
        fractions[:1] = self._fraction
        iterations = _Iterations(
            starts_s=starts_s,
            work_s=starts_s + self._gaps_s[:begun],
            lengths_s=lengths_s[:begun],
            fractions=fractions,
            ends_s=ends_s[:begun],
            powers=self._powers[:begun],
            gap_powers=self._gap_powers[:begun],
        )
        return iterations, completed

    def _move_to(self, until_s: float, iterations: _Iterations, completed: int) -> None:
        self._factors, self._gaps_s = self._factors[completed:], self._gaps_s[completed:].copy()
        self._powers, self._gap_powers = self._powers[completed:], self._gap_powers[completed:]
        self._fraction = 0.0
        if len(iterations.starts_s) > completed:
            elapsed_s = until_s - float(iterations.work_s[-1])
            worked = max(0.0, elapsed_s) / float(iterations.lengths_s[-1])
            self._fraction = min(float(iterations.fractions[-1]) + worked, 1.0)
            self._gaps_s[0] = max(0.0, -elapsed_s)
        self.done += completed
        self.t_s = until_s

    def _draw(self) -> None:
        """The next block of iterations: log-normal times of mean 1, first-order autocorrelated; and stalls."""
        job = self._job
        deviations = self._rng.standard_normal(_BLOCK) * np.sqrt(1.0 - job.jitter_correlation**2)
        if job.jitter_correlation:
            for place in range(_BLOCK):
                self._deviation = job.jitter_correlation * self._deviation + float(deviations[place])
                deviations[place] = self._deviation
        factors = np.exp(job.jitter * deviations - job.jitter**2 / 2)
        stalled = self._rng.random(_BLOCK) < job.stall_chance
        gaps_s = np.where(stalled, self._rng.exponential(job.stall_s, _BLOCK), 0.0)
        powers, gap_powers = np.ones(_BLOCK), np.zeros(_BLOCK)
        index = self._drawn + np.arange(_BLOCK)
        self._drawn += _BLOCK
        if job.warm_up_iterations:
            left = np.maximum(0.0, 1.0 - index / job.warm_up_iterations)
            factors = factors * (1.0 + (job.warm_up_factor - 1.0) * left)
        for episode in job.episodes:
            here = episode.comes_before(index)
            gaps_s, gap_powers = gaps_s + episode.duration_s * here, np.where(here, episode.power, gap_powers)
        for change in (*((job.change,) if job.change else ()), *job.bursts):
            changed = change.holds(index)
            factors = np.where(changed, factors * change.time, factors)
            powers = np.where(changed, powers * change.power, powers)
        self._factors = np.concatenate((self._factors, factors))
        self._powers = np.concatenate((self._powers, powers))
        self._gaps_s = np.concatenate((self._gaps_s, gaps_s))
        self._gap_powers = np.concatenate((self._gap_powers, gap_powers))
