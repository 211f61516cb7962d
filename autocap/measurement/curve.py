"""How much energy had been used by when: between two samples it is taken to be used evenly."""

from bisect import bisect_right

from autocap.measurement.metering import Metered

_APART_S = 0.2  # of the points that are kept until the next mark
_MOST_POINTS = 10_000


class EnergyCurve:
    """Points of the energy since the run began, and of the seconds of which it is not known."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float, float]] = []  # t_s, energy_j, gap_s

    @property
    def start_s(self) -> float | None:
        """Its first point, seconds; `None` before there is one."""
        return self._points[0][0] if self._points else None

    def add(self, metered: Metered) -> None:
        """Another point."""
        point = (metered.t_s, metered.energy_j, metered.gap_s)
        if len(self._points) > 1 and metered.t_s - self._points[-2][0] < _APART_S:
            self._points[-1] = point
        else:
            self._points.append(point)
        if len(self._points) > _MOST_POINTS:  # no mark for long
            self._points = self._points[::2]

    def at(self, t_s: float) -> tuple[float, float]:
        """Joules by a moment, and the gaps until then, seconds; what is nearest outside of the curve."""
        after = bisect_right(self._points, t_s, key=lambda point: point[0])
        if after in (0, len(self._points)):
            _, energy_j, gap_s = self._points[min(after, len(self._points) - 1)]
            return energy_j, gap_s
        (t0_s, energy0_j, gap0_s), (t1_s, energy1_j, gap1_s) = self._points[after - 1 : after + 1]
        share = (t_s - t0_s) / (t1_s - t0_s)
        return energy0_j + share * (energy1_j - energy0_j), gap0_s + share * (gap1_s - gap0_s)

    def forget_before(self, t_s: float) -> None:
        """Keep no more than what is asked for from a moment on."""
        first = bisect_right(self._points, t_s - _APART_S, key=lambda point: point[0])
        if first > 0 and (first == len(self._points) or self._points[first][0] > t_s):
            first -= 1  # samples may be far apart: the moment lies between this point and the next
        del self._points[:first]
