"""When is a job's activity steady? Start-up, data loading and kernel autotuning differ from steady training."""

import math

import numpy as np

from autocap.measurement.energy import gpus_power_w
from autocap.measurement.metering import Metered
from autocap.measurement.tuning import TUNING
from autocap.measurement.window import Floats, Window
from autocap.progress import Mark


class SteadinessWatch:
    """Watches samples from the start of the job until two neighbouring spans of iterations look alike.

    Each span is at least 4 iterations and 1 s long; they are alike when the medians of their iteration times and
    their mean powers agree within 10 %, or within what their scatter explains.
    """

    def __init__(self, settings: tuple[float, ...]) -> None:
        self._settings = settings
        self._window = Window(settings)
        self._begun_s: float | None = None
        self._first: Mark | None = None
        self._latest: Mark | None = None  # of as many iterations as are a fair chance
        self._least_w, self._sum_w, self._read = math.inf, 0.0, 0
        self._unseen = False  # the energy by the latest mark was not known yet: no counter had moved since

    @property
    def fair_s(self) -> float:
        """Until when the job has had a fair chance to become steady, as far as the length of its iterations is known;
        -inf before the first has ended. That one is taken to have lasted since the beginning."""
        if self._begun_s is None or self._first is None or self._latest is None:
            return -math.inf
        iterations = self._latest.iterations - self._first.iterations
        if iterations <= 0:
            return self._first.t_s + TUNING.steady_fair_iterations * (self._first.t_s - self._begun_s)
        return self._first.t_s + TUNING.steady_fair_iterations * (self._latest.t_s - self._first.t_s) / iterations

    @property
    def is_at_first(self) -> bool:
        """Whether no iteration has ended yet while the devices compute, so that the first one may be under way."""
        return self._first is None and self._sum_w > TUNING.steady_computing_draw * self._read * self._least_w

    @property
    def iteration_s(self) -> float | None:
        """Mean time of the iterations seen, seconds; `None` where there were none."""
        iterations = self._window.iterations
        return self._window.span_s / iterations if iterations else None

    @property
    def iterations(self) -> float:
        """Iterations seen so far."""
        return self._window.iterations

    def add(self, metered: Metered) -> Window | None:
        """The window of what was already steady, to begin the baseline with; `None` while it is not steady."""
        self._window.add(metered)
        self._begun_s = metered.t_s if self._begun_s is None else self._begun_s
        draw_w = gpus_power_w(metered.sample)
        if draw_w is not None:
            self._least_w, self._sum_w, self._read = min(self._least_w, draw_w), self._sum_w + draw_w, self._read + 1
        if metered.marks:
            self._first = self._first or metered.marks[0]
            if self._latest is None or self._latest.iterations - self._first.iterations < TUNING.steady_fair_iterations:
                self._latest = metered.marks[-1]
        if metered.disturbed is not None:
            self._window = Window(self._settings)
            return None
        if not (metered.marks or self._unseen):
            return None
        self._unseen = False
        t_s, counts = self._window.marks()
        goes_on = np.append(np.diff(counts) > 0, True)[: counts.size]  # of a pause, only its end
        t_s, counts = t_s[goes_on], counts[goes_on]
        if t_s.size == 0:  # the mark came before the first reading
            return None
        second = _back(t_s, len(t_s) - 1)
        first = _back(t_s, second) if second is not None else None
        if first is None or second is None:
            return None
        self._window.trim(float(t_s[first]))
        edges_s = t_s[[first, second, -1]]
        energy_j = self._window.energy_at(edges_s)
        self._unseen = energy_j is None
        times = np.diff(t_s[first:]) / np.diff(counts[first:])
        earlier, later = times[: second - first], times[second - first :]
        if energy_j is None or not _alike(earlier, later):
            return None
        before_w, after_w = np.diff(energy_j) / np.diff(edges_s)
        if abs(after_w - before_w) > TUNING.steady_apart * before_w:
            return None
        slow = np.flatnonzero(earlier > TUNING.steady_slow * np.median(later))
        if slow.size:  # the tail of the start-up: it must not reach the baseline
            self._window.trim(float(t_s[first + slow[-1] + 1]))
        return self._window


def _back(t_s: Floats, end: int) -> int | None:
    """The mark at which the shortest span that is long enough and ends at mark `end` begins."""
    by_time = int(np.searchsorted(t_s, t_s[end] - TUNING.steady_span_s, side="right")) - 1
    start = min(end - TUNING.steady_span_iterations, by_time)
    return start if start >= 0 else None


def _alike(a: Floats, b: Floats) -> bool:
    """Whether the medians of two sets of iteration times agree (median's error: 1.25 σ/√n)."""
    middle_a, middle_b = float(np.median(a)), float(np.median(b))
    error = 1.25 * float(np.hypot(np.std(a) / np.sqrt(len(a)), np.std(b) / np.sqrt(len(b))))
    return abs(middle_b - middle_a) <= max(TUNING.steady_apart * middle_a, 2 * error)
