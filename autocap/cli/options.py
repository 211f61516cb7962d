"""The options of a tuning run: how they are declared, and the RunConfig they mean."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autocap import config
from autocap.cli import metric_options, node_options, values
from autocap.config import RunConfig, TuneConfig
from autocap.errors import UsageError
from autocap.progress.regex import compile_pattern

CHILD_PROGRESS = ("auto", "steps", "period", "regex:PATTERN", "speed")
ATTACH_PROGRESS = ("auto", "period", "speed")
INSIDE_PROGRESS = ("auto", "steps", "period", "speed")


def declare(parser: argparse.ArgumentParser, *, child: bool) -> None:
    """Add every option of the contract, those of later versions included: they are refused with a reason.

    child: the job is started by us, so that its output can be read and it can be killed.
    """
    metric_options.declare(parser)
    search = parser.add_argument_group("how to search")
    search.add_argument(
        "--strategy",
        metavar="NAME",
        default=config.STRATEGY,
        help="model, golden, linear, bayesian, bandit, fixed, a registered plug-in, or package.module:Class "
        f"(default: {config.STRATEGY})",
    )
    search.add_argument(
        "--strategy-option",
        metavar="KEY=VALUE",
        type=values.key_value,
        action="append",
        default=[],
        help="an option of the strategy; may be repeated",
    )
    declare_caps(search, step="5, finer where the whole range is narrow")
    search.add_argument(
        "--target-stderr",
        metavar="X%",
        type=values.percentage,
        default=config.TARGET_STDERR,
        help="how well a trial is measured (default: 0.5%%)",
    )
    search.add_argument(
        "--trial-seconds",
        metavar="S",
        type=values.positive("seconds"),
        default=config.TRIAL_SECONDS,
        help="time limit of one trial (default: 60)",
    )
    search.add_argument(
        "--wait",
        metavar="S",
        type=values.positive("seconds"),
        default=config.WAIT_SECONDS,
        help="longest wait for steady activity (default: 120)",
    )
    search.add_argument(
        "--warm-start",
        metavar="RUN_DIR",
        type=Path,
        help="begin from an earlier run's curve of the same GPU model, driver branch and command",
    )
    search.add_argument(
        "--iterations",
        metavar="N",
        type=values.count,
        help="how many the whole job has (with a period: from now on): no search that cannot pay back",
    )
    search.add_argument(
        "--retune",
        metavar="MODE",
        type=values.retune,
        default=config.RETUNE,
        help="auto (when the workload has changed), never, or after so many seconds; SIGUSR1 asks for it too "
        "(default: auto)",
    )

    device = parser.add_argument_group("on which device")
    declare_device(device)
    device.add_argument(
        "--gpus",
        metavar="LIST",
        type=values.gpu_list,
        help="indices, ranges or UUIDs of GPUs or CPU packages, by comma (default: those the job uses)",
    )
    device.add_argument(
        "--per-gpu",
        action="store_true",
        help="after the common cap, lower that of each GPU which waits for the slowest",
    )
    device.add_argument(
        "--progress",
        metavar="KIND",
        default=config.PROGRESS,
        help=f"{', '.join(CHILD_PROGRESS if child else ATTACH_PROGRESS)} (default: auto)",
    )

    node_options.declare(parser, at_rest="before the first iteration")
    run = parser.add_argument_group("running and reporting")
    declare_running(run, child=child)
    run.add_argument(
        "--prometheus",
        metavar="[ADDRESS:]PORT",
        type=values.endpoint,
        help="serve the run's numbers to Prometheus (address: 127.0.0.1)",
    )


def declare_caps(search: "argparse._ArgumentGroup", *, step: str) -> None:
    """Add which caps may be tried. step: their spacing by default, in words."""
    search.add_argument("--min-cap", metavar="W", type=values.positive("watts"), help="lowest cap to try")
    search.add_argument(
        "--max-cap",
        metavar="W",
        type=values.positive("watts"),
        help="highest cap to try (default: the limit found on arrival)",
    )
    search.add_argument(
        "--cap-step", metavar="W", type=values.positive("watts"), help=f"spacing of the caps (default: {step})"
    )
    search.add_argument("--caps", metavar="LIST", type=values.watts_list, help="exactly these caps, by comma")


def declare_device(device: "argparse._ArgumentGroup") -> None:
    """Add which device it is, and how it is read."""
    device.add_argument(
        "--device",
        metavar="NAME",
        default=config.DEVICE,
        help="auto, nvml, rapl (CPU packages) or emulated[:PROFILE] (default: auto)",
    )
    device.add_argument("--shared-gpu", action="store_true", help="tune a GPU on which other processes compute as well")
    device.add_argument(
        "--sample-hz",
        metavar="HZ",
        type=values.between(*config.SAMPLE_HZ, "samples a second"),
        help="1 to 100 (default: from the sensor)",
    )
    device.add_argument(
        "--observe", action="store_true", help="set nothing: measure, report, and say what would be tried"
    )


def declare_running(run: "argparse._ArgumentGroup", *, child: bool) -> None:
    """Add where the run is recorded, and what is printed. child: as in `declare`."""
    if child:
        run.add_argument(
            "--kill-after",
            metavar="S",
            type=values.not_negative("seconds"),
            help="SIGKILL a child that outlives a forwarded signal by S seconds (default: never)",
        )
    run.add_argument("--out", metavar="DIR", type=Path, help="run directory (default: autocap-runs/<start>-<pid>)")
    run.add_argument("--force", action="store_true", help="replace the run that --out holds")
    run.add_argument("--json", action="store_true", help="print the result as one last line on stdout")
    run.add_argument("--quiet", action="store_true", help="print nothing on stderr")
    run.add_argument("-v", "--verbose", action="store_true", help="debug log on stderr")


def run_config(args: argparse.Namespace) -> RunConfig:
    """The run that parsed options mean. Raises UsageError for what the command line alone shows to be wrong."""
    if not args.child:
        raise UsageError("a command is missing; write `autocap run [options] -- CMD …`")
    _check_progress(args.progress)
    return replace(_config(args), command=tuple(args.child), kill_after_s=args.kill_after)


def attach_config(args: argparse.Namespace, progress: Sequence[str] = ATTACH_PROGRESS) -> RunConfig:
    """The same for a job that runs already; its command is not known yet. progress: what its iterations can be counted
    by."""
    if args.child is not None:
        raise UsageError("attach starts no command; leave out `--` and what follows, or use `autocap run`")
    if args.progress in CHILD_PROGRESS or args.progress.startswith("regex:"):
        if args.progress not in progress:
            raise UsageError(
                f"progress {args.progress} needs a job that autocap starts; choose {', '.join(progress)}, or use "
                "`autocap run`"
            )
    else:
        raise UsageError(f"unknown progress '{args.progress}'; choose {', '.join(progress)}")
    return _config(args)


def shared_config(args: argparse.Namespace) -> RunConfig:
    """What a run and a sweep have in common: metric, caps, device, node power, and what is recorded and printed.

    Raises UsageError as `run_config` does.
    """
    _check_device(args.device)
    _check_bounds(args)
    node_options.check(args)
    return RunConfig(
        command=(),
        tune=TuneConfig(
            metric=metric_options.metric(args),
            min_cap_w=args.min_cap,
            max_cap_w=args.max_cap,
            step_w=args.cap_step,
            caps_w=args.caps,
            observe=args.observe or observing(),
        ),
        device=args.device,
        shared_gpu=args.shared_gpu,
        sample_hz=args.sample_hz,
        out=args.out,
        force=args.force,
        json=args.json,
        quiet=args.quiet,
        node_power=args.node_power,
        idle_w=args.idle_power,
        standard_idle_w=args.standard_idle,
    )


def _config(args: argparse.Namespace) -> RunConfig:
    shared = shared_config(args)
    return replace(
        shared,
        tune=replace(
            shared.tune,
            target_stderr=args.target_stderr,
            trial_s=args.trial_seconds,
            wait_s=args.wait,
            retune=args.retune,
            iterations=args.iterations,
            per_gpu=args.per_gpu,
        ),
        strategy=args.strategy,
        strategy_options=tuple(args.strategy_option),
        progress=args.progress,
        gpus=args.gpus,
        warm_start=args.warm_start,
        prometheus=args.prometheus,
    )


def observing() -> bool:
    """Whether the environment forbids every command to set anything."""
    return os.environ.get(config.OBSERVE_VARIABLE, "0") not in ("", "0")


def _check_bounds(args: argparse.Namespace) -> None:
    low, high = args.min_cap, args.max_cap
    if low is not None and high is not None and low > high:
        raise UsageError(f"--min-cap {low:g} W is above --max-cap {high:g} W; swap them or drop one")
    if args.caps is not None and args.cap_step is not None:
        raise UsageError("--caps lists the caps, so --cap-step has nothing to space; drop one of them")
    for cap_w in args.caps or ():
        if (low is not None and cap_w < low) or (high is not None and cap_w > high):
            raise UsageError(f"--caps holds {cap_w:g} W, which --min-cap or --max-cap excludes; drop one of them")


def _check_device(name: str) -> None:
    kind, colon, profile = name.partition(":")
    if kind not in ("auto", "nvml", "rapl", "emulated") or (colon and kind != "emulated"):
        raise UsageError(f"unknown device '{name}'; choose auto, nvml, rapl or emulated[:PROFILE]")
    if colon:
        from autocap.devices.model import profiles

        profiles.load(profile)


def _check_progress(kind: str) -> None:
    if kind.startswith("regex:"):
        compile_pattern(kind.removeprefix("regex:"))
    elif kind not in CHILD_PROGRESS:
        raise UsageError(f"unknown progress '{kind}'; choose {', '.join(CHILD_PROGRESS)}")
