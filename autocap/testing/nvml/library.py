"""The C functions of an emulated libnvidia-ml, as Python functions that take what pynvml's wrappers hand to C."""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from autocap.clock import Clock
from autocap.job.processes import identify
from autocap.testing.nvml.board import Board, MemoryBoard, State, requested, requested_mw
from autocap.testing.nvml.functions import GENERATION, Failed, Functions, gpu_of, known, number_of, write_to
from autocap.testing.nvml.machine import Card, Limits, Machine, Trouble, pci_bus

if TYPE_CHECKING:  # numpy, which the watchdog's questions do not need
    from autocap.testing.nvml.physics import Physics, Shown

# What pynvml hands over are ctypes objects of its own making: `Any`, taken apart by the functions imported below.
_INVALID, _NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND, _TOO_SMALL, _NO_DATA = 2, 3, 4, 6, 7, 21
_UNSIGNED_INT = 1  # NVML_VALUE_TYPE_UNSIGNED_INT
_POWER_CAP, _HW_THERMAL, _POWER_BRAKE, _HW_SLOWDOWN, _IDLE = 0x4, 0x40, 0x80, 0x8, 0x1
_BUSY_PCT = 97


class EmulatedLibrary(Functions):
    """Stands where pynvml keeps the loaded library; attributes are its functions.

    clock: the machine's time. pause: waits for some seconds. wall_s: behind the driver's stamps, seconds since 1970.
    visible: the only cards that this process may open; `None` for all.
    """

    def __init__(
        self,
        board: Board,
        clock: Clock,
        pause: Callable[[float], object] = time.sleep,
        wall_s: Callable[[], float] = time.time,
        visible: Sequence[int] | None = None,
    ) -> None:
        super().__init__(board, clock, pause)
        self._visible = visible
        self._wall_s = wall_s
        self._clients = 0  # of this process that have it open
        self._physics: Physics | None = None
        self._one_thread = threading.RLock()  # in the physics
        self._first = 0  # of the cards that the physics has, this machine's
        self._held: dict[int, tuple[float, float]] = {}  # what a stuck sensor shows
        self._stands: dict[int, tuple[float, bool]] = {}  # where a counter stood when it stopped, and whether it skips
        self._left_out_j: dict[int, float] = {}
        self._dice: dict[int, Random] = {}
        self._loaded: dict[int, tuple[float, float]] = {}  # at which reload a counter began anew, and where it stood

    # The library as a whole.

    def _nvmlInitWithFlags(self, flags: Any) -> None:
        self._opened_s = self._clock.now()
        self._clients += 1

    def _nvmlShutdown(self) -> None:
        self._clients -= 1
        if self._clients == 0 and isinstance(self._board, MemoryBoard):  # else another process may have it open
            for gpu, card in enumerate(self._machine.cards):
                if not card.persistence and self._requested_mw(gpu) != card.default_mw:
                    self._board.update(partial(requested, gpu=gpu, limit_mw=card.default_mw, t_s=self._clock.now()))

    def _nvmlErrorString(self, code: Any) -> bytes:
        return f"emulated error {number_of(code)}".encode()

    def _nvmlSystemGetDriverVersion(self, text: Any, length: Any) -> None:
        text.value = self._machine.driver_version.encode()

    def _nvmlDeviceGetCount_v2(self, count: Any) -> None:
        write_to(count, len(self._cards))

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> None:
        if not 0 <= number_of(index) < len(self._cards):
            raise Failed(_INVALID)
        self._hand_out(handle, self._cards[number_of(index)])

    def _nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> None:
        for index in self._cards:
            if self._machine.cards[index].uuid.encode() == uuid.value:
                self._hand_out(handle, index)
                return
        raise Failed(_NOT_FOUND)

    def _hand_out(self, handle: Any, gpu: int) -> None:
        ctypes.c_void_p.from_buffer(handle._obj).value = self._reloaded() * GENERATION + gpu + 1

    @property
    def _cards(self) -> Sequence[int]:
        every = range(len(self._machine.cards))
        return every if self._visible is None else [card for card in self._visible if card in every]

    # What a card is.

    def _nvmlDeviceGetIndex(self, handle: Any, index: Any) -> None:
        write_to(index, self._cards.index(gpu_of(handle)))

    def _nvmlDeviceGetUUID(self, handle: Any, text: Any, length: Any) -> None:
        text.value = self._card(handle).uuid.encode()

    def _nvmlDeviceGetName(self, handle: Any, text: Any, length: Any) -> None:
        text.value = self._card(handle).name.encode()

    def _nvmlDeviceGetMinorNumber(self, handle: Any, minor: Any) -> None:
        write_to(minor, known(self._card(handle).minor_number))

    def _nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> None:
        info._obj.domain, info._obj.bus, info._obj.device = 0, pci_bus(gpu_of(handle)), 0

    def _nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> None:
        write_to(current, int(self._card(handle).mig))
        write_to(pending, int(self._card(handle).mig))

    def _nvmlDeviceGetPersistenceMode(self, handle: Any, mode: Any) -> None:
        write_to(mode, int(self._card(handle).persistence))

    def _nvmlDeviceGetVirtualizationMode(self, handle: Any, mode: Any) -> None:
        write_to(mode, 2 if self._card(handle).virtual else 0)

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, processes: Any) -> None:
        _list(self._pids(gpu_of(handle)), count, processes)

    def _nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Any, count: Any, processes: Any) -> None:
        _list(self._card(handle).drawing_pids, count, processes)

    # Power limits.

    def _nvmlDeviceGetPowerManagementLimitConstraints(self, handle: Any, low: Any, high: Any) -> None:
        card = self._limited(handle)
        write_to(low, card.min_mw)
        write_to(high, card.max_mw)

    def _nvmlDeviceGetPowerManagementDefaultLimit(self, handle: Any, limit: Any) -> None:
        write_to(limit, self._limited(handle).default_mw)

    def _nvmlDeviceGetPowerManagementLimit(self, handle: Any, limit: Any) -> None:
        self._limited(handle)
        write_to(limit, self._requested_mw(gpu_of(handle)))

    def _nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, limit: Any) -> None:
        write_to(limit, self._enforced_mw(gpu_of(handle)))

    def _nvmlDeviceSetPowerManagementLimit(self, handle: Any, limit: Any) -> None:
        card, limit_mw = self._limited(handle), number_of(limit)
        if card.limits is Limits.REFUSED or (card.limits is Limits.ROOTS and os.geteuid() != 0):
            raise Failed(_NO_PERMISSION)
        if not card.min_mw <= limit_mw <= card.max_mw:
            raise Failed(_INVALID)
        if limit_mw < card.floor_mw and card.floor_refuses:
            raise Failed(_INVALID)
        limit_mw = max(limit_mw, card.floor_mw)
        if card.wrong_share and self._thrown(gpu_of(handle)) < card.wrong_share:
            limit_mw = min(max(limit_mw + card.wrong_mw, card.min_mw), card.max_mw)
        if card.limits is Limits.CLAMPED and card.clamp_mw is not None:
            limit_mw = card.clamp_mw
        call_s, gpu = self._machine.call_s, gpu_of(handle)
        if card.limits is not Limits.IGNORED and self._thrown(gpu) >= card.ignored_share:
            # On the board before it takes hold, at the end of the call.
            self._board.update(lambda state: requested(state, gpu, limit_mw, self._clock.now() + call_s))
        self._pause(call_s + 0.001)

    # What a card shows.

    def _nvmlDeviceGetFieldValues(self, handle: Any, count: Any, values: Any) -> None:
        gpu = gpu_of(handle)
        for answer in values._obj:
            try:
                answer.value.uiVal, stamp_s = self._field(gpu, int(answer.fieldId), int(answer.scopeId))
                answer.nvmlReturn, answer.valueType = 0, _UNSIGNED_INT
                answer.timestamp = round(1e6 * (self._wall_s() - self._clock.now() + stamp_s))
            except Failed as failed:
                answer.nvmlReturn = failed.code

    def _nvmlDeviceGetPowerUsage(self, handle: Any, power: Any) -> None:
        shown, card = self._power(gpu_of(handle)), self._card(handle)
        write_to(power, round(1000 * (shown[2] if card.usage_is_average else shown[1])))

    def _nvmlDeviceGetSamples(
        self, handle: Any, kind: Any, since_us: Any, value_type: Any, count: Any, samples: Any
    ) -> None:
        gpu = gpu_of(handle)
        if not self._card(handle).samples_buffer or number_of(kind) != 0:
            raise Failed(_NOT_SUPPORTED)
        self._power(gpu)  # what is wrong with the sensor is wrong with the buffer
        offset_s = self._wall_s() - self._clock.now()
        with self._one_thread:
            kept = self.physics().samples(self._first + gpu)
        stamped = [(round(1e6 * (t_s + offset_s)), power_w) for t_s, power_w in kept]
        fresh = [one for one in stamped if one[0] > number_of(since_us)]
        if not fresh:
            raise Failed(_NOT_FOUND)
        write_to(value_type, _UNSIGNED_INT)
        if samples is not None:
            fresh = fresh[-count._obj.value :]
            for place, (stamp_us, power_w) in enumerate(fresh):
                samples[place].timeStamp = stamp_us
                samples[place].sampleValue.uiVal = round(1000 * power_w)
        write_to(count, len(fresh))

    def _nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, energy: Any) -> None:
        card = self._card(handle)
        if not card.energy_counter:
            raise Failed(_NOT_SUPPORTED)
        counted_mj = 5_000_000 + round(1000 * card.energy_gain * self._since_load_j(gpu_of(handle)))
        write_to(energy, counted_mj % (card.counter_wraps_mj or 1 << 64))

    def _nvmlDeviceGetClockInfo(self, handle: Any, kind: Any, clock: Any) -> None:
        shown, rest_mhz = self._shown(gpu_of(handle)), self._card(handle).rest_mhz
        write_to(clock, round(shown.clock_hz / 1e6) if shown.busy or rest_mhz is None else rest_mhz)

    def _nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: Any, clock: Any) -> None:
        from autocap.testing.simulated.node import SimulatedNode  # with numpy, which a service does without

        write_to(clock, round(SimulatedNode().max_clock_hz / 1e6))

    def _nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, reasons: Any) -> None:
        shown, gpu = self._shown(gpu_of(handle)), gpu_of(handle)
        bits = (_POWER_CAP if shown.binding and shown.busy else 0) | (0 if shown.busy else _IDLE)
        bits |= _HW_SLOWDOWN | _HW_THERMAL if self._has(gpu, Trouble.THERMAL) else 0
        bits |= _HW_SLOWDOWN | _POWER_BRAKE if self._has(gpu, Trouble.POWER_BRAKE) else 0
        write_to(reasons, bits)

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, reasons: Any) -> None:
        self._nvmlDeviceGetCurrentClocksEventReasons(handle, reasons)

    def _nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> None:
        rates._obj.gpu = _BUSY_PCT if self._shown(gpu_of(handle)).busy else 0

    def _nvmlDeviceGetTemperature(self, handle: Any, kind: Any, temperature: Any) -> None:
        write_to(temperature, 61 if self._shown(gpu_of(handle)).busy else 34)

    # Behind the functions.

    def _thrown(self, gpu: int) -> float:
        """By chance, from 0 to 1; of a card in the same order each time."""
        return self._dice.setdefault(gpu, Random(f"{self._machine.seed} {gpu}")).random()

    @property
    def _state(self) -> State:
        return self._board.read()

    @property
    def _machine(self) -> Machine:
        return self._state.machine

    def _card(self, handle: Any) -> Card:
        return self._state.machine.cards[gpu_of(handle)]

    def _limited(self, handle: Any) -> Card:
        card = self._card(handle)
        if card.limits is Limits.UNSUPPORTED:
            raise Failed(_NOT_SUPPORTED)
        return card

    def _pids(self, gpu: int) -> tuple[int, ...]:
        state = self._state
        if state.jobs:
            here = tuple(job.pid for job in state.jobs if gpu in job.gpus and _is_there(job.pid))
            return (*here, *state.machine.cards[gpu].pids)
        jobs = state.machine.job_gpus
        pid = state.machine.job_pid if state.reported_pid is None else state.reported_pid
        own = () if pid is None or (jobs is not None and gpu not in jobs) else (pid,)
        return (*own, *state.machine.cards[gpu].pids)

    def _requested_mw(self, gpu: int) -> int:
        """A driver does one call after the other: a set that another process has begun comes first, also where that
        process was killed meanwhile."""
        begun_s = max((change.t_s for change in self._state.changes if change.gpu == gpu), default=0.0)
        if (wait_s := begun_s - self._clock.now()) > 0:
            self._pause(wait_s)
        return requested_mw(self._state, gpu, self._clock.now())

    def _enforced_mw(self, gpu: int) -> int:
        state = self._state
        limit_mw = requested_mw(state, gpu, self._clock.now() - state.machine.enforced_lag_s)
        ceiling_mw = state.machine.cards[gpu].ceiling_mw
        return limit_mw if ceiling_mw is None else min(limit_mw, ceiling_mw)

    def _field(self, gpu: int, field: int, scope: int) -> tuple[int, float]:
        """A field's value, milliwatts, and its time."""
        card, now_s = self._state.machine.cards[gpu], self._clock.now()
        if field == 186 and scope == card.instant_scope:
            stamp_s, power_w, _ = self._power(gpu)
            return round(1000 * power_w), stamp_s if card.measured_stamps else now_s
        if scope == 0 and card.limit_fields and field == 190:
            return self._enforced_mw(gpu), now_s
        if scope == 0 and card.limit_fields and field == 192 and card.limits is not Limits.UNSUPPORTED:
            return self._requested_mw(gpu), now_s
        raise Failed(_NOT_SUPPORTED)

    def _power(self, gpu: int) -> tuple[float, float, float]:
        """When power was measured, watts, and the slow average; as the sensor has it, troubles included."""
        shown = self._shown(gpu)
        if self._has(gpu, Trouble.MISSING):
            raise Failed(_NO_DATA)
        if self._has(gpu, Trouble.ZERO):
            return shown.stamp_s, 0.0, 0.0
        if self._has(gpu, Trouble.STUCK):
            power_w, average_w = self._held.setdefault(gpu, (shown.power_w, shown.average_w))
            return shown.stamp_s, power_w, average_w
        self._held.pop(gpu, None)
        card = self._machine.cards[gpu]
        peak = card.peaks_gain if card.peaks_share and self._thrown(gpu) < card.peaks_share else 1.0
        return shown.stamp_s, peak * shown.power_w, shown.average_w

    def _since_load_j(self, gpu: int) -> float:
        """By the energy counter, which begins anew where the driver was loaded again."""
        past_s = [t_s for t_s in self._machine.reloads if t_s <= self._clock.now()]
        counted_j = self._counted_j(gpu)
        if past_s and self._loaded.get(gpu, (0.0, 0.0))[0] != past_s[-1]:
            self._loaded[gpu] = past_s[-1], counted_j
        return counted_j - self._loaded.get(gpu, (0.0, 0.0))[1]

    def _counted_j(self, gpu: int) -> float:
        """By the energy counter, troubles included; a process sees them begin with its first question in them."""
        counted_j = self._shown(gpu).energy_j - self._left_out_j.get(gpu, 0.0)
        skips = self._has(gpu, Trouble.COUNTER_SKIPS)
        if skips or self._has(gpu, Trouble.COUNTER_STANDS):
            stood_j, _ = self._stands.setdefault(gpu, (counted_j, skips))
            return stood_j
        stood_j, skips = self._stands.pop(gpu, (counted_j, False))
        if not skips:
            return counted_j
        self._left_out_j[gpu] = self._left_out_j.get(gpu, 0.0) + counted_j - stood_j
        return stood_j

    def _has(self, gpu: int, trouble: Trouble) -> bool:
        now_s = self._clock.now()
        episodes = self._state.machine.cards[gpu].episodes
        return any(one.trouble is trouble and one.lasts(now_s) for one in episodes)

    def _shown(self, gpu: int) -> "Shown":
        with self._one_thread:
            return self.physics().shown(self._first + gpu)

    def physics(self) -> "Physics":
        """The machine as it is now, with the others that its job runs on."""
        if self._physics is None:
            from autocap.testing.nvml.physics import Physics

            self._physics = Physics(self._clock)
        state, self._first = self._board.whole()
        self._physics.sync(state)
        return self._physics


def _is_there(pid: int) -> bool:
    process = identify(pid)
    return process is not None and process.is_alive()


def _list(pids: Sequence[int], count: Any, processes: Any) -> None:
    """Hand over processes, or how much room they need."""
    room = count._obj.value
    write_to(count, len(pids))
    if processes is None and not pids:
        return
    if processes is None or room < len(pids):
        raise Failed(_TOO_SMALL)
    for place, pid in enumerate(pids):
        processes[place].pid = pid
        processes[place].usedGpuMemory = 1 << 30
