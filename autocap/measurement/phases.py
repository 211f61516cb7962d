"""How well readings of power that each cover a part of the time show what an iteration uses.

A sensor may look at 25 of each 100 ms (Yang et al. 2024, "Accurate and convenient energy measurements for GPUs"). Where
an iteration takes nearly a whole number of its updates, the readings come at the same few places of each iteration, and
agree with each other, whatever is drawn between them. Counters and sensors that look all the time do not have that.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autocap.records import Reading

Floats = NDArray[np.float64]
_SWING = 0.3  # of the mean power: what may lie between two readings that are alike, as host and GPU work in turn
_ONE = 0.25  # how far from one the count between two marks may be, for it to be one iteration


class Phases:
    """Collects the readings of devices whose energy their power tells. covers_s: of the time before its stamp, each."""

    def __init__(self, covers_s: float) -> None:
        self._covers_s = covers_s
        self._seen: dict[int, tuple[list[float], list[float]]] = {}  # by device: stamps, and watts

    def add(self, readings: Sequence[Reading], held_j: Sequence[float]) -> None:
        """held_j: what each device has used since the last sample by its power, joules; 0 where a counter tells."""
        for device, (reading, joules) in enumerate(zip(readings, held_j, strict=True)):
            if joules > 0 and reading.power_w is not None:
                stamps, watts = self._seen.setdefault(device, ([], []))
                if not stamps or reading.t_s > stamps[-1]:
                    stamps.append(reading.t_s)
                    watts.append(reading.power_w)

    def trim(self, start_s: float) -> None:
        """Forget what came before start_s."""
        for stamps, watts in self._seen.values():
            first = bisect_left(stamps, start_s)
            del stamps[:first], watts[:first]

    def unseen_w(self, t_s: Floats, iterations: Floats) -> float:
        """How far the mean power of all may be off as places of an iteration were not seen, a standard error, watts.

        t_s, iterations: of marks, shape (marks,), cumulative. Between two places that follow each other, the power may
        be anything between the two readings, and beyond; what the readings themselves cover is seen.
        """
        if not self._seen:  # as nearly always
            return 0.0
        spans_s = np.diff(t_s)
        single = np.abs(np.diff(iterations) - 1) < _ONE
        if not single.any():
            return 0.0
        covered = self._covers_s / float(np.median(spans_s[single]))
        found = 0.0
        for stamps, watts in self._seen.values():
            at_s = np.array(stamps) - self._covers_s / 2
            span = np.searchsorted(t_s, at_s, side="right") - 1
            within = (span >= 0) & (span < spans_s.size)
            within[within] = single[span[within]]
            span = span[within]
            if span.size == 0:
                continue
            place = (at_s[within] - t_s[span]) / spans_s[span]
            order = np.argsort(place)
            place, power = place[order], np.array(watts)[within][order]
            gaps = np.diff(place, append=place[0] + 1)
            steps = np.hypot(np.diff(power, append=power[0]), _SWING * power.mean())
            found += float(np.sqrt(np.sum((np.maximum(gaps - covered, 0.0) * steps) ** 2) / 12))
        return found
