"""What the clocks of a job that nobody tunes say of its slowdown: who computes all the time is slowed down as the SM
clock is, which the driver shows, and nobody by more."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autocap.plugins.fleet.budget.curves import JobCurve
from autocap.records import Reading

_SAME_W = 1.0  # caps this near count as one
_FEWEST, _MOST = 15, 150  # readings of a cap until it counts, and over which its clock is averaged
OFF_HZ = 7.5e6  # of a clock that is shown in steps of 15 MHz, from the one that runs
_KEPT = 8  # caps, the latest


@dataclass(slots=True)
class _Seen:
    cap_w: float
    readings: int = 0
    hz: float = 0.0


@dataclass(slots=True)
class Clocks:
    """The mean SM clock of a job's devices at each cap that they were held at."""

    _seen: list[_Seen] = field(default_factory=list)

    def see(self, cap_w: float, readings: Sequence[Reading]) -> bool:
        """Take in readings of all devices under a cap, watts; whether it is time to ask what is known. Devices at rest,
        and those that show no clock, say nothing."""
        clocks_hz = [one.sm_clock_hz for one in readings if one.sm_clock_hz and one.utilisation != 0]
        if len(clocks_hz) < len(readings):
            return False
        at = next((one for one in self._seen if abs(one.cap_w - cap_w) <= _SAME_W), None) or _Seen(cap_w)
        self._seen = [*(one for one in self._seen if one is not at), at][-_KEPT:]
        at.readings += 1
        at.cap_w += (cap_w - at.cap_w) / min(at.readings, _MOST)
        at.hz += (min(clocks_hz) - at.hz) / min(at.readings, _MOST)  # the slowest keeps the others waiting
        return at.readings % _FEWEST == 0

    def curve(self, worst: JobCurve, most_hz: float | None = None, *, off_hz: float = 0.0) -> JobCurve | None:
        """The worst job's, but as the clocks say between the highest and the lowest cap at which they were seen; `None`
        where that is one cap. Nothing is slowed down by more than the worst, and below what was seen as that is.
        most_hz: that the devices can run at, which stands for what was never seen at the highest cap, or nearly so.
        off_hz: by which clocks may be lower than they are shown."""
        seen = sorted((one for one in self._seen if one.readings >= _FEWEST), key=lambda one: -one.cap_w)
        top_w = float(worst.caps_w[-1])
        if seen and most_hz is not None and seen[0].cap_w < top_w - _SAME_W:
            seen.insert(0, _Seen(top_w, hz=max(most_hz, seen[0].hz)))
        if len(seen) < 2:
            return None
        top_hz = seen[0].hz if most_hz is None else max(seen[0].hz, min(most_hz, seen[0].hz + 2 * OFF_HZ))
        log_worst = np.log1p(worst.slowdown)
        far = np.interp([one.cap_w for one in seen], worst.caps_w, log_worst)
        slower = [float(far[0])]
        for one, before, here in zip(seen[1:], far[:-1], far[1:], strict=True):
            shown = far[0] + math.log(top_hz / (one.hz + OFF_HZ - off_hz))
            slower.append(float(np.clip(shown, slower[-1], slower[-1] + here - before)))
        log_time = np.interp(log_worst, far, slower) + np.minimum(log_worst - far[0], 0)
        time = np.exp(log_time + np.maximum(log_worst - far[-1], 0))
        return replace(worst, slowdown=time - 1, energy=time, slowdown_stderr=(time - 1) / 2)
