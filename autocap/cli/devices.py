"""`autocap devices`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from autocap import devices
from autocap.budget.calling import ManagerLost, NoBudget, call
from autocap.budget.words import Ask, Standing
from autocap.cli.device_sensors import SensorSeen, sensors_of
from autocap.cli.device_setters import Setter, Setters, others, together
from autocap.devices import permission
from autocap.errors import DeviceError
from autocap.streams import put, put_json
from autocap.streams.terminal import columns, encoding_of

if TYPE_CHECKING:
    from autocap.devices.nvml import Library, NvmlGpu
    from autocap.devices.rapl import RaplPackage
    from autocap.reports.document import Table

_PLAIN_WIDTH = 160  # characters, where the reader is no terminal


class Devices:
    """Show the GPUs and CPU packages of this machine: their limits, who could set them, and how their power sensors
    behave.

    It only reads, and watches the GPUs' sensors for some seconds. Exit status 0 also where there is none, or no driver.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--json",
            action="store_true",
            help="print {driver_version, unavailable, gpus, packages, packages_unavailable, other_kinds, budget}; what "
            'is unknown is null, and settable "unknown"',
        )

    def run(self, args: argparse.Namespace) -> int:
        from autocap.devices import nvml, rapl  # which `--help` has no use for

        setters = Setters()
        driver_version: str | None = None
        gpus: tuple[_Gpu, ...] = ()
        packages: tuple[_Package, ...] = ()
        unavailable = packages_unavailable = None
        try:
            with nvml.open_library() as library:
                inventory = library.inventory()
                missing = library.unreadable or (() if inventory else ("the NVIDIA driver shows no GPU here",))
                unavailable = "; ".join(missing) or None
                driver_version = inventory[0].driver_version if inventory else None
                gpus = _gpus(library, inventory, setters)
        except DeviceError as error:  # no driver, or one that fails
            unavailable = str(error)
        try:
            packages = tuple(_package(package, setters) for package in rapl.inventory())
        except DeviceError as error:
            packages_unavailable = str(error)
        found = _Found(
            driver_version=driver_version,
            unavailable=unavailable,
            gpus=gpus,
            packages=packages,
            packages_unavailable=packages_unavailable,
            other_kinds=devices.plugged_in(),
            budget=_budget(),
        )
        if args.json:
            put_json(asdict(found))
        else:
            _show(found)
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limited:
    """What a GPU and a CPU package have in common; `None` for what is not there. settable: by any of the setters."""

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
    setters: tuple[Setter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu(_Limited):
    persistence: bool | None
    mig: bool
    sensor: SensorSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class _Package(_Limited):
    """zones: the kernel's, those of energy first. window_s: over which the limit holds. trouble: why energy cannot be
    read; `None` where it can."""

    zones: tuple[str, ...]
    window_s: float | None
    memory: bool
    trouble: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Budget:
    """That runs here. pid: of its manager. gpus: UUIDs of those whose limits it holds."""

    watts: float
    policy: str
    pid: int
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """unavailable: why no GPU is shown, or not every one; likewise packages_unavailable. other_kinds: of devices from
    other packages, with their modules. budget: `None` where none runs."""

    driver_version: str | None
    unavailable: str | None
    gpus: tuple[_Gpu, ...]
    packages: tuple[_Package, ...]
    packages_unavailable: str | None
    other_kinds: dict[str, str]
    budget: _Budget | None = None


def _budget() -> _Budget | None:
    try:
        with closing(call()) as there:
            standing = there.ask(Ask(), Standing)
    except (NoBudget, ManagerLost):
        return None
    held = (*standing.free, *(uuid for job in standing.jobs for uuid in job.devices))
    return _Budget(watts=standing.budget_w, policy=standing.policy, pid=standing.pid, gpus=tuple(sorted(held)))


def _gpus(library: "Library", inventory: "Sequence[NvmlGpu]", setters: Setters) -> tuple[_Gpu, ...]:
    sensors = sensors_of(library, [gpu.uuid for gpu in inventory])
    privileges = permission.own_privileges()
    found = []
    for gpu, sensor in zip(inventory, sensors, strict=True):
        who = setters.of_gpu(library, gpu, permission.settable(gpu.limit_support, privileges))
        found.append(_gpu(gpu, sensor, who))
    return tuple(found)


def _gpu(gpu: "NvmlGpu", sensor: SensorSeen, setters: tuple[Setter, ...]) -> _Gpu:
    settable = together(setters)
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
        setters=setters,
        persistence=gpu.persistence,
        mig=gpu.mig,
        sensor=sensor,
    )


