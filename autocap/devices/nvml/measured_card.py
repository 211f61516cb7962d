"""What the functions and sensors of one GPU do, measured: for `autocap doctor --record`. Nothing here sets anything."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pynvml
from numpy.typing import NDArray

from autocap.clock import Clock
from autocap.devices.nvml.library import Library
from autocap.devices.nvml.probe import POLL_S
from autocap.devices.nvml.state import GPU_SCOPE, INSTANT_POWER, MODULE_SCOPE, FieldValue, NvmlError, call, read_fields

Floats = NDArray[np.float64]
POLLED = ("t_s", "instant_w", "instant_stamp_s", "average_w", "module_w", "usage_w", "energy_j", "utilisation")
_POWERS = ((INSTANT_POWER, GPU_SCOPE), (185, GPU_SCOPE), (INSTANT_POWER, MODULE_SCOPE))  # 185: the mean of a second
_TIMES, _WITHIN_S = 200, 1.0  # that each function is asked, and for how long at most
_FEWEST = 5  # moves
_LEVEL_S, _STEP = 0.5, 0.2  # a level is what is seen so long; a step is so much of the higher one
_LAGS = 5  # updates over which noise is compared with itself
_OF_A_GPU = (  # that take a handle and nothing else
    "nvmlDeviceGetIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMigMode", "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetVirtualizationMode", "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetPowerManagementLimitConstraints", "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTime:
    """codes: how often each nvmlReturn_t came. median_s, p99_s: of the time that a call takes, failures included."""

    codes: dict[int, int]
    median_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """How a quantity becomes fresh. every_s: the mean interval; early_s, late_s: nine in ten are between them.
    wander_s: how far updates are from those of an even clock, one sigma. step: the smallest change."""

    count: int
    every_s: float
    early_s: float
    late_s: float
    wander_s: float
    step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """From steps of the load until half of the change is seen, and nine tenths of it: medians, seconds."""

    steps: int
    half_s: float
    most_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Of fresh readings. relative: standard deviation by mean. colour: their correlation with those one update before,
    two, and so on."""

    readings: int
    mean_w: float
    relative: float
    colour: tuple[float, ...]


def questions(library: Library, uuid: str) -> dict[str, Callable[[], object]]:
    """What is asked where GPUs are looked for and read, by the function of the binding."""
    handle = library.handle(uuid)
    with_more: dict[str, tuple[object, ...]] = {
        "nvmlSystemGetDriverVersion": (),
        "nvmlDeviceGetCount": (),
        "nvmlDeviceGetHandleByIndex": (0,),
        "nvmlDeviceGetHandleByUUID": (uuid,),
        "nvmlDeviceGetClockInfo": (handle, pynvml.NVML_CLOCK_SM),
        "nvmlDeviceGetMaxClockInfo": (handle, pynvml.NVML_CLOCK_SM),
        "nvmlDeviceGetTemperature": (handle, pynvml.NVML_TEMPERATURE_GPU),
        "nvmlDeviceGetSamples": (handle, pynvml.NVML_TOTAL_POWER_SAMPLES, 0),
        "nvmlDeviceGetFieldValues": (handle, list(_POWERS)),
    }
    asked = with_more | dict.fromkeys(_OF_A_GPU, (handle,))
    return {name: partial(getattr(pynvml, name), *given) for name, given in asked.items()}


def call_times(library: Library, uuid: str) -> dict[str, CallTime]:
    """Each of these, asked again and again."""
    return {name: _timed(ask) for name, ask in questions(library, uuid).items()}


def _timed(ask: Callable[[], object]) -> CallTime:
    codes, taken_s, begun_s = Counter[int](), list[float](), time.perf_counter()
    while len(taken_s) < _TIMES and time.perf_counter() < begun_s + _WITHIN_S:
        asked_s, code = time.perf_counter(), 0
        try:
            ask()
        except pynvml.NVMLError as error:
            code = int(error.value)
        taken_s.append(time.perf_counter() - asked_s)
        codes[code] += 1
    median_s, p99_s = np.quantile(taken_s, [0.5, 0.99])
    return CallTime(codes=dict(codes), median_s=float(median_s), p99_s=float(p99_s))


def fields(library: Library, uuid: str) -> dict[str, FieldValue]:
    """All fields of power and energy that the binding has a name for, of the GPU and of its module."""
    handle, found = library.handle(uuid), {}
    for name, field in vars(pynvml).items():
        if name.startswith("NVML_FI_") and ("POWER" in name or "ENERGY" in name):
            for scope, where in ((GPU_SCOPE, ""), (MODULE_SCOPE, " of the module")):
                (answer,) = read_fields(f"reading {name}", handle, [(field, scope)])
                found[f"{name.removeprefix('NVML_FI_').removeprefix('DEV_')} ({field}){where}"] = answer
    return found


