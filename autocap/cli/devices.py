"""`autocap devices`."""

import argparse
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated

from autocap import registry
from autocap.cli import options
from autocap.cli.device_report import DeviceReport, here
from autocap.cli.settings import take
from autocap.config import RunConfig
from autocap.config.option import CommandOption, record_from, same
from autocap.errors import UsageError
from autocap.printing import put_json

_option = partial(CommandOption, "", commands=("devices",))


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
        from autocap.cli.device_tables import show

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
    from autocap.cli.device_tables import show_nodes

    gather = registry.of_plugin("elsewhere", "nodes", f"--nodes {where}")
    found: dict[str, DeviceReport | str] = gather(where, config.job)
    missing = {node: why for node, why in found.items() if not isinstance(why, DeviceReport)}
    if config.json:
        there = {node: asdict(one) for node, one in found.items() if isinstance(one, DeviceReport)}
        put_json({"nodes": there, "missing": missing})
    else:
        show_nodes(found)
    return 1 if missing else 0