def _package(package: "RaplPackage", setters: Setters) -> _Package:
    limit = package.limit
    range_w = None if limit is None else package.cap_range
    writable = limit is not None and limit.may_write()
    in_force = limit is not None and limit.in_force()
    direct = permission.settable_files(package.obstacle, writable=writable, switched_on=in_force)
    who = setters.of_package(package.uuid, direct, takes_limits=limit is not None)
    settable = together(who)
    trouble = None
    try:
        for zone in package.package.energy_zones:
            zone.energy_j()
    except DeviceError as error:
        trouble = str(error)
    return _Package(
        index=package.index,
        uuid=package.uuid,
        name=package.name,
        zones=tuple(dict.fromkeys(zone.id for zone in (*package.package.energy_zones, *package.package.zones))),
        cap_min_w=None if range_w is None else range_w.min_w,
        cap_max_w=None if range_w is None else range_w.max_w,
        cap_default_w=None if range_w is None else range_w.default_w,
        cap_requested_w=None if limit is None else limit.limit_w(),
        cap_enforced_w=package.enforced_w(),
        window_s=None if limit is None else limit.window_s(),
        settable=settable.answer,
        settable_why=settable.why,
        setters=who,
        memory=package.package.memory is not None,
        trouble=trouble,
    )


def _show(found: _Found) -> None:
    """Tables, and what does not fit into one."""
    from autocap.reports.text import table_lines

    width, encoding = columns(sys.stdout) or _PLAIN_WIDTH, encoding_of(sys.stdout)
    for part in (*_lines_on_gpus(found), *_lines_on_packages(found)):
        put(*([part] if isinstance(part, str) else table_lines(part, width, encoding)))
    if found.budget is not None:
        one = found.budget
        held = f"{len(one.gpus)} GPU{'s' * (len(one.gpus) > 1)}"
        put(f"a power budget of {one.watts:g} W runs here (PID {one.pid}), which sets the limits of {held}")
    for kind, module in found.other_kinds.items():
        put(f"`--device {kind}` is there too, from another package ({module})")


def _lines_on_gpus(found: _Found) -> "Iterator[str | Table]":
    """Sentences, and a table."""
    from autocap.reports.document import Table

    if found.unavailable is not None:
        yield found.unavailable
    if not found.gpus:
        yield "`autocap run --device emulated` works without a GPU: it plays one, with published power curves"
        return
    yield f"NVIDIA driver {found.driver_version}"
    titles = ("GPU", "name", "limit W", "enforced W", "range W", "default W", "settable", "J by counter", "sensor")
    rows = tuple(map(_gpu_row, found.gpus))
    yield Table(heading="", titles=titles, rows=rows, spare=(7, 3, 5, 1), left=(1, 6))
    for gpu in found.gpus:
        yield f"GPU {gpu.index} is {gpu.uuid}; {gpu.settable_why}"
        yield from (f"GPU {gpu.index}, {said}" for said in others(gpu.setters))
        if gpu.sensor.trouble is not None:
            yield f"GPU {gpu.index}: {gpu.sensor.trouble}"
        if gpu.persistence is False:
            yield f"GPU {gpu.index}: persistence mode is off, so a limit is lost when nobody uses the GPU"


def _gpu_row(gpu: _Gpu) -> tuple[str, ...]:
    sensor = gpu.sensor
    every = "moved too little to tell" if sensor.update_s is None else f"every {1000 * sensor.update_s:.0f} ms"
    compared = None if sensor.counter_j is None else f"{sensor.counter_j:.0f} (readings: {sensor.integrated_j:.0f})"
    source = "–" if sensor.source is None else f"{sensor.source}, {every}"
    return (*_limit_cells(gpu), _number(gpu.cap_default_w), _yes_no(gpu), compared or "–", source)


def _lines_on_packages(found: _Found) -> "Iterator[str | Table]":
    from autocap.reports.document import Table

    if found.packages_unavailable is not None:
        yield found.packages_unavailable
        return
    titles = ("package", "name", "limit W", "enforced W", "range W", "window s", "settable", "energy")
    rows = tuple(map(_package_row, found.packages))
    yield Table(heading="", titles=titles, rows=rows, spare=(5, 3, 1), left=(1, 6))
    for package in found.packages:
        yield f"package {package.index} is {package.uuid}; {package.settable_why}"
        yield from (f"package {package.index}, {said}" for said in others(package.setters))
        if package.trouble is not None:
            yield f"package {package.index}: {package.trouble}"


def _package_row(package: _Package) -> tuple[str, ...]:
    energy = "package and memory" if package.memory else "package"
    window = "–" if package.window_s is None else f"{package.window_s:.4g}"
    return (*_limit_cells(package), window, _yes_no(package), energy if package.trouble is None else "cannot be read")


def _limit_cells(one: _Limited) -> tuple[str, ...]:
    range_w = "–" if one.cap_min_w is None else f"{_number(one.cap_min_w)}–{_number(one.cap_max_w)}"
    return str(one.index), one.name, _number(one.cap_requested_w), _number(one.cap_enforced_w), range_w


def _yes_no(one: _Limited) -> str:
    return {True: "yes", False: "no", "unknown": "unknown"}[one.settable]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
