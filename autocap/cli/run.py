"""`autocap run`, `attach` and `sweep`, and `inside`, the process that `autocap.tune` starts beside the script that
called it."""

import argparse
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from autocap.cli import Parser, options
from autocap.cli.session import part_under_sudo, session_clock
from autocap.cli.settings import take
from autocap.config import DESCENDING, RANDOM, RunConfig, values
from autocap.config.option import Group, record_from
from autocap.config.sweep import SweepConfig
from autocap.errors import AutocapError, UsageError
from autocap.job import registry
from autocap.job.invoking_user import invoking_user
from autocap.text import note, put

if TYPE_CHECKING:
    from autocap.job.signals import SignalClock
    from autocap.session.backend import Backend


class Run:
    """Start CMD, tune its power caps while it runs, and end with its exit status."""

    is_session = True

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "autocap run [options] -- CMD …"
        options.declare(parser, "run")

    def run(self, args: argparse.Namespace) -> int:
        take(args, "run")
        config = options.run_config(args, "run")
        part_under_sudo(config, config.gpus, args.typed)
        with session_clock() as clock:
            from autocap.session.modes import run

            return run(config, clock, _place(config, clock, begins=True))


class Attach:
    """Tune the power caps of a job that runs already, until it ends.

    Ctrl-C puts the caps back and leaves the job alone. No code is put into the job: of a PyTorch job the kernel counts
    the backward passes; where it cannot, iterations are found as a period in the power, and where none is found the SM
    clock stands in for the speed. With --nodes it is a job on several nodes.
    """

    is_session = True

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "autocap attach {PID | --nodes WHERE} [options]"
        parser.add_argument(
            "process", metavar="PID", nargs="?", type=values.pid, help="the job: this process and its descendants"
        )
        parser.add_argument("--pid", metavar="PID", type=values.pid, help="the same")
        options.declare(parser, "attach")

    def run(self, args: argparse.Namespace) -> int:
        take(args, "attach")
        config = options.attach_config(args)
        if args.pid is not None and args.process is not None:
            raise UsageError(f"the job is given twice, as {args.process} and by --pid {args.pid}; drop one of them")
        pid = args.process if args.pid is None else args.pid
        if pid is None and config.nodes is None:
            raise UsageError("attach needs a job; give the PID of its process, or its nodes with --nodes WHERE")
        if pid is not None and config.nodes is not None:
            raise UsageError(f"PID {pid} is of this machine, --nodes {config.nodes} of a whole job; drop one of them")
        part_under_sudo(config, config.gpus, args.typed, pid)
        with session_clock() as clock:
            from autocap.session.modes import attach

            return attach(config, clock, _place(config, clock, pid))


class Inside:
    """Tune a job that asked for it, until the job or its tuned block ends (the block ends us with SIGTERM)."""

    is_session = True

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--pid", metavar="PID", type=values.pid, required=True, help="the job")
        parser.add_argument(
            "--step-map-fd", metavar="FD", type=values.count, required=True, help="descriptor of its step map"
        )
        options.declare(parser, "attach")

    def run(self, args: argparse.Namespace) -> int:
        if invoking_user() is not None:
            raise UsageError("`inside` is what autocap.tune starts in a script, and nothing to run under sudo")
        config = replace(options.attach_config(args, "tune"), step_map_fd=args.step_map_fd)
        # A script that wants to survive SIGTERM has it ignored, also by whoever it starts; to us it is the block's end.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            with session_clock() as clock:
                from autocap.session.modes import inside

                return inside(config, clock, _place(config, clock, args.pid))
        except AutocapError as error:  # nothing is tuned, which is no reason to disturb the job
            note(f"warning: the job runs untuned: {error}")
            put(str(error))  # for the block, which has this as its result
            return error.exit_status


def _place(config: RunConfig, clock: "SignalClock", pid: int | None = None, *, begins: bool = False) -> "Backend":
    """Where the job runs. pid: of one that runs already on this machine. begins: we start it. Raises AutocapError where
    its nodes cannot be told."""
    from autocap.session.backend import Backend

    if config.nodes is None:
        return Backend(pid)
    with clock.lifted():
        place: Backend = registry.of_plugin("backends", "nodes", f"--nodes {config.nodes}")(
            config.nodes, config.job, pid, begins=begins
        )
        return place


def checked(words: Sequence[str]) -> RunConfig:
    """What options mean that are given as on the command line of `attach`. Raises UsageError."""
    parser = Parser(prog="autocap attach", allow_abbrev=False, add_help=False)
    options.declare(parser, "attach")
    args = parser.parse_args(words)
    args.child = None
    return options.attach_config(args, "tune")


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
