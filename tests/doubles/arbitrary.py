"""Whatever a record may hold, for hypothesis: of any record, of measurements, and of samples as a device gives them."""

import dataclasses
import types
import typing
from enum import Enum
from functools import cache

import numpy as np
from hypothesis import strategies as st

from autocap import records
from autocap.events import DeviceFound
from autocap.events.sweep import FinishedRun, GpuSet, SweepPlan, Used

finite = st.floats(min_value=-1e9, max_value=1e9)  # more is beyond what a run can come to
ratios = st.floats(min_value=1e-3, max_value=1e3)
errors = st.floats(min_value=0.0, max_value=0.5)
watts = st.floats(min_value=1.0, max_value=1000.0)


@st.composite
def measurements(draw: st.DrawFn, devices: int = 1, cap_w: float | None = None) -> records.Measurement:
    """One that a window could have given."""
    period_s, energy_j, iterations = draw(ratios), draw(ratios), draw(st.floats(min_value=1.0, max_value=1e6))
    energy_error, corr = draw(errors), draw(st.floats(min_value=-1.0, max_value=1.0))
    power_w, power_error = energy_j / period_s, draw(errors)
    whole = records.GpuEnergy(
        power_w=power_w,
        power_rel_stderr=power_error,
        energy_per_iteration_j=energy_j,
        energy_rel_stderr=energy_error,
        time_energy_corr=corr,
    )
    return records.Measurement(
        setting=tuple(draw(watts) if cap_w is None else cap_w for _ in range(devices)),
        start_s=draw(st.floats(min_value=0.0, max_value=1e6)),
        duration_s=period_s * iterations,
        iterations=iterations,
        period_s=period_s,
        period_rel_stderr=draw(errors),
        power_w=power_w,
        power_rel_stderr=power_error,
        energy_per_iteration_j=energy_j,
        energy_rel_stderr=energy_error,
        time_energy_corr=corr,
        cap_binding=draw(st.none() | st.booleans()),
        sm_clock_hz=draw(st.none() | st.floats(min_value=1e6, max_value=1e10)),
        gpu=draw(st.none() | st.just(whole)),
    )


@st.composite
def _cap_ranges(draw: st.DrawFn) -> records.CapRange:
    min_w, default_w, max_w = sorted(draw(st.tuples(watts, watts, watts)))
    return records.CapRange(min_w=min_w, max_w=max_w, default_w=default_w)


@st.composite
def _trials(draw: st.DrawFn) -> records.Trial:
    state, reason = draw(st.sampled_from(records.TrialState)), draw(st.none() | st.text())
    if state is records.TrialState.FAILED:
        return records.Trial(setting=draw(watts), state=state, reason=reason)
    return records.Trial(
        setting=draw(watts),
        state=state,
        reason=reason,
        cost=draw(finite),
        cost_stderr=draw(_stderrs),
        measurement=draw(measurements()),
    )


@st.composite
def _devices_found(draw: st.DrawFn) -> DeviceFound:
    gpus = draw(st.lists(of(records.GpuInfo), min_size=1, max_size=3))
    original_w = draw(st.lists(st.none() | watts, min_size=len(gpus), max_size=len(gpus)))
    return DeviceFound(
        t_s=draw(finite),
        kind=draw(st.text()),
        emulated=draw(st.booleans()),
        gpus=tuple(gpus),
        original=tuple(original_w),
        driver=draw(st.none() | st.text()),
    )


@st.composite
def _plans(draw: st.DrawFn) -> SweepPlan:
    sets = draw(st.lists(of(GpuSet), min_size=1, max_size=3, unique_by=lambda one: one.label))
    return SweepPlan(
        command=draw(of(tuple[str, ...])),
        name=draw(st.text()),
        device=draw(st.text()),
        emulated=draw(st.booleans()),
        sets=tuple(sets),
        repeats=draw(st.integers(1, 5)),
        order=draw(st.sampled_from(["random", "descending"])),
        seed=draw(st.integers(0, 2**32)),
        discard=draw(st.booleans()),
        cool_down_s=draw(errors),
        stop_slowdown=draw(st.none() | errors),
        observe=draw(st.booleans()),
        node_power=draw(st.text()),
    )


@st.composite
def _gpu_sets(draw: st.DrawFn) -> GpuSet:
    caps_w = sorted(draw(st.sets(watts, min_size=1, max_size=3)), reverse=True)
    gpus = tuple(draw(st.lists(of(records.GpuInfo), min_size=1, max_size=2)))
    return GpuSet(label=draw(st.text()), gpus=gpus, baseline_w=draw(st.sampled_from(caps_w)), caps_w=tuple(caps_w))


