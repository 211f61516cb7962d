"""One GPU looked at for as long as its sensors need to show what they do: for `autocap doctor`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autocap.clock import Clock
from autocap.devices.nvml.card import Card, PowerQuery
from autocap.devices.nvml.library import Library, NvmlGpu
from autocap.devices.nvml.probe import POLL_S, WATCH_S, Poll, SensorProbe, better, conclude

Floats = NDArray[np.float64]
_AVERAGE_S = 1.0  # what nvmlDeviceGetPowerUsage averages over on the cards where it does
_MOMENTS_S, _LATE_S = (0.02, 0.1, 0.2), (0.0, 0.05, 0.1)  # what else it may average over; how late it may show it
_PLAINLY = 2.0  # times nearer to the one than to the other
_CLOSE_S = 0.05  # from poll to poll: with fewer nothing is told of averages
_VARIES = 0.02  # of the mean power, and watts: less is taken for the sensor's noise
_VARIES_W = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """computing: how many processes compute on it; `None` where that is not told."""

    gpu: NvmlGpu
    computing: int | None


def facts(library: Library, index: int, driver: str) -> GpuFacts:
    """Of the GPU of that number. Raises NvmlError where it cannot be read."""
    gpu = library.gpu(index, driver)
    pids = library.compute_pids(gpu.uuid)
    return GpuFacts(gpu=gpu, computing=None if pids is None else len(pids))


@dataclass(slots=True)
class Watch:
    """What was seen of the sensors of one GPU so far, also while it is still watched, by another thread.

    begun_s: when the first question was asked. usage_w: what nvmlDeviceGetPowerUsage said at each poll.
    """

    begun_s: float = 0.0
    source: PowerQuery | None = None
    polls: list[Poll] = field(default_factory=list)
    usage_w: list[float | None] = field(default_factory=list)

    def run(self, library: Library, gpu: NvmlGpu, clock: Clock, watch_s: float) -> None:
        """Watch for so many seconds. Raises DeviceError where the GPU offers no power, or is lost."""
        self.begun_s = clock.now()
        card = Card(library, gpu.uuid, gpu.where, clock)
        self.source = card.source
        while clock.now() < self.begun_s + watch_s:
            power_w, counter_j = card.raw_power()[0], card.counter_j()
            self.usage_w.append(card.usage_w())
            self.polls.append(Poll(t_s=clock.now(), power_w=power_w, counter_j=counter_j))
            library.pause(POLL_S)

    def so_far(self) -> "Watch":
        """A copy that grows no more."""
        polls = list(self.polls)
        return replace(self, polls=polls, usage_w=self.usage_w[: len(polls)])

    @property
    def usual_s(self) -> float:
        """The usual time from one poll to the next."""
        return median([new.t_s - old.t_s for old, new in pairwise(self.polls)] or [0.0])

    @property
    def slowest_s(self) -> float:
        """The longest time from one poll to the next; to the only one, where there is one."""
        times_s = [poll.t_s for poll in self.polls]
        return max(new - old for old, new in pairwise(times_s if len(times_s) > 1 else [self.begun_s, *times_s]))

    def probe(self) -> SensorProbe | None:
        """What the sensors do; `None` before the first poll. As when a run begins, a counter that agreed with the
        readings once is one that counts."""
        polls, source = self.polls, self.source
        if source is None or not polls:
            return None
        found, begun_s = conclude(source, polls), polls[0].t_s
        for number in range(int((polls[-1].t_s - begun_s) / WATCH_S)):
            part = [poll for poll in polls if 0 <= poll.t_s - begun_s - number * WATCH_S < WATCH_S]
            found = found if not part else better(found, conclude(source, part))
        return found

    def is_average(self) -> bool | None:
        """Whether readings are means of the last second, and not power as it is, by the energy counter; `None` where
        that does not show, as while power does not change."""
        probe = self.probe()
        if probe is None or probe.counter_trouble is not None:
            return None
        seen = _moves([(poll.t_s, poll.counter_j) for poll in self.polls])
        return self._is_average([poll.power_w for poll in self.polls], *seen)

    def usage_is_average(self) -> bool | None:
        """Whether nvmlDeviceGetPowerUsage shows the mean of the readings of the last second, and not what they show;
        `None` where that does not show, or it is what they come from."""
        there = [(poll.t_s, poll.power_w) for poll in self.polls if poll.power_w is not None]
        if self.source is PowerQuery.USAGE or not there:
            return None
        seen_s, power_w = np.array(there).T
        energy_j = np.concatenate([[0.0], np.cumsum(power_w[:-1] * np.diff(seen_s))])
        return self._is_average(self.usage_w, seen_s, energy_j)

    def _is_average(self, said_w: Sequence[float | None], seen_s: Floats, energy_j: Floats) -> bool | None:
        there = [(poll.t_s, one_w) for poll, one_w in zip(self.polls, said_w, strict=True) if one_w is not None]
        if not there or self.usual_s > _CLOSE_S:
            return None
        t_s, power_w = np.array(there).T
        return _is_average(t_s, power_w, seen_s, energy_j)


def _is_average(t_s: Floats, power_w: Floats, seen_s: Floats, energy_j: Floats) -> bool | None:
    """Whether some readings are nearer to the mean power of the last second than to that of the last moment.

    seen_s, energy_j: energy until then.
    """
    if len(seen_s) < 2:
        return None
    within = (t_s > seen_s[0] + _AVERAGE_S + max(_LATE_S)) & (t_s < seen_s[-1])
    t_s, power_w = t_s[within], power_w[within]
    if len(t_s) < 2:
        return None

    def means_w(window_s: float, late_s: float) -> Floats:
        ends_j, begins_j = (np.interp(t_s - late_s - before_s, seen_s, energy_j) for before_s in (0.0, window_s))
        found: Floats = (ends_j - begins_j) / window_s
        return found

    of_moment, of_second = (
        [means_w(window_s, late_s) for window_s in windows_s for late_s in _LATE_S]
        for windows_s in (_MOMENTS_S, (_AVERAGE_S,))
    )
    if np.std(of_moment[-1] - of_second[-1]) < max(_VARIES * power_w.mean(), _VARIES_W):
        return None
    off_moment, off_second = (min(float(np.std(power_w - one)) for one in means) for means in (of_moment, of_second))
    if _PLAINLY * off_second < off_moment:
        return True
    return False if _PLAINLY * off_moment < off_second else None


def _moves(polls: Sequence[tuple[float, float | None]]) -> tuple[Floats, Floats]:
    """When another value came, and which."""
    moved = [(t_s, new) for (_, old), (t_s, new) in pairwise(polls) if new is not None and new != old]
    pairs = np.array(moved).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
