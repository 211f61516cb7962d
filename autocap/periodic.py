"""Iterations from the power signal alone: the detector's cycles, turned into marks as they become known.

At the limit found on arrival the waveform is learned once and for all. At every other cap the same waveform is looked
for, stretched, so that the same multiple of the period is counted at each cap: a constant multiple does not change
which cap is best, a changed one would. Where the pattern is lost there are no marks, and `trouble` says why.
"""

import math

import numpy as np
from numpy.typing import NDArray

from autocap.alias import is_alias
from autocap.period import Cycles, PeriodEstimate, RatioEstimate, Template, Verdict, count, detect, lock, ratio
from autocap.progress import Mark
from autocap.records import Sample, SensorInfo

Floats = NDArray[np.float64]
_FEWEST_CYCLES = 12.0
_LOCK_ERROR = 0.01
_FIRST_LOOK_S = 4.0
_GROWTH = 1.4  # a stretch is looked at again when it has grown by this share
_KEPT_S = 90.0  # of readings, at a cap that is held for long
_AT_ARRIVAL = (0.93, 1.07)  # how far the period may move at the limit where the waveform was learned
_ELSEWHERE = (0.97, 4.5)  # a cap slows down, at the floor of some cards four times
_BLURRED_S = 0.5
_SAME = 0.015  # how well two looks must agree
_CLOCK_FELL, _NOT_FASTER = 0.97, 0.985
_MARGIN = 1.25
_MOST_MISTAKES = 3
_EVENED = 11  # moves of a counter that are taken together


