"""From samples and marks to a Measurement: whole iterations only.

In stretches of a window iterations took longer than in the rest of it, as other work came and went. Nothing makes a job
faster than it is when left alone, so what it does when left alone is the level that it keeps to outside of them. A
burst is told from scatter as a changed segment is in circular binary segmentation (Olshen et al. 2004): of all
stretches, that whose mean is farthest above the rest's, in standard errors; then the same in the rest.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autocap.measurement.batches import MIN_BATCHES, Clocks, batch_errors, cut
from autocap.measurement.energy import Joules
from autocap.measurement.metering import Metered, far_longer
from autocap.measurement.phases import Phases
from autocap.measurement.tuning import TUNING
from autocap.progress import Mark
from autocap.records import Measurement

Floats = NDArray[np.float64]
Places = NDArray[np.bool_]
_MOST = 8  # stretches of a window
_NORMAL = 1.4826  # standard deviations a median absolute deviation


def slower(times: Floats) -> Places:
    """Which of several spans of about as many iterations each, in their order, lie in such a stretch, shape (n,).

    times: per iteration, seconds, shape (n,). None where too few are left to tell what is usual, or where longer and
    shorter ones follow each other without stretches of either.
    """
    log = np.log(times)
    left_out = np.zeros(log.size, dtype=np.bool_)
    for _ in range(_MOST):
        found = _slowest(log[~left_out])
        if found is None:
            return left_out
        places = np.flatnonzero(~left_out)[found]
        left_out[places] = True
    return left_out


def cells(iterations: Floats) -> int:
    """How many spans a window of so many marks is to be looked at in; shape (marks,), cumulative."""
    return min(TUNING.burst_cells, iterations.size - 1)


def _slowest(log: Floats) -> slice | None:
    """The stretch that is surely slower than the rest, by most standard errors; `None` where there is none."""
    count = log.size
    if count < 2 * TUNING.burst_fewest_cells:
        return None
    spread = _scatter(log)
    sums = np.concatenate([[0.0], np.cumsum(log)])
    first, last = np.triu_indices(count + 1, 1)
    length = last - first
    fits = (length <= (1 - TUNING.burst_least_left) * count) & (count - length >= TUNING.burst_fewest_cells)
    first, last, length = first[fits], last[fits], length[fits]
    within = (sums[last] - sums[first]) / length
    rest = (sums[-1] - sums[last] + sums[first]) / (count - length)
    beyond = within - rest
    sigmas = beyond / (spread * np.sqrt(1 / length + 1 / (count - length)))
    best = int(np.argmax(np.where(beyond > TUNING.burst_longer, sigmas, -np.inf)))
    if beyond[best] <= TUNING.burst_longer or sigmas[best] < TUNING.burst_sigmas:
        return None
    return slice(int(first[best]), int(last[best]))


def _scatter(log: Floats) -> float:
    """Standard deviation of a span, by how neighbours differ, which bursts hardly change; of longer spans if that is
    more, as what one iteration takes may go with what the one before took."""
    found = []
    for length in (1, 2, 3):
        spans = log[: log.size // length * length].reshape(-1, length).mean(axis=1)
        if spans.size < TUNING.burst_fewest_cells:
            break
        apart = np.abs(np.diff(spans))
        found.append(_NORMAL * float(np.median(apart)) / np.sqrt(2) * np.sqrt(length))
    return max(*found, 1e-6) if found else np.inf


class Window:
    """Collects what is measured at one cap; `measure` gives the Measurement so far.

    settings: the cap per device while the window lasts. covers_s: of the time before it, each reading of power; all
    unless given.
    """

    def __init__(self, settings: tuple[float, ...], covers_s: float = math.inf) -> None:
        self.settings = settings
        self._phases = Phases(covers_s)
        self.broken: str | None = None
        self._energy: Joules | None = None  # since the first sample
        self._energy_t: list[float] = []
        self._energy_j: list[float] = []
        self._gpu_j: list[float] = []
        self._node_t: list[float] | None = None  # stamps of the machine's fresh readings, where it is read
        self._mark_t: list[float] = []
        self._mark_n: list[float] = []
        self._leaves_out = self._in_gap = False
        self._known_s = -math.inf  # since the last gap ended
        self._left_out = 0.0  # iterations
        self._binding = [0, 0]  # readings that said no, yes
        self._clocks = Clocks()
        # What the last look has left out, as other work made iterations longer: the longest stretch, and its share.
        self.burst_s = self.burst_share = 0.0

    @property
    def iterations(self) -> float:
        """Whole iterations of which the energy is known as well."""
        known = self._known
        return self._mark_n[known - 1] - self._mark_n[0] if known else 0.0

    @property
    def span_s(self) -> float:
        """Seconds that they took."""
        known = self._known
        return self._mark_t[known - 1] - self._mark_t[0] if known else 0.0

    @property
    def _known(self) -> int:
        """How many marks lie where the energy is known: its last reading may be older than the last of them."""
        return bisect_right(self._mark_t, self._energy_t[-1]) if self._energy_t else 0

    def add(self, metered: Metered, marks: Sequence[Mark] | None = None) -> None:
        """Add a sample. A missing reading or a throttled device breaks the window. marks: where only these of the
        sample's count."""
        sample, first = metered.sample, self._energy is None
        self._add_energy(metered)
        if sample.node is not None:
            self._node_t = self._node_t or []
            if metered.node_fresh and not first:
                self._node_t.append(sample.node.t_s)
        self.broken = metered.disturbed or self.broken
        if self._in_gap:
            self._in_gap, self._known_s = False, metered.t_s
        for reading in sample.readings:
            if reading.cap_binding is not None:
                self._binding[reading.cap_binding] += 1
        self._clocks.add(sample)
        for mark in metered.marks if marks is None else marks:
            if self._energy_t and mark.t_s >= max(self._energy_t[0], self._known_s):
                if self._leaves_out:
                    self._leaves_out = False
                    self._left_out = mark.iterations - self._mark_n[-1] if self._mark_n else 0.0
                self._mark_t.append(mark.t_s)
                self._mark_n.append(mark.iterations - self._left_out)

    def leave_out(self, metered: Metered) -> None:
        """Add a sample that says nothing of the cap: the count stands still from the last mark before it to the next
        one that is added, as in a pause; after a gap, to the next one since the energy is known again."""
        self._add_energy(metered)
        self._leaves_out = True
        self._in_gap |= not metered.known

    def _add_energy(self, metered: Metered) -> None:
        first = self._energy is None
        self._energy = Joules() if self._energy is None else self._energy + metered.gained
        if metered.known and (metered.moved or first):
            self._energy_t.append(metered.t_s)
            self._energy_j.append(self._energy.total)
            self._gpu_j.append(self._energy.gpus)
        if metered.gained.held:
            self._phases.add(metered.sample.readings, metered.gained.held)

    def marks(self) -> tuple[Floats, Floats]:
        """Times (seconds) and iteration counts of the marks, each of shape (marks,)."""
        return np.array(self._mark_t), np.array(self._mark_n)

    def energy_at(self, t_s: Floats) -> Floats | None:
        """Cumulative energy in joules at times of the window, any shape; `None` where it is not known yet."""
        if not self._energy_t or t_s.min() < self._energy_t[0] or t_s.max() > self._energy_t[-1]:
            return None
        return np.interp(t_s, self._energy_t, self._energy_j)

    def trim(self, start_s: float) -> None:
        """Forget what came before start_s, but for the point that energy is interpolated from."""
        first = bisect_left(self._mark_t, start_s)
        self._mark_t, self._mark_n = self._mark_t[first:], self._mark_n[first:]
        first = max(0, bisect_right(self._energy_t, start_s) - 1)
        self._energy_t, self._energy_j = self._energy_t[first:], self._energy_j[first:]
        self._gpu_j = self._gpu_j[first:]
        self._clocks.trim(start_s)
        self._phases.trim(start_s)

    def drifts(self) -> bool:
        """Whether the job gets faster or slower: the second half of the iterations took another time than the first, by
        more than both 1 % and three standard errors."""
        t, n = self.marks()
        spans_s, counts = np.diff(t), np.diff(n)
        usual = (counts > 0) & ~far_longer(spans_s, np.maximum(counts, 1e-9))
        times = spans_s[usual] / counts[usual]
        if times.size < 2 * TUNING.window_half_fewest:
            return False
        halves = np.array_split(times, 2)
        first, second = (float(half.mean()) for half in halves)
        error = math.hypot(*(float(half.std(ddof=1)) / math.sqrt(half.size) for half in halves))
        return abs(second - first) > max(TUNING.window_drift * first, 3 * error)

    def newer_half(self) -> None:
        """Forget the older half of the iterations."""
        self.trim(self._mark_t[len(self._mark_t) // 2])

    def shortage(self, min_batches: int = MIN_BATCHES) -> str | None:
        """What there is too little of for so many batches; `None` where there is enough.

        Each batch needs an iteration of its own, a look at the count of its own, as samples may be far apart, and,
        where the machine's power is read, a fresh reading of that: held ones would make the batches look alike.
        """
        if self._known < min_batches + 1:
            few = self.iterations < min_batches
            return f"{self.iterations:g} iterations" if few else f"{self._known - 1} readings of the iteration count"
        if self._node_t is not None:
            last = bisect_right(self._node_t, self._mark_t[self._known - 1])
            fresh = last - bisect_left(self._node_t, self._mark_t[0])
            if fresh < min_batches:
                return f"{fresh} readings of the node's power"
        return None

    def measure(self, min_batches: int = MIN_BATCHES) -> Measurement | None:
        """What the window shows so far; `None` where that is too little for so many batches."""
        if self.shortage(min_batches) is not None:
            return None
        t_s, iterations = (marks[: self._known] for marks in self.marks())
        unseen_w = self._phases.unseen_w(t_s, iterations)
        found = self._measured(self._energy_j, min_batches, unseen_w)
        more_counts = self._gpu_j[-1] != self._energy_j[-1]
        gpus = found and more_counts and self._measured(self._gpu_j, min_batches, unseen_w)
        return found.with_gpus(gpus) if found and gpus else found

    def _measured(self, curve_j: list[float], min_batches: int, unseen_w: float) -> Measurement | None:
        """The measurement by one energy curve; `None` with fewer whole iterations than batches, pauses left out.
        unseen_w: as Phases has it."""
        t, n = (marks[: self._known] for marks in self.marks())
        start_s, end_s = float(t[0]), float(t[-1])
        t, e, n = _without_pauses(t, np.interp(t, self._energy_t, curve_j), n)
        whole_s = t[-1] if t.size else 0.0
        (t, e, n), self.burst_s = _undisturbed(t, e, n, min_batches)
        self.burst_share = 1 - float(t[-1] / whole_s) if whole_s > 0 else 0.0
        if t.size < min_batches + 1 or not (t[-1] > t[0] and e[-1] > e[0]):
            return None
        if len(cut(n, min_batches)) - 1 < max(2, min_batches // 2):  # nearly all lies between two marks: no error shows
            return None
        errors = batch_errors(t, e, n, min_batches, unseen_w * float((t[-1] - t[0]) / (e[-1] - e[0])))
        iterations = float(n[-1] - n[0])
        duration_s = float(t[-1] - t[0])
        no, yes = self._binding
        return Measurement(
            setting=self.settings,
            start_s=start_s,
            duration_s=duration_s,
            iterations=iterations,
            period_s=duration_s / iterations,
            period_rel_stderr=errors.time,
            power_w=float(e[-1] - e[0]) / duration_s,
            power_rel_stderr=errors.power,
            energy_per_iteration_j=float(e[-1] - e[0]) / iterations,
            energy_rel_stderr=errors.energy,
            time_energy_corr=errors.correlation,
            cap_binding=None if no + yes == 0 else yes > no,
            sm_clock_hz=self._clocks.mean_hz(start_s, end_s),
            valid=self.broken is None,
            reason=self.broken,
        )


def _without_pauses(t_s: Floats, energy_j: Floats, iterations: Floats) -> tuple[Floats, ...]:
    """Cumulative time, energy and iterations without pauses: stretches in which the count stood still (recognised by
    the progress), or in which an iteration took far longer than the rest; all of shape (marks − pauses,)."""
    goes_on = np.diff(iterations) > 0
    goes_on[goes_on] = ~far_longer(np.diff(t_s)[goes_on], np.diff(iterations)[goes_on])
    curves = (t_s, energy_j, iterations)
    return tuple(np.concatenate([[0.0], np.cumsum(np.diff(curve)[goes_on])]) for curve in curves)


def _undisturbed(
    t_s: Floats, energy_j: Floats, iterations: Floats, min_batches: int
) -> tuple[tuple[Floats, ...], float]:
    """The same without the stretches in which other work made iterations longer, and how long the longest of these was;
    as they were where fewer than so many marks would be left."""
    curves = (t_s, energy_j, iterations)
    if t_s.size < 2:
        return curves, 0.0
    edges = cut(iterations, cells(iterations))
    slow = slower(np.diff(t_s[edges]) / np.diff(iterations[edges]))
    keep = np.repeat(~slow, np.diff(edges))
    if keep.all() or keep.sum() < min_batches:
        return curves, 0.0
    left = tuple(np.concatenate([[0.0], np.cumsum(np.diff(curve)[keep])]) for curve in curves)
    turns = np.flatnonzero(np.diff(np.concatenate([[False], slow, [False]])))
    lasted_s = t_s[edges][turns[1::2]] - t_s[edges][turns[::2]]
    return left, float(lasted_s.max())
