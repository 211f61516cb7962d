"""How samples are written: a line each of `samples.csv.gz`."""

from operator import attrgetter

from autocap.records import Sample

_READING = ("energy_j", "beside_j", "requested_w", "enforced_w", "sm_clock_hz", "cap_binding", "throttled",
            "utilisation", "temperature_c")  # fmt: skip
# A column of a device each, in order, and what of its reading stands in it; `autocap period` reads t_s and power_w.
_COLUMNS = {"power_w": "power_w", "read_t_s": "t_s", **{name: name for name in _READING}}
_OF_DEVICE = attrgetter(*_COLUMNS.values())
_OF_NODE = attrgetter("power_w", "t_s", "energy_j", "whole")


def header(sample: Sample) -> str:
    """Column names. Several devices have a total, power_w, and columns of their own: power_w_0, energy_j_0, …"""
    devices = len(sample.readings)
    if devices == 1:
        of_devices = list(_COLUMNS)
    else:
        of_devices = ["power_w"] + [f"{name}_{index}" for index in range(devices) for name in _COLUMNS]
    of_node = [] if sample.node is None else ["node_power_w", "node_read_t_s", "node_energy_j", "node_whole"]
    return ",".join(["t_s", *of_devices, "steps", "step_t_s", *of_node]) + "\n"


def row(sample: Sample) -> str:
    """One sample as a line of the file; nothing stands where something is unknown."""
    values: list[float | bool | None] = [sample.t_s]
    if len(sample.readings) != 1:
        powers = [reading.power_w for reading in sample.readings if reading.power_w is not None]
        values.append(sum(powers) if powers and len(powers) == len(sample.readings) else None)
    for reading in sample.readings:
        values += _OF_DEVICE(reading)
    values += [sample.steps.count, sample.steps.t_s] if sample.steps else [None, None]
    if sample.node is not None:
        values += _OF_NODE(sample.node)
    return ",".join(map(_cell, values)) + "\n"


def _cell(value: float | bool | None) -> str:
    """A number to a millionth, in the fewest digits; nothing where it is unknown."""
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")