_predictions = st.builds(
    records.Prediction,
    setting=watts,
    energy=ratios,
    time=ratios,
    energy_rel_stderr=ratios,
    period_rel_stderr=ratios,
    time_energy_corr=st.floats(min_value=-1.0, max_value=1.0),
)
_stderrs = st.floats(min_value=0.0, max_value=1e9)
_used = st.builds(
    Used,
    time_s=ratios,
    energy_j=st.lists(errors, min_size=1, max_size=3).map(tuple),
    missing=st.integers(0, 3),
    node_j=st.none() | ratios,
    node_gap_s=errors,
)
_sensors = st.builds(records.SensorInfo, update_s=ratios, window_s=errors, settle_s=errors)
# Records that refuse some values; all others take whatever their types allow.
_CHECKED: dict[type, st.SearchStrategy[object]] = {
    records.CapRange: _cap_ranges(),
    records.Measurement: measurements(),
    records.Trial: _trials(),
    records.Prediction: _predictions,
    records.SensorInfo: _sensors,
    GpuSet: _gpu_sets(),
    DeviceFound: _devices_found(),
    SweepPlan: _plans(),
    Used: _used,
}


def _stderr(hint: object) -> st.SearchStrategy[float | None]:
    return st.none() | _stderrs if type(None) in typing.get_args(hint) else _stderrs


@cache
def of(kind: object) -> st.SearchStrategy[typing.Any]:
    """Any value of a type that a record may have."""
    if kind in _CHECKED:
        return _CHECKED[kind]  # type: ignore[index]  # what is in there is a type
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        names = [one.name for one in dataclasses.fields(kind)]
        parts = {name: _stderr(hints[name]) if "stderr" in name else of(hints[name]) for name in names}
        if kind is FinishedRun:
            parts["trouble"] = st.text()
        return st.builds(kind, **parts)
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return st.one_of(*map(of, typing.get_args(kind)))
    if typing.get_origin(kind) is tuple:
        item, rest = typing.get_args(kind)
        assert rest is Ellipsis
        return st.lists(of(item), min_size=1, max_size=3).map(tuple)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    plain = {
        float: finite,
        int: st.integers(-(2**53), 2**53),
        bool: st.booleans(),
        str: st.text(st.characters(exclude_categories=["Cs"]) | st.just("\udcff")),  # a byte that is not UTF-8
        type(None): st.none(),
    }
    return plain[kind]  # type: ignore[index]  # likewise


@st.composite
def samples(
    draw: st.DrawFn, *, fewest: int = 1, most: int = 20, gaps: bool = True, counts: bool = True, nodes: bool = True
) -> list[records.Sample]:
    """What a run's devices give one after the other: one kind of counter and of node throughout.

    gaps: readings may be missing. counts: there may be energy counters. nodes: the machine's power may be read. The
    numbers come from a seed, as drawing each of them would take far longer than what is tested.
    """
    devices, count = draw(st.integers(1, 3)), draw(st.integers(fewest, most))
    has_counter, has_node, node_counts = (
        counts and draw(st.booleans()),
        nodes and draw(st.booleans()),
        draw(st.booleans()),
    )
    missing, whole = draw(st.sampled_from([0.0, 0.1, 0.5])) if gaps else 0.0, draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    times_s = np.cumsum(rng.choice([0.001, 0.1, 0.5, 10.0], count)).tolist()
    powers_w = np.where(rng.random((count, devices + 1)) < missing, np.nan, rng.uniform(1, 1000, (count, devices + 1)))
    counters_j = np.cumsum(rng.choice([0.0, 0.1, 100.0], (count, devices + 1)), axis=0).tolist()

    def at(place: int) -> records.Sample:
        t_s = times_s[place]
        *gpus, node = zip(
            [None if np.isnan(w) else w for w in powers_w[place].tolist()], counters_j[place], strict=True
        )
        readings = tuple(records.Reading(t_s=t_s, power_w=w, energy_j=j if has_counter else None) for w, j in gpus)
        reading = records.NodeReading(t_s=t_s, power_w=node[0], whole=whole, energy_j=node[1] if node_counts else None)
        return records.Sample(t_s=t_s, readings=readings, node=reading if has_node else None)

    return [at(place) for place in range(count)]
