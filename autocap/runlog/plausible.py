"""Which records are taken from a file: those that a run can have written, so that reports may reckon with every number.

The types are `decode`'s concern; here it is magnitudes, and what belongs together. Whatever is refused is a damaged
line to whoever reads a log.
"""

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache

from autocap.events import CapSet, DeviceFound, PerGpuDecided, PerGpuTried
from autocap.events.sweep import FinishedRun, GpuSet, SweepPlan, Used
from autocap.records import GpuEnergy, Measurement, Prediction

_LARGEST = {"_s": 1e10, "_w": 1e9, "_j": 1e18}  # by unit: three centuries, a power station, and its year
_LARGEST_OTHER = 1e15
_LEAST = 1e-9  # of what is divided by: seconds, joules, watts, ratios, prices
_LONGEST = 10_000  # items: caps of a grid, devices
_MOST_RUNS = 20_000  # of a sweep


def require_plausible(record: object) -> None:
    """Raises ValueError for a record with a number that no run can have come to, or parts that do not go together."""
    kind: type = type(record)
    for name, key in _names(kind):
        _require(key, getattr(record, name))
    check = _CHECKS.get(type(record))
    if check is not None and not check(record):
        raise ValueError(f"{type(record).__name__} has parts that do not go together")


@cache
def _names(kind: type) -> tuple[tuple[str, str], ...]:
    """Of each field its name, and what it is written under, which says its unit."""
    return tuple((field.name, field.metadata.get("key") or field.name) for field in fields(kind))


def _require(name: str, value: object) -> None:
    if isinstance(value, float):
        uncertain = "stderr" in name
        within = abs(value) <= _LARGEST.get(name[-2:], _LARGEST_OTHER) or (uncertain and value == math.inf)
        if not within or (uncertain and value < 0):
            raise ValueError(f"{name} is beyond all measure")
    elif isinstance(value, tuple):
        if len(value) > _LONGEST and not isinstance(value[0], str):
            raise ValueError(f"{name} has more than {_LONGEST} items")
        for item in value:
            _require(name, item)
    elif is_dataclass(value):
        require_plausible(value)


def _all_positive(*values: float) -> bool:
    return min(values) >= _LEAST


def _plan(plan: SweepPlan) -> bool:
    labels = {one.label for one in plan.sets}
    runs = plan.repeats * sum(len(one.caps_w) for one in plan.sets)
    return len(labels) == len(plan.sets) > 0 and plan.repeats > 0 and runs <= _MOST_RUNS and plan.seed >= 0


_CHECKS: dict[type, Callable[..., bool]] = {
    DeviceFound: lambda found: len(found.gpus) == len(found.original) > 0,
    CapSet: lambda event: bool(event.setting),
    PerGpuTried: lambda event: bool(event.setting),
    PerGpuDecided: lambda event: bool(event.setting),
    Measurement: lambda one: bool(one.setting) and _all_positive(one.period_s, one.energy_per_iteration_j, one.power_w),
    GpuEnergy: lambda part: part.energy_per_iteration_j >= _LEAST and abs(part.time_energy_corr) <= 1 + 1e-9,
    Prediction: lambda one: _all_positive(one.energy, one.time),
    GpuSet: lambda one: bool(one.gpus),
    SweepPlan: _plan,
    Used: lambda used: bool(used.energy_j) and used.time_s >= _LEAST,
    FinishedRun: lambda one: one.used is not None or one.trouble is not None,
}