class PeriodProgress:
    """Marks from periods in the power of all devices together.

    sensor: of the devices; what is read within its settling time after a cap change is left out.
    """

    kind = "period"
    confidence = "high"

    def __init__(self, sensor: SensorInfo) -> None:
        self._sensor = sensor
        self._template: Template | None = None
        self._seen_s: float | None = None
        self._learned_at: tuple[float | None, ...] = ()
        self._learned_clock_hz: float | None = None
        self._mistakes = 0  # looks that speak against what was learned
        self._refuted: str | None = None  # for good
        self._caps: tuple[float | None, ...] | None = None
        self._look_at_s = _FIRST_LOOK_S  # seconds of readings before the next look
        self._begin((), 0.0)
        self._done = 0.0
        self.trouble: str | None = "the power signal is still too short to tell a period"

    def feed(self, sample: Sample) -> tuple[Mark, ...]:
        caps = tuple(reading.requested_w for reading in sample.readings)
        if caps != self._caps:
            self._begin(caps, sample.t_s + (self._sensor.settle_s if self._caps else 0.0))
        self._take(sample)
        span_s = self._stamps[-1] - self._stamps[0] if self._stamps else 0.0
        if span_s < self._look_at_s:
            return ()
        self._look_at_s = max(span_s * _GROWTH, _FIRST_LOOK_S)
        marks = self._look()
        if span_s > _KEPT_S:
            self._shorten()
        return marks

    def _begin(self, caps: tuple[float | None, ...], settled_s: float) -> None:
        self._caps, self._settled_s = caps, settled_s
        self._stamps: list[float] = []
        self._watts: list[float] = []
        self._clocks: list[float] = []
        self._witness_t: list[float] = []
        self._energies: list[list[float]] = []  # of each device, joules
        self._utilisations: list[float] = []  # of all together
        # Once the period is known, a look before there are enough cycles could only say so.
        enough_s = 0.0 if self._template is None else 1.1 * _FEWEST_CYCLES * self._template.period_s
        self._look_at_s = max(_FIRST_LOOK_S, enough_s)
        self._marked_s: float | None = None
        self._seen: Template | None = None  # the waveform at this cap, as of the look before
        self._sure: Template | None = None  # two looks agreed on its period

    def _take(self, sample: Sample) -> None:
        stamp_s = max(reading.t_s for reading in sample.readings)
        watts = [reading.power_w for reading in sample.readings]
        if stamp_s < self._settled_s or any(watt is None for watt in watts):
            return
        if not self._stamps or stamp_s > self._stamps[-1]:
            self._stamps.append(stamp_s)
            self._watts.append(sum(watt or 0.0 for watt in watts))
        clocks = [reading.sm_clock_hz for reading in sample.readings if reading.sm_clock_hz is not None]
        if clocks:
            self._clocks.append(sum(clocks) / len(clocks))
        self._witness_t.append(sample.t_s)
        self._energies.append([_number(reading.energy_j) for reading in sample.readings])
        self._utilisations.append(sum(_number(reading.utilisation) for reading in sample.readings))

    def _look(self) -> tuple[Mark, ...]:
        if self._refuted is not None:
            self.trouble = self._refuted
            return ()
        signal = self._signal()
        if signal is None:
            self.trouble = f"the power sensor averages over {self._sensor.window_s:g} s, and there is no energy counter"
            return ()
        t_s, power_w, update_s, window_s = signal
        if self._template is None:
            witnesses = self._witnesses()
            estimate = detect(t_s, power_w, update_s=update_s, window_s=window_s, witness=witnesses)
            before_s, self._seen_s = self._seen_s, estimate.period_s
            self.trouble = _doubt(estimate, before_s) or self._alias(estimate, t_s, power_w)
            if self.trouble is not None:
                return ()
            self._template = lock(t_s, power_w, estimate, update_s=update_s, window_s=window_s)
            self._learned_at, self._learned_clock_hz = self._caps or (), self._clock_hz()
        return self._follow(self._template, t_s, power_w)

    def _follow(self, template: Template, t_s: Floats, power_w: Floats) -> tuple[Mark, ...]:
        """Marks of the cycles in the readings at this cap. Once two looks have agreed on their period, later ones
        only count along, for a fraction of the cost, as long as what they count agrees as well."""
        if self._sure is not None:
            cycles = _counted_by(self._sure, t_s, power_w)
            if cycles is not None and _agree(cycles.period_s, self._sure.period_s):
                self.trouble = None
                return self._marks(cycles)
        before, self._seen, self._sure = self._seen, None, None
        fastest, slowest = self._possible()
        found = ratio(template, t_s, power_w, fastest=fastest, slowest=slowest)
        self.trouble = self._mistaken(found) or self._unknown(found)
        if self.trouble is not None or found.seen is None:
            return ()
        cycles = _counted_by(found.seen, t_s, power_w)
        if cycles is None:
            self.trouble = "the pattern cannot be followed through the readings"
            return ()
        self._seen = found.seen
        self._sure = found.seen if before is not None and _agree(found.seen.period_s, before.period_s) else None
        return self._marks(cycles)

    def _unknown(self, found: RatioEstimate) -> str | None:
        if not found.ok:
            return f"the period is lost: {found.reason}"
        if found.cycles < _FEWEST_CYCLES:
            return f"only {found.cycles:.1f} cycles, {_FEWEST_CYCLES:.0f} are needed"
        return None

    def _possible(self) -> tuple[float, float]:
        """The shortest and the longest that a cycle can be at this cap, against the one learned: a lower clock makes
        no cycle shorter, nor longer than the clock itself explains."""
        if self._caps == self._learned_at:
            return _AT_ARRIVAL
        clock_hz, before_hz = self._clock_hz(), self._learned_clock_hz
        if clock_hz is None or before_hz is None:
            return _ELSEWHERE
        return _ELSEWHERE[0], min(_ELSEWHERE[1], _MARGIN * max(before_hz / clock_hz, 1.0))

    def _mistaken(self, found: RatioEstimate) -> str | None:
        """Why what was learned cannot be the job's own cycle: at another cap it got shorter, as the beat between a
        cycle and the sensor's sampling may. After some such looks that stands for good."""
        if found.ratio is None or self._caps == self._learned_at:
            return None
        clock_hz, before_hz = self._clock_hz() or math.nan, self._learned_clock_hz or math.nan
        if found.ratio >= (_NOT_FASTER if clock_hz < _CLOCK_FELL * before_hz else _ELSEWHERE[0]):
            return None
        self._mistakes += 1
        why = f"the period went to {found.ratio:.2f} times its length with the cap: it is not the job's own cycle"
        if self._mistakes >= _MOST_MISTAKES:
            self._refuted = why
        return why

    def _marks(self, cycles: Cycles) -> tuple[Mark, ...]:
        """The boundaries that are new. The last cycle is left for the next look, which knows it better."""
        times, counts = cycles.t_s, cycles.count
        if self._marked_s is None:
            fresh = times <= times[-1] - cycles.period_s
            base = self._done - (counts[fresh][0] if fresh.any() else 0.0)
        else:
            base = self._done - float(np.interp(self._marked_s, times, counts))
            fresh = (times >= self._marked_s + 0.5 * cycles.period_s) & (times <= times[-1] - cycles.period_s)
        marks = tuple(
            Mark(t_s=float(t), iterations=float(base + n)) for t, n in zip(times[fresh], counts[fresh], strict=True)
        )
        if marks:
            self._marked_s, self._done = marks[-1].t_s, marks[-1].iterations
        return marks

    def _signal(self) -> tuple[Floats, Floats, float, float] | None:
        """Times, watts, update and window of what the period is looked for in: the readings, or, where they are
        blurred by a long average, which has no response at whole fractions of its window, the energy counter."""
        if self._sensor.window_s < _BLURRED_S:
            return np.array(self._stamps), np.array(self._watts), self._sensor.update_s, self._sensor.window_s
        counted = self._counted()
        if counted is None:
            return None
        span_s = float(np.median(np.diff(counted[0])))
        return *counted, span_s, span_s

    def _alias(self, estimate: PeriodEstimate, t_s: Floats, power_w: Floats) -> str | None:
        counted = self._counted()
        if counted is None or estimate.period_s is None or self._sensor.window_s >= _BLURRED_S:
            return None
        if not is_alias(estimate.period_s, t_s, power_w, self._sensor.window_s, *counted):
            return None
        return f"the energy counter does not see the period of {estimate.period_s:.3f} s: it is an alias"

    def _counted(self) -> tuple[Floats, Floats] | None:
        """Mean power between two moves of the first device's energy counter, with the time of the later one.

        Counters move at different times; that of another device is taken to run evenly from move to move.
        """
        t_s, energies_j = np.array(self._witness_t), np.array(self._energies)
        moved = [np.flatnonzero(np.diff(energy_j) > 0) + 1 for energy_j in energies_j.T]
        if min(map(len, moved)) < 3:
            return None
        times_s = [_evened(t_s[moves]) for moves in moved]
        first, last = max(times[0] for times in times_s), min(times[-1] for times in times_s)
        stamps_s = times_s[0]
        stamps_s = stamps_s[(stamps_s >= first) & (stamps_s <= last)]
        if len(stamps_s) < 3:
            return None
        counters = zip(times_s, moved, energies_j.T, strict=True)
        total_j = sum(np.interp(stamps_s, times, energy_j[moves]) for times, moves, energy_j in counters)
        return stamps_s[1:], np.diff(total_j) / np.diff(stamps_s)

    def _witnesses(self) -> list[tuple[Floats, Floats]]:
        counted, utilisation = self._counted(), np.array(self._utilisations)
        found = []
        if self._sensor.window_s >= _BLURRED_S:
            found.append((np.array(self._stamps), np.array(self._watts)))
        elif counted is not None:
            found.append(counted)
        if np.isfinite(utilisation).all():
            found.append((np.array(self._witness_t), utilisation))
        return found

    def _clock_hz(self) -> float | None:
        return sum(self._clocks) / len(self._clocks) if self._clocks else None

    def _shorten(self) -> None:
        """Forget the older half: what a cap that is held for long shows is known well enough."""
        half = len(self._stamps) // 2
        self._stamps, self._watts = self._stamps[half:], self._watts[half:]
        half = len(self._witness_t) // 2
        self._witness_t, self._energies = self._witness_t[half:], self._energies[half:]
        self._utilisations = self._utilisations[half:]
        self._look_at_s = (self._stamps[-1] - self._stamps[0]) * _GROWTH


