"""One GPU as it is read: its power from the best source that it offers, and everything that goes with it.

A driver answers every question, with the value that it measured last; its time stamps are often those of the question.
So a reading is fresh when its value moved, or when the sensor must have measured again since. A repeat keeps the stamp
of the first time it was seen: to whoever integrates it is held power, to a period detector it is nothing new.
"""

import math
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

import pynvml

from autocap.clock import Clock
from autocap.devices.nvml.library import Library
from autocap.devices.nvml.state import (
    ENFORCED_LIMIT,
    GPU_SCOPE,
    INSTANT_POWER,
    MODULE_SCOPE,
    REQUESTED_LIMIT,
    FieldValue,
    LimitState,
    NvmlError,
    asked,
    call,
    read_fields,
    to_watts,
)
from autocap.errors import DeviceUnavailable
from autocap.records import Reading

_PLATEAU_UPDATES = 1.5  # an equal value is taken for a new reading once the sensor is this far past its update
_STUCK_S = 5.0  # noise moves a live sensor's milliwatts long before this
_STUCK_UPDATES = 30.0
_LOOK_S = 1.0  # between two looks more time does not count: a call that takes seconds is no sensor that is stuck
_COUNTER_AGREES = 0.05  # a sensor of whole watts may well stand still; its energy counter then goes on as it says


class PowerTrace:
    """The power readings of one GPU, in the order in which they were taken.

    update_s: how often the sensor measures. gap: why the newest reading is none, `None` where it is one.
    """

    def __init__(self, update_s: float) -> None:
        self.update_s = update_s
        self.gap: str | None = None
        self._stamp_s = -math.inf
        self._power_w: float | None = None
        self._looked_s = self._still_s = 0.0  # when it was read last; for how long it was seen not to move
        self._moved_s = 0.0  # when the value last moved, and the energy counter then
        self._moved_j: float | None = None

    def take(
        self, stamp_s: float, power_w: float | None, *, energy_j: float | None, busy: bool
    ) -> tuple[float, float | None]:
        """The reading's own time and its watts, `None` for a gap.

        stamp_s: when the driver says it measured, else now. power_w: as answered, `None` for no answer. energy_j: the
        energy counter, where it is trusted. busy: whether the GPU is at work, as far as is known.
        """
        stamp_s = max(stamp_s, self._stamp_s)
        if power_w is None or not power_w > 0:
            self.gap = "gives no power reading" if power_w is None else "reads 0 W"
            self._stamp_s, self._power_w = stamp_s, None
            return stamp_s, None
        self._still_s += min(stamp_s - self._looked_s, _LOOK_S)
        self._looked_s = stamp_s
        if power_w != self._power_w:
            self._power_w, self._stamp_s = power_w, stamp_s
            self._moved_s, self._moved_j, self._still_s = stamp_s, energy_j, 0.0
        elif stamp_s - self._stamp_s > _PLATEAU_UPDATES * self.update_s:
            self._stamp_s = stamp_s
        if busy and self._is_stuck(power_w, energy_j):
            self.gap = f"has read {power_w:g} W without a change for {stamp_s - self._moved_s:.0f} s: it is stuck"
            return self._stamp_s, None
        self.gap = None
        return self._stamp_s, power_w

    def _is_stuck(self, power_w: float, energy_j: float | None) -> bool:
        still_s = self._stamp_s - self._moved_s
        if min(still_s, self._still_s) < max(_STUCK_S, _STUCK_UPDATES * self.update_s):
            return False
        if energy_j is None or self._moved_j is None:
            return True
        return abs((energy_j - self._moved_j) / still_s / power_w - 1.0) > _COUNTER_AGREES


