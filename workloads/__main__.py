"""python -m autocap.workloads: train a network on synthetic data, list the networks, or record a power trace of one."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from autocap.workloads import WorkloadError
from autocap.workloads.config import DATA, DEVICES, PRECISIONS, TrainConfig
from autocap.workloads.models import NETWORKS, find, summarise
from autocap.workloads.record import record
from autocap.workloads.values import integer, seconds, share

if TYPE_CHECKING:
    from autocap.workloads.train import Line

PROG = "python -m autocap.workloads"
_SAMPLES = 32_000  # the epoch of Krzywaniak et al. 2022 on their Quadro RTX 6000
_NO_TORCH = (
    "this needs PyTorch: pip install torch (without a GPU: "
    "pip install torch --index-url https://download.pytorch.org/whl/cpu)"
)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except WorkloadError as error:
        return _fail(str(error), error.exit_status)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return _fail(_NO_TORCH, WorkloadError.exit_status)


def _fail(message: str, status: int) -> int:
    print(f"{PROG}: {message}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROG, description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    listing = commands.add_parser("list", help="parameters, operations per image and default sizes of every network")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(run=_list)

    train = commands.add_parser(
        "train", help="train a network; under torchrun in several processes", allow_abbrev=False
    )
    _add_what(train)
    _add_how_long(train)
    _add_how(train)
    train.set_defaults(run=_train)

    recording = commands.add_parser(
        "record", help="train a network under autocap run --observe, and keep its power trace", allow_abbrev=False
    )
    recording.add_argument("out", type=Path, metavar="OUT", help="the trace, a .csv or .csv.gz")
    recording.add_argument("--device", metavar="NAME", help="of autocap run (default: its own)")
    recording.add_argument("--sample-hz", metavar="HZ", help="of autocap run (default: 50)")
    recording.add_argument("train", nargs="+", metavar="NETWORK …", help="after --: a network, and options of train")
    recording.set_defaults(run=_record)
    return parser


def _add_what(train: argparse.ArgumentParser) -> None:
    train.add_argument("network", metavar="NETWORK", help=", ".join(NETWORKS))
    train.add_argument("--device", choices=DEVICES, default="auto", help="auto: a GPU if torch sees one")
    batch = train.add_mutually_exclusive_group()
    batch.add_argument(
        "--batch-size",
        type=integer(1, 1 << 20),
        metavar="N",
        help="samples per step and process (default: the papers')",
    )
    batch.add_argument(
        "--iteration-seconds",
        type=seconds,
        metavar="S",
        help="measure first, and take the batch size whose forward and backward passes last about S seconds here",
    )
    train.add_argument(
        "--image-size",
        type=integer(1, 1 << 14),
        metavar="N",
        help="pixels per side, hours for lstm (default: the papers')",
    )
    train.add_argument(
        "--samples", type=integer(1), default=_SAMPLES, metavar="N", help=f"samples per epoch (default {_SAMPLES})"
    )
    train.add_argument(
        "--seed", type=integer(0, (1 << 32) - 1), default=0, metavar="N", help="of weights and data (default 0)"
    )
    train.add_argument(
        "--data", choices=DATA, default="device", help="make samples on the device, or in a loader's processes"
    )
    train.add_argument("--workers", type=integer(0, 1024), default=2, metavar="N", help="of the loader (default 2)")


def _add_how_long(train: argparse.ArgumentParser) -> None:
    length = train.add_mutually_exclusive_group()
    length.add_argument("--iterations", type=integer(1), metavar="N", help="optimiser steps (default: one epoch)")
    length.add_argument("--epochs", type=integer(1), metavar="N", help="passes over the samples")
    train.add_argument("--seconds", type=seconds, metavar="S", help="end after S seconds instead, or at the latest")
    train.add_argument("--validate-every", type=integer(1), metavar="N", help="iterations between validation passes")
    train.add_argument("--checkpoint", type=Path, metavar="PATH", help="where a checkpoint goes")
    train.add_argument("--checkpoint-every", type=integer(1), metavar="N", help="iterations between checkpoints")
    train.add_argument(
        "--log-every", type=integer(1), default=20, metavar="N", help="iterations between progress lines (default 20)"
    )


def _add_how(train: argparse.ArgumentParser) -> None:
    train.add_argument("--precision", choices=PRECISIONS, default="fp32", help="amp: float16, on a CPU bfloat16")
    train.add_argument("--channels-last", action="store_true", help="images and weights with channels innermost")
    train.add_argument("--compile", dest="compiled", action="store_true", help="with torch.compile")
    train.add_argument(
        "--host-phase",
        dest="host_share",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="share of each step in which one CPU thread loads data and the device waits: 0.2 or 20%% (default 0)",
    )
    train.add_argument("--threads", type=integer(1, 1024), metavar="N", help="CPU threads (default: torch's choice)")


def _list(arguments: argparse.Namespace) -> int:
    summaries = [summarise(network) for network in NETWORKS.values()]
    if arguments.json:
        print(json.dumps([asdict(summary) for summary in summaries]))
        return 0
    print(f"{'network':<12}{'parameters':>13}{'GFLOP/image':>13}{'batch size':>12}{'image size':>12}")
    for summary in summaries:
        print(
            f"{summary.name:<12}{summary.parameters:>13,}{summary.flops_per_image / 1e9:>13.3f}"
            f"{summary.batch_size:>12}{summary.image_size:>12}"
        )
    print("GFLOP/image: convolutions and matrix products of one forward pass; a multiply-add counts as two.")
    print("lstm takes no images but a week of hourly load; its size is in hours.")
    return 0


def _train(arguments: argparse.Namespace) -> int:
    config = _config(arguments)
    from autocap.workloads.train import train

    if arguments.iteration_seconds is not None:
        config = _sized(config, arguments.iteration_seconds)
    result = train(config, _print_line)
    if result is not None:
        print(json.dumps(asdict(result), allow_nan=False), flush=True)
    return 0


def _sized(config: TrainConfig, iteration_s: float) -> TrainConfig:
    from autocap.workloads.rehearsal import sized

    found = sized(config, iteration_s)
    print(f"batch size {found.batch_size}  about {found.seconds:.2g} s forward and backward, undisturbed", flush=True)
    return replace(config, batch_size=found.batch_size)


def _record(arguments: argparse.Namespace) -> int:
    _config(_parser().parse_args(["train", *arguments.train]))  # says what is wrong before anything is started
    if find_spec("torch") is None:
        raise ModuleNotFoundError(name="torch")
    job = [sys.executable, "-m", "autocap.workloads", "train", *arguments.train]
    return record(arguments.out, job, device=arguments.device, sample_hz=arguments.sample_hz)


def _config(arguments: argparse.Namespace) -> TrainConfig:
    network = find(arguments.network)
    given = {one.name: getattr(arguments, one.name) for one in fields(TrainConfig)}
    given["network"] = network
    given["batch_size"] = given["batch_size"] or network.batch_size
    given["image_size"] = given["image_size"] or network.image_size
    return TrainConfig(**given)


def _print_line(line: "Line") -> None:
    from autocap.workloads.train import Progress, Validated

    if isinstance(line, Progress):
        total = "" if line.total is None else f"/{line.total}"
        text = f"iteration {line.iteration}{total}  loss {line.loss:.4f}  {line.images_per_s:.1f} images/s"
    elif isinstance(line, Validated):
        text = f"validation after {line.iteration}  loss {line.loss:.4f}  {line.seconds:.2f} s"
    else:
        text = f"checkpoint after {line.iteration}  {line.path}  {line.seconds:.2f} s"
    print(text, flush=True)  # through a pipe too, at once


def _entry() -> NoReturn:
    # ^C and a closed pipe end a training script without a traceback, and by the signal, so that the caller sees which.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # left alone where it is ignored, as under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # OpenMP reads it as torch is loaded. Threads that spin at a barrier use CPU time without getting anywhere: where
    # something else runs on the machine they take several times as long, and an emulated GPU takes them for load.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(main())


if __name__ == "__main__":
    _entry()