def _doubt(estimate: PeriodEstimate, before_s: float | None) -> str | None:
    """Why an estimate must not drive a search; `None` when it may."""
    if estimate.verdict is not Verdict.PERIODIC:
        return f"no period in the power signal ({estimate.verdict.value}): {estimate.reason}"
    if not estimate.verified:
        return f"the period of {estimate.period_s:.3f} s is not verified: {estimate.reason}"
    if estimate.cycles < _FEWEST_CYCLES or (estimate.rel_stderr or 1.0) > _LOCK_ERROR:
        return f"the period of {estimate.period_s:.3f} s is not known well enough yet"
    if before_s is None or not _agree(estimate.period_s or 0.0, before_s):
        return f"the period of {estimate.period_s:.3f} s was not found a second time yet"
    return None


def _counted_by(pattern: Template, t_s: Floats, power_w: Floats) -> Cycles | None:
    return count(pattern, 1.0, t_s, power_w, update_s=pattern.update_s, window_s=pattern.window_s)


def _evened(t_s: Floats) -> Floats:
    """When a counter that moves regularly did so, shape (n,), seconds: a move is only noticed at the next sample, so
    each stamp is taken against its neighbours'. Where they are far apart, the stamps stay as they are."""
    line = np.linspace(t_s[0], t_s[-1], len(t_s))
    padded = np.pad(t_s - line, _EVENED // 2, mode="edge")
    evened = line + np.convolve(padded, np.full(_EVENED, 1 / _EVENED), mode="valid")
    near = np.abs(evened - t_s) < 0.7 * float(np.median(np.diff(t_s)))
    return t_s if not near.all() else evened


def _agree(one: float, other: float) -> bool:
    return abs(one / other - 1) < _SAME


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
