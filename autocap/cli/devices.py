"""`autocap devices`, and its tables and sentences."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from autocap.cli import options
from autocap.cli.device_report import DeviceReport, Gpu, Limited, Package, here
from autocap.cli.settings import take
from autocap.config import RunConfig
from autocap.config.option import CommandOption, record_from, same
from autocap.errors import UsageError
from autocap.job import registry
from autocap.text import put, put_json

if TYPE_CHECKING:
    from autocap.reports.document import Table

_option = partial(CommandOption, "", commands=("devices",))
_GPU = ("GPU", "name", "limit W", "enforced W", "range W", "default W", "settable", "J by counter", "sensor")
_PACKAGE = ("package", "name", "limit W", "enforced W", "range W", "window s", "settable", "energy")
_SPARE = {_GPU: (7, 3, 5, 1), _PACKAGE: (5, 3, 1)}
_LEFT: tuple[int, ...] = (1, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesConfig:
    """What `autocap devices` is asked for. nodes, job: as a run has them."""

    json: Annotated[
        bool,
        _option(
            "--json",
            None,
            "print {driver_version, unavailable, gpus, packages, packages_unavailable, other_kinds, budget}; what "
            'is unknown is null, and settable "unknown"; with --nodes {nodes: {NAME: that}, missing: {NAME: why}}',
        ),
    ] = False
    nodes: Annotated[
        str | None,
        same(
            RunConfig,
            "--nodes",
            "devices",
            "of several nodes: slurm (those of the job around this command, or of --job), or ray[:ADDRESS] (all that "
            "the cluster has)",
            "",
        ),
    ] = None
    job: Annotated[
        str | None, same(RunConfig, "--job", "devices", "with --nodes: the job's id, in place of the one around us", "")
    ] = None


class Devices:
    """Show the GPUs and CPU packages of this machine, or of several nodes: their limits, who could set them, and how
    their power sensors behave.

    It only reads, and watches the GPUs' sensors for some seconds. Exit status 0 also where there is none, or no driver;
    1 where a node has not answered.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        options.declare(parser, "devices", DevicesConfig)

    def run(self, args: argparse.Namespace) -> int:
        take(args, "devices")
        config = record_from(DevicesConfig, "devices", vars(args))
        if config.nodes is not None:
            return _on_nodes(config.nodes, config)
        if config.job is not None:
            raise UsageError(f"--job {config.job} is of a job on several nodes; add --nodes, or drop it")
        found = here()
        if config.json:
            put_json(asdict(found))
        else:
            show(found)
        return 0


def _on_nodes(where: str, config: DevicesConfig) -> int:
    gather = registry.of_plugin("elsewhere", "nodes", f"--nodes {where}")
    found: dict[str, DeviceReport | str] = gather(where, config.job)
    missing = {node: why for node, why in found.items() if not isinstance(why, DeviceReport)}
    if config.json:
        there = {node: asdict(one) for node, one in found.items() if isinstance(one, DeviceReport)}
        put_json({"nodes": there, "missing": missing})
    else:
        show_nodes(found)
    return 1 if missing else 0


def show(found: DeviceReport) -> None:
    """Of this machine."""
    _put(_lines(found))


def show_nodes(found: Mapping[str, DeviceReport | str]) -> None:
    """Of several: by a node's name what there is, or why that is not known."""
    _put(_lines_on_nodes(found))


def _put(parts: "Iterator[str | Table]") -> None:
    from autocap.reports import text

    for part in parts:
        if isinstance(part, str):
            put(part)
        else:
            text.show(part)


def _lines(found: DeviceReport) -> "Iterator[str | Table]":
    if found.unavailable is not None:
        yield found.unavailable
    if found.gpus:
        yield f"NVIDIA driver {found.driver_version}"
        yield from _of_a_kind(_GPU, found.gpus)
    else:
        yield "`autocap run --device emulated` works without a GPU: it plays one, with published power curves"
    if found.packages_unavailable is not None:
        yield found.packages_unavailable
    else:
        yield from _of_a_kind(_PACKAGE, found.packages)
    yield from _budget(found)
    for kind, module in found.other_kinds.items():
        yield f"`--device {kind}` is there too, from another package ({module})"


def _of_a_kind(titles: tuple[str, ...], ones: Sequence[Gpu | Package]) -> "Iterator[str | Table]":
    """A table, and sentences."""
    yield _table(titles, [("", one) for one in ones])
    for one in ones:
        where = f"{titles[0]} {one.index}"
        yield f"{where} is {one.uuid}; {one.settable_why}"
        yield from (f"{where}, {said}" for said in one.others())
        yield from (f"{where}: {said}" for said in one.troubles())


def _lines_on_nodes(nodes: Mapping[str, DeviceReport | str]) -> "Iterator[str | Table]":
    """Two tables for all of them, and of each what keeps limits from being set, or power from being measured."""
    there = {node: found for node, found in nodes.items() if not isinstance(found, str)}
    gpus = [(node, gpu) for node, found in there.items() for gpu in found.gpus]
    packages = [(node, package) for node, found in there.items() for package in found.packages]
    yield from (_table(titles, ones) for titles, ones in ((_GPU, gpus), (_PACKAGE, packages)) if ones)
    for node, found in nodes.items():
        yield from (f"{node}: {said}" for said in ([found] if isinstance(found, str) else _obstacles(found)))


def _obstacles(found: DeviceReport) -> Iterator[str]:
    if found.unavailable is not None:
        yield found.unavailable
    named: list[tuple[str, Gpu | Package]] = [
        *((f"GPU {one.index}", one) for one in found.gpus),
        *((f"package {one.index}", one) for one in found.packages),
    ]
    yield from (f"{where}: {one.settable_why}" for where, one in named if one.settable is not True)
    yield from (f"{where}: {said}" for where, one in named for said in one.troubles())
    yield from _budget(found)


def _budget(found: DeviceReport) -> Iterator[str]:
    if (one := found.budget) is not None:
        held = f"{len(one['gpus'])} GPU{'s' * (len(one['gpus']) > 1)}"
        yield f"a power budget of {one['watts']:g} W runs here (PID {one['pid']}), which sets the limits of {held}"


def _table(titles: tuple[str, ...], ones: Sequence[tuple[str, Gpu | Package]]) -> "Table":
    """Of devices, each with its node's name, "" for this machine."""
    from autocap.reports.document import Table

    rows = [_gpu_row(one) if isinstance(one, Gpu) else _package_row(one) for _, one in ones]
    spare, left = _SPARE[titles], _LEFT
    if any(node for node, _ in ones):
        titles, rows = ("node", *titles), [(node, *row) for (node, _), row in zip(ones, rows, strict=True)]
        spare, left = tuple(column + 1 for column in spare), (0, *(column + 1 for column in left))
    return Table(heading="", titles=titles, rows=tuple(rows), spare=spare, left=left)


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    sensor = gpu.sensor
    every = "moved too little to tell" if sensor.update_s is None else f"every {1000 * sensor.update_s:.0f} ms"
    compared = None if sensor.counter_j is None else f"{sensor.counter_j:.0f} (readings: {sensor.integrated_j:.0f})"
    source = "–" if sensor.source is None else f"{sensor.source}, {every}"
    return (*_limit_cells(gpu), _number(gpu.cap_default_w), _yes_no(gpu), compared or "–", source)


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
