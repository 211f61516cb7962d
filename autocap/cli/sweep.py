"""`autocap sweep`."""

import argparse
from dataclasses import replace
from pathlib import PurePath

from autocap import config
from autocap.cli import metric_options, node_options, options, values
from autocap.cli.numpy_threads import one_thread
from autocap.config import SweepConfig
from autocap.errors import UsageError
from autocap.events.sweep import DESCENDING, ORDERS, RANDOM
from autocap.job.signals import SignalClock


class Sweep:
    """Run CMD once per cap and repeat, and show what each cap costs: energy, time, EDP, EDS and the Pareto front.

    The limit found on arrival is always one of the caps: the others are compared with it. A sweep that was interrupted
    goes on where it stopped when it is given the same options and its run directory as --out. Exit status 0 when every
    run is done, 1 when runs are left.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "autocap sweep [options] -- CMD …"
        metric_options.declare(parser)
        caps = parser.add_argument_group("which caps")
        options.declare_caps(caps, step="5, or 25 where they range over more than 200 W")
        _declare_runs(parser)
        device = parser.add_argument_group("on which device")
        options.declare_device(device)
        device.add_argument(
            "--gpus",
            metavar="SETS",
            type=values.gpu_sets,
            help="sets of indices, ranges or UUIDs by comma, the sets by semicolon: '0;0,1;0-3' repeats the sweep for "
            "each and shows it to the command in CUDA_VISIBLE_DEVICES (default: those which that names already, or the "
            "only GPU there is)",
        )
        node_options.declare(parser, at_rest="between the runs")
        run = parser.add_argument_group("running and reporting")
        run.add_argument("--name", metavar="NAME", help="of the curves in sweep.csv (default: the command's)")
        options.declare_running(run, child=True)

    def run(self, args: argparse.Namespace) -> int:
        sweep = sweep_config(args)
        with SignalClock() as clock:  # before numpy and its threads, which would catch our signals
            with one_thread():
                from autocap.sweep.session import sweep as sweep_session

            return sweep_session(sweep, clock)


def _declare_runs(parser: argparse.ArgumentParser) -> None:
    runs = parser.add_argument_group("which runs")
    runs.add_argument(
        "--repeats",
        metavar="N",
        type=values.count,
        default=config.REPEATS,
        help=f"runs of each cap (default: {config.REPEATS})",
    )
    runs.add_argument(
        "--order",
        choices=ORDERS,
        help="random: every repeat a shuffled round of all caps; descending: all repeats of a cap, then the next lower "
        "(default: random, with --stop-slowdown descending)",
    )
    runs.add_argument("--seed", metavar="N", type=values.seed, default=0, help="of the random order (default: 0)")
    runs.add_argument(
        "--stop-slowdown",
        metavar="X%",
        type=values.percentage,
        help="end the descent at the first cap whose mean time is more than X%% beyond the baseline's",
    )
    runs.add_argument(
        "--cool-down",
        metavar="S",
        type=values.not_negative("seconds"),
        help=f"pause between runs (default: {config.COOL_DOWN_SECONDS:g}; on an emulated device 0)",
    )
    runs.add_argument(
        "--no-warm-up",
        action="store_true",
        help="leave out the first run of each GPU set, which does not count",
    )


def sweep_config(args: argparse.Namespace) -> SweepConfig:
    """The sweep that parsed options mean. Raises UsageError for what the command line alone shows to be wrong."""
    if not args.child:
        raise UsageError("a command is missing; write `autocap sweep [options] -- CMD …`")
    order = args.order or (RANDOM if args.stop_slowdown is None else DESCENDING)
    if args.stop_slowdown is not None and order != DESCENDING:
        raise UsageError("--stop-slowdown ends a descent, and the order is random; drop one of them")
    sets = args.gpus
    if sets is not None and len(set(sets)) < len(sets):
        raise UsageError("--gpus gives a set of GPUs twice; give each once")
    run = replace(options.shared_config(args), command=tuple(args.child), kill_after_s=args.kill_after)
    return SweepConfig(
        run=run,
        name=args.name or _name(run.command),
        order=order,
        gpu_sets=sets,
        repeats=args.repeats,
        seed=args.seed,
        discard=not args.no_warm_up,
        cool_down_s=args.cool_down,
        stop_slowdown=args.stop_slowdown,
    )


def _name(command: tuple[str, ...]) -> str:
    """The program without its folder; for Python, the script or module that it runs."""
    program = PurePath(command[0]).name
    words = [word for word in command[1:] if not word.startswith("-")]
    if not program.startswith("python") or "-c" in command or not words:
        return program
    return PurePath(words[0]).name
