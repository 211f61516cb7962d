"""`autocap devices`."""

import argparse
from dataclasses import asdict

from autocap import registry
from autocap.cli.device_inventory import Inventory, here
from autocap.config import values
from autocap.errors import UsageError
from autocap.printing import put_json


class Devices:
    """Show the GPUs and CPU packages of this machine, or of several nodes: their limits, who could set them, and how
    their power sensors behave.

    It only reads, and watches the GPUs' sensors for some seconds. Exit status 0 also where there is none, or no driver;
    1 where a node has not answered.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--json",
            action="store_true",
            help="print {driver_version, unavailable, gpus, packages, packages_unavailable, other_kinds, budget}; what "
            'is unknown is null, and settable "unknown"; with --nodes {nodes: {NAME: that}, missing: {NAME: why}}',
        )
        parser.add_argument(
            "--nodes",
            metavar="WHERE",
            type=values.nodes,
            help="of several nodes: slurm (those of the job around this command, or of --job), or ray[:ADDRESS] (all "
            "that the cluster has)",
        )
        parser.add_argument("--job", metavar="ID", type=values.job_id, help="with --nodes slurm: the Slurm job")

    def run(self, args: argparse.Namespace) -> int:
        from autocap.cli.device_tables import show

        if args.nodes is not None:
            return _on_nodes(args)
        if args.job is not None:
            raise UsageError(f"--job {args.job} names a Slurm job; add --nodes slurm, or drop it")
        found = here()
        if args.json:
            put_json(asdict(found))
        else:
            show(found)
        return 0


def _on_nodes(args: argparse.Namespace) -> int:
    from autocap.cli.device_tables import show_nodes

    if args.job is not None and args.nodes != "slurm":
        raise UsageError(f"--job {args.job} names a Slurm job; use --nodes slurm, or drop it")
    gather = registry.of_plugin("inventories", "nodes", f"--nodes {args.nodes}")
    found: dict[str, Inventory | str] = gather(args.nodes, args.job)
    missing = {node: why for node, why in found.items() if not isinstance(why, Inventory)}
    if args.json:
        there = {node: asdict(one) for node, one in found.items() if isinstance(one, Inventory)}
        put_json({"nodes": there, "missing": missing})
    else:
        show_nodes(found)
    return 1 if missing else 0
