"""`autocap devices`."""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from autocap.cli import cpu_packages
from autocap.clock import MonotonicClock
from autocap.devices import permission
from autocap.errors import DeviceError

if TYPE_CHECKING:
    from rich.console import Console

    from autocap.devices.nvml import Library, NvmlGpu, SensorProbe

_PLAIN_WIDTH = 160  # characters, where the reader is no terminal


class Devices:
    """Show the GPUs and CPU packages of this machine: their limits, whether we could set them, and how their power
    sensors behave.

    It only reads, and watches the GPUs' sensors for some seconds. Exit status 0 also where there is none, or no driver.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--json",
            action="store_true",
            help="print {driver_version, unavailable, gpus, packages, packages_unavailable}; what is unknown is null, "
            'and settable "unknown"',
        )

    def run(self, args: argparse.Namespace) -> int:
        from autocap.devices import nvml  # loads the driver's library, which `--help` has no use for

        try:
            with nvml.open_library() as library:
                found = _look(library)
        except DeviceError as error:  # no driver, or one that fails
            found = _Found(driver_version=None, unavailable=str(error), gpus=())
        cpus = cpu_packages.look()
        if args.json:
            print(json.dumps({**asdict(found), **asdict(cpus)}, allow_nan=False))
        else:
            _show(found, cpus)
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sensor:
    """What the JSON says of a sensor.

    source: what power is read from. update_s: between fresh readings. counter_j, integrated_j: the same stretch of time
    by the energy counter and by the power readings. trouble: why the sensor, or its counter, is not to be used.
    """

    source: str | None = None
    update_s: float | None = None
    energy_counter: bool | None = None
    counter_j: float | None = None
    integrated_j: float | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu:
    index: int
    uuid: str
    name: str
    cap_min_w: float | None
    cap_max_w: float | None
    cap_default_w: float | None
    cap_requested_w: float | None
    cap_enforced_w: float | None
    settable: bool | Literal["unknown"]
    settable_why: str
    persistence: bool | None
    mig: bool
    sensor: _Sensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """unavailable: why no GPU is shown, or not every one."""

    driver_version: str | None
    unavailable: str | None
    gpus: tuple[_Gpu, ...]


def _look(library: "Library") -> _Found:
    inventory = library.inventory()
    missing = library.unreadable or (() if inventory else ("the NVIDIA driver shows no GPU here",))
    privileges = permission.own_privileges()
    sensors = _sensors(library, [gpu.uuid for gpu in inventory])
    return _Found(
        driver_version=inventory[0].driver_version if inventory else None,
        unavailable="; ".join(missing) or None,
        gpus=tuple(_gpu(gpu, sensor, privileges) for gpu, sensor in zip(inventory, sensors, strict=True)),
    )


def _gpu(gpu: "NvmlGpu", sensor: _Sensor, privileges: permission.Privileges) -> _Gpu:
    settable = permission.settable(gpu.limit_support, privileges)
    return _Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        cap_min_w=None if gpu.cap_range is None else gpu.cap_range.min_w,
        cap_max_w=None if gpu.cap_range is None else gpu.cap_range.max_w,
        cap_default_w=gpu.default_w,
        cap_requested_w=gpu.requested_w,
        cap_enforced_w=gpu.enforced_w,
        settable=settable.answer,
        settable_why=settable.why,
        persistence=gpu.persistence,
        mig=gpu.mig,
        sensor=sensor,
    )


def _sensors(library: "Library", uuids: Sequence[str]) -> list[_Sensor]:
    """All are watched at the same time; where one fails, each by itself."""
    from autocap.devices.nvml import probe_sensor

    clock = MonotonicClock()
    with suppress(DeviceError):
        return [_sensor(probe) for probe in probe_sensor(library, uuids, clock)]
    found = []
    for uuid in uuids:
        try:
            (probe,) = probe_sensor(library, [uuid], clock)
            found.append(_sensor(probe))
        except DeviceError as error:
            found.append(_Sensor(trouble=str(error)))
    return found


def _sensor(probe: "SensorProbe") -> _Sensor:
    return _Sensor(
        source=probe.source.value,
        update_s=probe.update_s,
        energy_counter=probe.has_counter,
        counter_j=probe.counter_j,
        integrated_j=probe.integrated_j,
        trouble=None if probe.counter_trouble is None else f"the energy counter {probe.counter_trouble}",
    )


def _show(found: _Found, cpus: cpu_packages.ShownPackages) -> None:
    """Tables, and what does not fit into one; the width of the terminal, or wide enough for a file."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False)
    _show_gpus(console, found)
    _show_packages(console, cpus)


def _show_packages(console: "Console", cpus: cpu_packages.ShownPackages) -> None:
    from rich.text import Text

    if cpus.packages_unavailable is not None:
        console.print(Text(cpus.packages_unavailable), soft_wrap=True)
        return
    console.print(cpu_packages.table(cpus.packages))
    for package in cpus.packages:
        console.print(Text(f"package {package.index} is {package.uuid}; {package.settable_why}"), soft_wrap=True)
        if package.trouble is not None:
            console.print(Text(f"package {package.index}: {package.trouble}"), soft_wrap=True)


def _show_gpus(console: "Console", found: _Found) -> None:
    from rich.table import Table
    from rich.text import Text

    if found.unavailable is not None:
        console.print(Text(found.unavailable), soft_wrap=True)
    if not found.gpus:
        console.print("`autocap run --device emulated` works without a GPU: it plays one, with published power curves")
        return
    console.print(f"NVIDIA driver {found.driver_version}")
    table = Table(box=None, pad_edge=False)
    for title in ("GPU", "name", "limit W", "enforced W", "range W", "default W", "settable", "sensor", "J by counter"):
        table.add_column(title, justify="left" if title in ("name", "settable", "sensor") else "right")
    for gpu in found.gpus:
        table.add_row(*map(Text, _cells(gpu)))
    console.print(table)
    for gpu in found.gpus:
        console.print(Text(f"GPU {gpu.index} is {gpu.uuid}; {gpu.settable_why}"), soft_wrap=True)
        if gpu.sensor.trouble is not None:
            console.print(Text(f"GPU {gpu.index}: {gpu.sensor.trouble}"), soft_wrap=True)
        if gpu.persistence is False:
            console.print(f"GPU {gpu.index}: persistence mode is off, so a limit is lost when nobody uses the GPU")


def _cells(gpu: _Gpu) -> list[str]:
    sensor = gpu.sensor
    every = "moved too little to tell" if sensor.update_s is None else f"every {1000 * sensor.update_s:.0f} ms"
    compared = None if sensor.counter_j is None else f"{sensor.counter_j:.0f} (readings: {sensor.integrated_j:.0f})"
    return [
        str(gpu.index),
        gpu.name,
        _watts(gpu.cap_requested_w),
        _watts(gpu.cap_enforced_w),
        "–" if gpu.cap_min_w is None else f"{_watts(gpu.cap_min_w)}–{_watts(gpu.cap_max_w)}",
        _watts(gpu.cap_default_w),
        {True: "yes", False: "no", "unknown": "unknown"}[gpu.settable],
        "–" if sensor.source is None else f"{sensor.source}, {every}",
        compared or "–",
    ]


def _watts(limit_w: float | None) -> str:
    return "–" if limit_w is None else f"{limit_w:g}"