class EnergyTrace:
    """The energy counter of one GPU: held where it cannot be read for a moment, dropped where it cannot be believed.

    trouble: why it was dropped, `None` while it is believed. A counter that is dropped stays so: energy that is counted
    half by one means and half by another is worth less than either.
    """

    def __init__(self) -> None:
        self.trouble: str | None = None
        self._counted_j: float | None = None
        self._moved_s = math.inf
        self._looked_s = self._still_s = 0.0  # when it was read last; for how long it was seen not to move

    def expect(self, t_s: float) -> None:
        """There is a counter, as was just seen."""
        self._moved_s = self._looked_s = t_s

    def take(self, t_s: float, counted_j: float | None, power_w: float | None) -> float | None:
        """The counter's joules; `None` once it is dropped, or before it was read. power_w: read at the same time."""
        if self.trouble is not None:
            return None
        before_j = self._counted_j
        if self._moved_s < math.inf:
            self._still_s += min(t_s - self._looked_s, _LOOK_S)
        self._looked_s = t_s
        if counted_j is not None and before_j is not None and counted_j < before_j:
            self.trouble = f"went back from {before_j:.0f} J to {counted_j:.0f} J"
        elif counted_j is not None and counted_j != before_j:
            self._counted_j, self._moved_s, self._still_s = counted_j, t_s, 0.0
        elif power_w is not None and self._still_s > _STUCK_S:
            self.trouble = f"has not moved for {t_s - self._moved_s:.0f} s"
        return None if self.trouble is not None else self._counted_j

    def drop(self, why: str) -> None:
        self.trouble = why


T = TypeVar("T")

_TYPICAL_UPDATE_S = 0.1  # until the sensor's own is known
# How old what changes slowly may be: every call costs, and takes the driver's lock for a moment.
_SLOW_S, _TEMPERATURE_S = 0.2, 1.0  # utilisation is a mean over the last sixth of a second, or more
_OLDEST_S = 2.5  # the driver's buffer reaches back 2.4 s; an older stamp, or a future one, is another clock's
_SW_POWER_CAP = 0x4
_THROTTLED = 0x8 | 0x20 | 0x40 | 0x80  # HW slowdown, SW thermal, HW thermal, HW power brake


class PowerQuery(Enum):
    """Where a GPU's power is read, the best first; the value is what it is called in messages."""

    INSTANT = "instant field 186"
    MODULE = "instant field 186 of the whole module"
    SAMPLES = "driver's sample buffer"
    USAGE = "nvmlDeviceGetPowerUsage"


