"""The tables and sentences of `autocap devices`."""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from autocap.cli.device_report import DeviceReport, Gpu, Limited, Package
from autocap.cli.device_setters import others
from autocap.printing import columns, encoding_of, put

if TYPE_CHECKING:
    from autocap.reports.document import Table

_PLAIN_WIDTH = 160  # characters, where the reader is no terminal
_GPU = ("GPU", "name", "limit W", "enforced W", "range W", "default W", "settable", "J by counter", "sensor")
_PACKAGE = ("package", "name", "limit W", "enforced W", "range W", "window s", "settable", "energy")
_GPU_SPARE, _PACKAGE_SPARE, _LEFT = (7, 3, 5, 1), (5, 3, 1), (1, 6)


def show(found: DeviceReport) -> None:
    """Of this machine."""
    _put(_lines(found))


def show_nodes(found: Mapping[str, DeviceReport | str]) -> None:
    """Of several: by a node's name what there is, or why that is not known."""
    _put(_lines_on_nodes(found))


def _put(parts: "Iterator[str | Table]") -> None:
    from autocap.reports.text import table_lines

    width, encoding = columns(sys.stdout) or _PLAIN_WIDTH, encoding_of(sys.stdout)
    for part in parts:
        put(*([part] if isinstance(part, str) else table_lines(part, width, encoding)))


def _lines(found: DeviceReport) -> "Iterator[str | Table]":
    yield from _lines_on_gpus(found)
    yield from _lines_on_packages(found)
    yield from _budget(found)
    for kind, module in found.other_kinds.items():
        yield f"`--device {kind}` is there too, from another package ({module})"


def _budget(found: DeviceReport) -> Iterator[str]:
    if (one := found.budget) is not None:
        held = f"{len(one['gpus'])} GPU{'s' * (len(one['gpus']) > 1)}"
        yield f"a power budget of {one['watts']:g} W runs here (PID {one['pid']}), which sets the limits of {held}"


def _lines_on_nodes(nodes: Mapping[str, DeviceReport | str]) -> "Iterator[str | Table]":
    """Two tables for all of them, and of each what keeps limits from being set, or power from being measured."""
    there = {node: found for node, found in nodes.items() if not isinstance(found, str)}
    yield from _node_table(
        _GPU, [(node, _gpu_row(gpu)) for node, found in there.items() for gpu in found.gpus], _GPU_SPARE
    )
    packages = [(node, _package_row(one)) for node, found in there.items() for one in found.packages]
    yield from _node_table(_PACKAGE, packages, _PACKAGE_SPARE)
    for node, found in nodes.items():
        yield from (f"{node}: {said}" for said in ([found] if isinstance(found, str) else _obstacles(found)))


def _node_table(
    titles: tuple[str, ...], rows: list[tuple[str, tuple[str, ...]]], spare: tuple[int, ...]
) -> "Iterator[Table]":
    from autocap.reports.document import Table

    if rows:
        yield Table(
            heading="",
            titles=("node", *titles),
            rows=tuple((node, *cells) for node, cells in rows),
            spare=tuple(column + 1 for column in spare),
            left=(0, *(column + 1 for column in _LEFT)),
        )


def _obstacles(found: DeviceReport) -> Iterator[str]:
    if found.unavailable is not None:
        yield found.unavailable
    for name, one in (*(("GPU", gpu) for gpu in found.gpus), *(("package", one) for one in found.packages)):
        if one.settable is not True:
            yield f"{name} {one.index}: {one.settable_why}"
    for gpu in found.gpus:
        yield from _sensor_lines(gpu)
    yield from _budget(found)


def _sensor_lines(gpu: Gpu) -> Iterator[str]:
    if gpu.sensor.trouble is not None:
        yield f"GPU {gpu.index}: {gpu.sensor.trouble}"
    if gpu.persistence is False:
        yield f"GPU {gpu.index}: persistence mode is off, so a limit is lost when nobody uses the GPU"


def _lines_on_gpus(found: DeviceReport) -> "Iterator[str | Table]":
    """Sentences, and a table."""
    from autocap.reports.document import Table

    if found.unavailable is not None:
        yield found.unavailable
    if not found.gpus:
        yield "`autocap run --device emulated` works without a GPU: it plays one, with published power curves"
        return
    yield f"NVIDIA driver {found.driver_version}"
    rows = tuple(map(_gpu_row, found.gpus))
    yield Table(heading="", titles=_GPU, rows=rows, spare=_GPU_SPARE, left=_LEFT)
    for gpu in found.gpus:
        yield f"GPU {gpu.index} is {gpu.uuid}; {gpu.settable_why}"
        yield from (f"GPU {gpu.index}, {said}" for said in others(gpu.setters))
        yield from _sensor_lines(gpu)


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    sensor = gpu.sensor
    every = "moved too little to tell" if sensor.update_s is None else f"every {1000 * sensor.update_s:.0f} ms"
    compared = None if sensor.counter_j is None else f"{sensor.counter_j:.0f} (readings: {sensor.integrated_j:.0f})"
    source = "–" if sensor.source is None else f"{sensor.source}, {every}"
    return (*_limit_cells(gpu), _number(gpu.cap_default_w), _yes_no(gpu), compared or "–", source)


def _lines_on_packages(found: DeviceReport) -> "Iterator[str | Table]":
    from autocap.reports.document import Table

    if found.packages_unavailable is not None:
        yield found.packages_unavailable
        return
    rows = tuple(map(_package_row, found.packages))
    yield Table(heading="", titles=_PACKAGE, rows=rows, spare=_PACKAGE_SPARE, left=_LEFT)
    for package in found.packages:
        yield f"package {package.index} is {package.uuid}; {package.settable_why}"
        yield from (f"package {package.index}, {said}" for said in others(package.setters))
        if package.trouble is not None:
            yield f"package {package.index}: {package.trouble}"


def _package_row(package: Package) -> tuple[str, ...]:
    energy = "package and memory" if package.memory else "package"
    window = "–" if package.window_s is None else f"{package.window_s:.4g}"
    return (*_limit_cells(package), window, _yes_no(package), energy if package.trouble is None else "cannot be read")


def _limit_cells(one: Limited) -> tuple[str, ...]:
    range_w = "–" if one.cap_min_w is None else f"{_number(one.cap_min_w)}–{_number(one.cap_max_w)}"
    return str(one.index), one.name, _number(one.cap_requested_w), _number(one.cap_enforced_w), range_w


def _yes_no(one: Limited) -> str:
    return {True: "yes", False: "no", "unknown": "unknown"}[one.settable]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
