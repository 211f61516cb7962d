"""How samples are written: a line each of `samples.csv.gz`."""

from collections.abc import Callable

from autocap.records import NodeReading, Reading, Sample

# One device's columns, in order; `autocap period` reads t_s and power_w.
_COLUMNS: dict[str, Callable[[Reading], float | bool | None]] = {
    "power_w": lambda reading: reading.power_w,
    "read_t_s": lambda reading: reading.t_s,
    "energy_j": lambda reading: reading.energy_j,
    "beside_j": lambda reading: reading.beside_j,
    "requested_w": lambda reading: reading.requested_w,
    "enforced_w": lambda reading: reading.enforced_w,
    "sm_clock_hz": lambda reading: reading.sm_clock_hz,
    "cap_binding": lambda reading: reading.cap_binding,
    "throttled": lambda reading: reading.throttled,
    "utilisation": lambda reading: reading.utilisation,
    "temperature_c": lambda reading: reading.temperature_c,
}


_NODE_COLUMNS: dict[str, Callable[[NodeReading], float | bool | None]] = {
    "node_power_w": lambda node: node.power_w,
    "node_read_t_s": lambda node: node.t_s,
    "node_energy_j": lambda node: node.energy_j,
    "node_whole": lambda node: node.whole,
}


def header(sample: Sample) -> str:
    """Column names. Several devices have a total, power_w, and columns of their own: power_w_0, energy_j_0, …"""
    devices = len(sample.readings)
    if devices == 1:
        of_devices = list(_COLUMNS)
    else:
        of_devices = ["power_w"] + [f"{name}_{index}" for index in range(devices) for name in _COLUMNS]
    of_node = [] if sample.node is None else list(_NODE_COLUMNS)
    return ",".join(["t_s", *of_devices, "steps", "step_t_s", *of_node]) + "\n"


def row(sample: Sample) -> str:
    """One sample as a line of the file; nothing stands where something is unknown."""
    values: list[float | bool | None] = [sample.t_s]
    if len(sample.readings) != 1:
        powers = [reading.power_w for reading in sample.readings if reading.power_w is not None]
        values.append(sum(powers) if powers and len(powers) == len(sample.readings) else None)
    values += [column(reading) for reading in sample.readings for column in _COLUMNS.values()]
    values += [sample.steps.count, sample.steps.t_s] if sample.steps else [None, None]
    if sample.node is not None:
        values += [column(sample.node) for column in _NODE_COLUMNS.values()]
    return ",".join(map(_cell, values)) + "\n"


def _cell(value: float | bool | None) -> str:
    """A number to a millionth, in the fewest digits; nothing where it is unknown."""
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")