class Card:
    """Reads one GPU. Never sets anything.

    uuid: whose. where: what messages call it. Raises DeviceUnavailable where it offers no power at all, NvmlError where
    it is lost.
    """

    def __init__(self, library: Library, uuid: str, where: str, clock: Clock) -> None:
        self.where = where
        self.power_trace = PowerTrace(_TYPICAL_UPDATE_S)
        self.energy_trace = EnergyTrace()
        self._clock, self._wall_s = clock, library.wall_s
        self._handle = library.handle(uuid)
        self._limits = LimitState(self._handle, where)
        self._absent: set[str] = set()  # quantities that the GPU does not offer
        self._failed: dict[str, str] = {}  # the last failure of each quantity that has one
        self._sample: tuple[int, float] | None = None  # the buffer's newest: its stamp in µs, watts
        self._held: dict[str, tuple[float, int | None]] = {}  # what changes slowly: when it was asked for, and it
        self._what_fields = self._what("field values")
        self._fields = self._offered_fields()
        self.source = self._find_source()

    def failures(self) -> tuple[str, ...]:
        """What went wrong since the last time this was asked, without ending anything."""
        failed, self._failed = tuple(self._failed.values()), {}
        return failed

    def read(self) -> Reading:
        """Everything, once. Raises NvmlError when the GPU is lost."""
        answers = self._answers()
        power_w, stamp_s = self._power(answers)
        now_s = self._clock.now()
        counted_j = self.counter_j()
        busy_pct = self._lately(now_s, _SLOW_S, self._busy_pct)
        clock_mhz = self._lately(now_s, _SLOW_S, self._sm_clock_mhz)
        temperature_c = self._lately(now_s, _TEMPERATURE_S, self._temperature_c)
        reasons = self._lately(now_s, _SLOW_S, self._clock_reasons)
        energy_j = self.energy_trace.take(now_s, counted_j, power_w)
        t_s, power_w = self.power_trace.take(stamp_s, power_w, energy_j=energy_j, busy=busy_pct != 0)
        return Reading(
            t_s=t_s,
            power_w=power_w,
            energy_j=energy_j,
            requested_w=self._limit(answers, REQUESTED_LIMIT, self._limits.requested_w),
            enforced_w=self._limit(answers, ENFORCED_LIMIT, self._limits.enforced_w),
            sm_clock_hz=None if clock_mhz is None else 1e6 * clock_mhz,
            cap_binding=None if reasons is None else bool(reasons & _SW_POWER_CAP),
            throttled=reasons is not None and bool(reasons & _THROTTLED),
            utilisation=None if busy_pct is None else busy_pct / 100,
            temperature_c=None if temperature_c is None else float(temperature_c),
        )

    def raw_power(self) -> tuple[float | None, float]:
        """Power alone, as the driver gives it, and its stamp on the run's clock. Raises NvmlError when the GPU is
        lost."""
        return self._power(self._answers())

    def counter_j(self) -> float | None:
        """The energy counter alone, joules since the driver was loaded; `None` where there is none."""
        counted_mj = self._ask("energy counter", lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        return None if counted_mj is None else counted_mj / 1000

    def _offered_fields(self) -> tuple[tuple[int, int], ...]:
        """The fields that the GPU has, found out by asking. Without instant power of the GPU, that of its module."""
        wanted = ((INSTANT_POWER, GPU_SCOPE), (INSTANT_POWER, MODULE_SCOPE))
        limits = ((ENFORCED_LIMIT, GPU_SCOPE), (REQUESTED_LIMIT, GPU_SCOPE))
        try:
            answers = read_fields(self._what_fields, self._handle, (*wanted, *limits))
        except NvmlError as error:
            if error.lost:
                raise
            return ()
        has = {field: answer for field, answer in zip((*wanted, *limits), answers, strict=True) if _is_there(answer)}
        # Zero may be no reading at all, or a sensor that has none at the moment: then it is better than nothing.
        power = sorted((field for field in wanted if field in has), key=lambda field: has[field].value <= 0)
        return (*power[:1], *(field for field in limits if field in has))

    def _find_source(self) -> PowerQuery:
        if (INSTANT_POWER, GPU_SCOPE) in self._fields:
            return PowerQuery.INSTANT
        if (INSTANT_POWER, MODULE_SCOPE) in self._fields:
            return PowerQuery.MODULE
        if self._newest_sample() is not None:
            return PowerQuery.SAMPLES
        if self.usage_w() is None and "power" in self._absent:
            raise DeviceUnavailable(
                f"{self.where} offers no power reading at all, so there is nothing to measure; leave it out with --gpus"
            )
        return PowerQuery.USAGE

    def _answers(self) -> dict[int, FieldValue]:
        if not self._fields:
            return {}
        answers = self._ask("field values", lambda: read_fields(self._what_fields, self._handle, self._fields))
        self._absent.discard("field values")  # they were there
        return {} if answers is None else {field: a for (field, _), a in zip(self._fields, answers, strict=True)}

    def _power(self, answers: dict[int, FieldValue]) -> tuple[float | None, float]:
        now_s = self._clock.now()
        if self.source is PowerQuery.USAGE:
            self._absent.discard("power")  # it was there
            return self.usage_w(), now_s
        if self.source is PowerQuery.SAMPLES:
            newest = self._newest_sample()
            return (None, now_s) if newest is None else (newest[1], self._on_run_clock(newest[0], now_s))
        answer = answers.get(INSTANT_POWER)
        if answer is not None and _is_there(answer):
            return to_watts(answer.value), self._on_run_clock(answer.stamp_us, now_s)
        if answer is not None:
            self._settle("power", NvmlError(self._what("power"), answer.code))
        return None, now_s

    def usage_w(self) -> float | None:
        """What nvmlDeviceGetPowerUsage says, whatever power is read from; `None` where it does not. Raises NvmlError
        when the GPU is lost."""
        power_mw = self._ask("power", lambda: pynvml.nvmlDeviceGetPowerUsage(self._handle))
        return None if power_mw is None else to_watts(power_mw)

    def _newest_sample(self) -> tuple[int, float] | None:
        """The newest entry of the driver's buffer: its stamp in microseconds since 1970, and watts."""
        since_us = 0 if self._sample is None else self._sample[0]
        what = f"reading the power samples of {self.where}"
        try:
            _, samples = call(
                what, pynvml.nvmlDeviceGetSamples, self._handle, pynvml.NVML_TOTAL_POWER_SAMPLES, since_us
            )
        except NvmlError as error:
            if error.lost:
                raise
            if not error.absent:
                self._failed["power samples"] = str(error)
                return None
            samples = []  # NOT_FOUND: nothing since then, or no buffer at all
        if samples:
            newest = max(samples, key=lambda sample: int(sample.timeStamp))
            self._sample = (int(newest.timeStamp), to_watts(newest.sampleValue.uiVal))
        return self._sample

    def _on_run_clock(self, stamp_us: int, now_s: float) -> float:
        """A driver's stamp on the run's clock, by its age: a clock that is set meanwhile moves one reading at most."""
        age_s = self._wall_s() - stamp_us / 1e6
        return now_s - age_s if 0 <= age_s <= _OLDEST_S else now_s

    def _limit(self, answers: dict[int, FieldValue], field: int, otherwise: Callable[[], float | None]) -> float | None:
        answer = answers.get(field)
        if answer is not None and _is_there(answer) and answer.value > 0:
            return to_watts(answer.value)
        if (field, GPU_SCOPE) in self._fields:
            return None  # not answered this time
        return self._ask(f"limit {field}", otherwise)

    def _lately(self, now_s: float, oldest_s: float, ask: Callable[[], int | None]) -> int | None:
        """What changes slowly, at most so old."""
        asked_s, value = self._held.get(ask.__name__, (-math.inf, None))
        if now_s >= asked_s + oldest_s:
            value = ask()
            self._held[ask.__name__] = now_s, value
        return value

    def _busy_pct(self) -> int | None:
        return self._ask("utilisation", lambda: int(pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu))

    def _sm_clock_mhz(self) -> int | None:
        return self._ask("SM clock", lambda: pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM))

    def _temperature_c(self) -> int | None:
        sensor = pynvml.NVML_TEMPERATURE_GPU
        return self._ask("temperature", lambda: pynvml.nvmlDeviceGetTemperature(self._handle, sensor))

    def _clock_reasons(self) -> int | None:
        reasons = self._ask("clock reasons", lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        if reasons is None and "clock reasons" in self._absent:  # what they were called before driver 535
            reasons = self._ask(
                "older clock reasons", lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
            )
        return None if reasons is None else int(reasons)

    def _ask(self, quantity: str, function: Callable[[], T | None]) -> T | None:
        """One quantity; `None` where the GPU does not offer it or fails to tell. Raises NvmlError when it is lost."""
        if quantity in self._absent:
            return None
        try:
            return asked(function)  # `call` would put words together for an error that hardly ever comes
        except pynvml.NVMLError as error:
            self._settle(quantity, NvmlError(self._what(quantity), error.value))
        except NvmlError as error:
            self._settle(quantity, error)
        return None

    def _what(self, quantity: str) -> str:
        return f"reading the {quantity} of {self.where}"

    def _settle(self, quantity: str, error: NvmlError) -> None:
        if error.lost:
            raise error
        if error.absent:
            self._absent.add(quantity)
        else:
            self._failed[quantity] = str(error)


def _is_there(answer: FieldValue) -> bool:
    return answer.code == 0
