"""What a GPU's sensors do, found out by watching them for a moment: how often power is measured, and whether the
energy counter agrees with it."""

import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from autocap.clock import Clock
from autocap.devices.nvml.card import Card, PowerQuery
from autocap.devices.nvml.library import Library

WATCH_S = 2.0
_QUICK_S = 1.0  # after which a watch ends whose findings are clear: the job draws what it draws meanwhile
# Counter and readings come from one sensor, so its gain (up to 6 % off) is mostly in both. What sets them apart is
# noise, 1.6 % (1 sigma) over 2 s where a quarter of the time is sampled, and the edges, an update of each in 2 s. A
# counter that does not count everything was found 43 % low.
ENERGY_TOLERANCE = 0.15
POLL_S = 0.004  # a fifth of the fastest sensors' update
_FEWEST_MOVES = 4
_CLEAR_MOVES = 8
_LONGEST_UPDATE_S = 1.0
_ATTEMPTS = 3  # a load that begins or ends meanwhile looks like a disagreement, where readings are averages


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorProbe:
    """One GPU's sensors as watched.

    source: where power is read. update_s: between fresh power readings, counter_s: between two moves of the energy
    counter, `None` where it did not move. counter_j,
    integrated_j: the same stretch of time by the energy counter and by the readings, `None` where it was not compared.
    counter_trouble: why the counter is not to be used, `None` where it may be or where there is none (has_counter).
    """

    source: PowerQuery
    update_s: float | None
    counter_s: float | None
    has_counter: bool
    counter_j: float | None
    integrated_j: float | None
    counter_trouble: str | None


def probe_sensors(
    cards: Sequence[Card], clock: Clock, pause: Callable[[float], object], watch_s: float = WATCH_S
) -> tuple[SensorProbe, ...]:
    """Watch some GPUs at the same time, for watch_s seconds at most, for half as long where that shows enough; up to
    three times that where a counter disagrees.

    pause: waits without taking a signal from the clock. A signal that is pending ends the watch at once, so that
    whoever waits for it next is not kept. Raises NvmlError when a GPU is lost.
    """
    found = _watch(cards, clock, pause, watch_s)
    for _ in range(_ATTEMPTS - 1):
        if all(probe.counter_trouble is None for probe in found) or signal.sigpending():
            break
        again = _watch(cards, clock, pause, watch_s)
        found = tuple(better(first, second) for first, second in zip(found, again, strict=True))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """One look, at a time of the run's clock."""

    t_s: float
    power_w: float | None
    counter_j: float | None


def _watch(
    cards: Sequence[Card], clock: Clock, pause: Callable[[float], object], watch_s: float
) -> tuple[SensorProbe, ...]:
    polls: list[list[Poll]] = [[] for _ in cards]
    quick_s, end_s = clock.now() + _QUICK_S, clock.now() + watch_s
    while clock.now() < end_s and not signal.sigpending():
        if clock.now() >= quick_s:
            if all(_is_clear(seen) for seen in polls):
                break
            quick_s = math.inf
        for card, seen in zip(cards, polls, strict=True):
            power_w, counter_j = card.raw_power()[0], card.counter_j()
            seen.append(Poll(t_s=clock.now(), power_w=power_w, counter_j=counter_j))
        pause(POLL_S)
    return tuple(conclude(card.source, seen) for card, seen in zip(cards, polls, strict=True))


def _is_clear(polls: Sequence[Poll]) -> bool:
    """Whether the update has shown often enough, and the counter, where there is one, agrees well beyond doubt."""
    powers, counts = [(poll.t_s, poll.power_w) for poll in polls], [(poll.t_s, poll.counter_j) for poll in polls]
    if len(_moved_s(powers)) <= _CLEAR_MOVES:
        return False
    if all(poll.counter_j is None for poll in polls):
        return True
    counter_j, integrated_j = _compared(polls)
    if counter_j is None or integrated_j is None or len(_moved_s(counts)) <= _CLEAR_MOVES:
        return False
    return abs(counter_j / integrated_j - 1.0) < ENERGY_TOLERANCE / 3


def conclude(source: PowerQuery, polls: Sequence[Poll]) -> SensorProbe:
    """What some polls of one GPU have shown; at least one."""
    counter_j, integrated_j = _compared(polls)
    has_counter = any(poll.counter_j is not None for poll in polls)
    trouble = None
    if counter_j is not None and integrated_j is not None:
        if abs(counter_j / integrated_j - 1.0) > ENERGY_TOLERANCE:
            trouble = f"counts {counter_j:.0f} J where the power readings add up to {integrated_j:.0f} J"
    elif has_counter and polls[-1].t_s - polls[0].t_s > 2 * _LONGEST_UPDATE_S - 2 * POLL_S:
        trouble = "does not move although power is drawn" if any(poll.power_w for poll in polls) else None
    return SensorProbe(
        source=source,
        update_s=_between_moves_s([(poll.t_s, poll.power_w) for poll in polls]),
        counter_s=_between_moves_s([(poll.t_s, poll.counter_j) for poll in polls]),
        has_counter=has_counter,
        counter_j=counter_j,
        integrated_j=integrated_j,
        counter_trouble=trouble,
    )


def _between_moves_s(polls: Sequence[tuple[float, float | None]]) -> float | None:
    """The mean time between two fresh readings of what was seen when. Two equal ones in succession look like one that
    took twice as long, so only intervals near the usual one count."""
    moved_s = _moved_s(polls)
    intervals_s = [new - old for old, new in pairwise(moved_s)]
    if len(intervals_s) < _FEWEST_MOVES:
        return None
    usual_s = median(intervals_s)
    return fmean(one for one in intervals_s if 0.5 * usual_s <= one <= 1.5 * usual_s)


def _moved_s(polls: Sequence[tuple[float, float | None]]) -> list[float]:
    """When another value came, of what was seen when."""
    return [t_s for (_, old), (t_s, new) in pairwise(polls) if new not in (old, None)]


def _compared(polls: Sequence[Poll]) -> tuple[float | None, float | None]:
    """Joules between the first and the last move of the counter: by the counter, and by power held from poll to poll.
    `None` where the counter moved less than half of the time watched, or a reading is missing."""
    moves = [
        index
        for index in range(1, len(polls))
        if polls[index].counter_j not in (polls[index - 1].counter_j, None) and polls[index - 1].counter_j is not None
    ]
    if len(moves) < 2 or 2 * (polls[moves[-1]].t_s - polls[moves[0]].t_s) < polls[-1].t_s - polls[0].t_s:
        return None, None
    stretch = polls[moves[0] : moves[-1] + 1]
    integrated_j = 0.0
    for old, new in pairwise(stretch):
        if old.power_w is None:
            return None, None
        integrated_j += old.power_w * (new.t_s - old.t_s)
    counter_j = (stretch[-1].counter_j or 0.0) - (stretch[0].counter_j or 0.0)
    return (counter_j, integrated_j) if integrated_j > 0 else (None, None)


def better(first: SensorProbe, second: SensorProbe) -> SensorProbe:
    """Of two looks at one GPU the one to believe: a counter that agreed once is a counter that counts, and
    one that is gone since is no reason to forget what it did."""
    return first if first.counter_trouble is None or not second.has_counter else second


def probe_sensor(library: Library, uuids: Sequence[str], clock: Clock) -> tuple[SensorProbe, ...]:
    """The sensors of some GPUs, by UUID, without a device around them: for `autocap devices`. Raises DeviceError."""
    return probe_sensors([Card(library, uuid, uuid, clock) for uuid in uuids], clock, library.pause)
