"""`autocap sweep`."""

import argparse
from pathlib import PurePath

from autocap.cli import options
from autocap.cli.session import part_under_sudo, session_clock
from autocap.cli.settings import take
from autocap.config import DESCENDING, RANDOM
from autocap.config.option import Group, record_from
from autocap.config.sweep import SweepConfig
from autocap.errors import UsageError


class Sweep:
    """Run CMD once per cap and repeat, and show what each cap costs: energy, time, EDP, EDS and the Pareto front.

    The limit found on arrival is always one of the caps: the others are compared with it. A sweep that was interrupted
    goes on where it stopped when it is given the same options and its run directory as --out. Exit status 0 when every
    run is done, 1 when runs are left.
    """

    is_session = True

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "autocap sweep [options] -- CMD …"
        options.declare(parser, "sweep", SweepConfig, {Group.SEARCH: "which caps"})

    def run(self, args: argparse.Namespace) -> int:
        take(args, "sweep")
        config = sweep_config(args)
        gpus = None if config.gpu_sets is None else [name for names in config.gpu_sets for name in names]
        part_under_sudo(config.run, gpus, args.typed)
        with session_clock() as clock:
            from autocap.sweep.session import sweep

            return sweep(config, clock)


def sweep_config(args: argparse.Namespace) -> SweepConfig:
    """The sweep that parsed options mean. Raises UsageError for what the command line alone shows to be wrong."""
    run, given = options.run_config(args, "sweep"), vars(args)
    order = given.get("order") or (DESCENDING if "stop_slowdown" in given else RANDOM)
    made = record_from(SweepConfig, "sweep", given, run=run, order=order, name=given.get("name") or _name(run.command))
    if made.stop_slowdown is not None and order != DESCENDING:
        raise UsageError("--stop-slowdown ends a descent, and the order is random; drop one of them")
    if made.gpu_sets is not None and len(set(made.gpu_sets)) < len(made.gpu_sets):
        raise UsageError("--gpus gives a set of GPUs twice; give each once")
    return made


def _name(command: tuple[str, ...]) -> str:
    """The program without its folder; for Python, the script or module that it runs."""
    program = PurePath(command[0]).name
    words = [word for word in command[1:] if not word.startswith("-")]
    if not program.startswith("python") or "-c" in command or not words:
        return program
    return PurePath(words[0]).name