def cuda_version() -> str | None:
    """That the driver supports; `None` where it does not say."""
    try:
        number = int(call("reading the CUDA version", pynvml.nvmlSystemGetCudaDriverVersion_v2))
    except NvmlError:
        return None
    return f"{number // 1000}.{number % 1000 // 10}"


def poll(library: Library, uuid: str, clock: Clock, until: Callable[[], bool]) -> Floats:
    """What the sensors show, asked as fast as may be until something is so: columns as POLLED, NaN for what is not
    there. Raises NvmlError where the GPU is lost."""
    handle, rows = library.handle(uuid), []
    while not until():
        rows.append((clock.now(), *_powers(handle), *(_number(ask, handle) for ask in _NUMBERS)))
        library.pause(POLL_S)
    return np.array(rows).reshape(-1, len(POLLED))


_NUMBERS: tuple[Callable[[object], float], ...] = (
    lambda handle: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    lambda handle: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000,
    lambda handle: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
)


def _powers(handle: object) -> tuple[float, float, float, float]:
    try:
        instant, average, module = read_fields("reading power", handle, _POWERS)
    except NvmlError as error:
        if error.lost:
            raise
        return (math.nan,) * 4
    instant_w, *others_w = (one.value / 1000 if one.code == 0 else math.nan for one in (instant, average, module))
    return instant_w, instant.stamp_us / 1e6, *others_w  # type: ignore[return-value]  # three


def _number(ask: Callable[[object], float], handle: object) -> float:
    try:
        return call("reading a sensor", ask, handle)
    except NvmlError as error:
        if error.lost:
            raise
        return math.nan


def _moves(t_s: Floats, values: Floats) -> tuple[Floats, Floats]:
    """When another value was seen, and which."""
    there = np.isfinite(values)
    t_s, values = t_s[there], values[there]
    moved = np.flatnonzero(np.diff(values)) + 1
    return t_s[moved], values[moved]


def updates(t_s: Floats, values: Floats) -> Updates | None:
    """`None` of what hardly moves. Two equal values in succession look like one that took twice as long, so intervals
    far from the usual one are left out."""
    moved_s, moved = _moves(t_s, values)
    if len(moved_s) <= _FEWEST:
        return None
    apart_s = np.diff(moved_s)
    near_s = apart_s[np.abs(apart_s / np.median(apart_s) - 1) <= 0.5]
    number = np.concatenate([[0], np.cumsum(np.round(apart_s / near_s.mean()))])
    even_s = np.polyval(np.polyfit(number, moved_s, 1), number)
    early_s, late_s = np.quantile(near_s, [0.05, 0.95])
    return Updates(
        count=len(moved_s),
        every_s=float(near_s.mean()),
        early_s=float(early_s),
        late_s=float(late_s),
        wander_s=float(np.std(moved_s - even_s)),
        step=float(np.abs(np.diff(moved)).min()),
    )


def lag(t_s: Floats, values: Floats, edges_s: Sequence[float]) -> Lag | None:
    """edges_s: when the load began and ended, in turns; the last one ends what is looked at. `None` where nothing
    follows it."""
    halves_s, most_s = list[float](), list[float]()
    for edge_s, next_s in pairwise(edges_s):
        low, high = (values[(t_s >= end_s - _LEVEL_S) & (t_s < end_s)] for end_s in (edge_s, next_s))
        if not (np.isfinite(low).any() and np.isfinite(high).any()):
            continue
        before, after = np.nanmedian(low), np.nanmedian(high)
        if abs(after - before) < _STEP * max(before, after):
            continue
        within = (t_s >= edge_s) & (t_s < next_s)
        part = (values[within] - before) / (after - before)
        for share, found in ((0.5, halves_s), (0.9, most_s)):
            found.append(float(t_s[within][np.argmax(part >= share)] - edge_s))
    if not halves_s:
        return None
    return Lag(steps=len(halves_s), half_s=float(np.median(halves_s)), most_s=float(np.median(most_s)))


def noise(t_s: Floats, power_w: Floats) -> Noise | None:
    """Of power at a constant load; `None` of too few readings."""
    _, fresh_w = _moves(t_s, power_w)
    if len(fresh_w) < 10 * _LAGS:
        return None
    off_w, mean_w = fresh_w - fresh_w.mean(), float(fresh_w.mean())
    colour = tuple(float((off_w[one:] * off_w[:-one]).mean() / off_w.var()) for one in range(1, _LAGS + 1))
    return Noise(readings=len(fresh_w), mean_w=mean_w, relative=float(fresh_w.std() / mean_w), colour=colour)
