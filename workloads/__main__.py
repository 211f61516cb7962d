"""python -m autocap.workloads: train a network on synthetic ImageNet, or list the networks."""

import argparse
import json
import math
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from autocap.workloads import WorkloadError
from autocap.workloads.models import NETWORKS, find, summarise

if TYPE_CHECKING:
    from autocap.workloads.train import Progress

PROG = "python -m autocap.workloads"
_SAMPLES = 32_000  # the epoch of Krzywaniak et al. 2022 on their Quadro RTX 6000
_NO_TORCH = (
    "this needs PyTorch: pip install 'autocap[workloads]' (without a GPU, first: "
    "pip install torch --index-url https://download.pytorch.org/whl/cpu)"
)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], None] = arguments.run
    try:
        run(arguments)
    except WorkloadError as error:
        return _fail(str(error), error.exit_status)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return _fail(_NO_TORCH, WorkloadError.exit_status)
    return 0


def _fail(message: str, status: int) -> int:
    print(f"{PROG}: {message}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROG, description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    listing = commands.add_parser("list", help="parameters, operations per image and default sizes of every network")
    listing.add_argument("--json", action="store_true", help="as JSON")
    listing.set_defaults(run=_list)

    train = commands.add_parser("train", help="train a network", allow_abbrev=False)
    train.add_argument("network", metavar="NETWORK", help=", ".join(NETWORKS))
    train.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: a GPU if torch sees one"
    )
    train.add_argument(
        "--batch-size", type=_integer(1, 1 << 20), metavar="N", help="images per step (default: the papers')"
    )
    train.add_argument(
        "--image-size", type=_integer(1, 1 << 14), metavar="N", help="pixels per side (default: the papers')"
    )
    train.add_argument("--iterations", type=_integer(1), metavar="N", help="optimiser steps (default: one epoch)")
    train.add_argument("--seconds", type=_seconds, metavar="S", help="end after S seconds instead, or at the latest")
    train.add_argument(
        "--samples", type=_integer(1), default=_SAMPLES, metavar="N", help=f"images per epoch (default {_SAMPLES})"
    )
    train.add_argument(
        "--seed", type=_integer(0, (1 << 32) - 1), default=0, metavar="N", help="of weights and data (default 0)"
    )
    train.add_argument(
        "--host-phase",
        type=_share,
        default=0.0,
        metavar="SHARE",
        help="share of each step in which one CPU thread loads data and the device waits: 0.2 or 20%% (default 0)",
    )
    train.add_argument(
        "--log-every", type=_integer(1), default=20, metavar="N", help="iterations between progress lines (default 20)"
    )
    train.add_argument("--threads", type=_integer(1, 1024), metavar="N", help="CPU threads (default: torch's choice)")
    train.set_defaults(run=_train)
    return parser


def _integer(low: int, high: int | None = None) -> Callable[[str], int]:
    allowed = f"a whole number from {low}" + (" up" if high is None else f" to {high}")

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not {allowed}") from None
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"{value} is not {allowed}")
        return value

    return parse


def _share(text: str) -> float:
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 0.95:
        raise argparse.ArgumentTypeError(f"'{text}' is not a share from 0 to 0.95 (or 95%)")
    return share


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return seconds


def _list(arguments: argparse.Namespace) -> None:
    summaries = [summarise(network) for network in NETWORKS.values()]
    if arguments.json:
        print(json.dumps([asdict(summary) for summary in summaries]))
        return
    print(f"{'network':<12}{'parameters':>13}{'GFLOP/image':>13}{'batch size':>12}{'image size':>12}")
    for summary in summaries:
        print(
            f"{summary.name:<12}{summary.parameters:>13,}{summary.flops_per_image / 1e9:>13.2f}"
            f"{summary.batch_size:>12}{summary.image_size:>12}"
        )
    print("GFLOP/image: convolutions and matrix products of one forward pass; a multiply-add counts as two.")


def _train(arguments: argparse.Namespace) -> None:
    network = find(arguments.network)
    from autocap.workloads.train import TrainConfig, train

    batch_size = arguments.batch_size or network.batch_size
    iterations = arguments.iterations
    if iterations is None and arguments.seconds is None:
        iterations = max(1, arguments.samples // batch_size)
    config = TrainConfig(
        network=network,
        device=arguments.device,
        batch_size=batch_size,
        image_size=arguments.image_size or network.image_size,
        iterations=iterations,
        seconds=arguments.seconds,
        samples=arguments.samples,
        seed=arguments.seed,
        host_share=arguments.host_phase,
        log_every=arguments.log_every,
        threads=arguments.threads,
    )
    total = "" if iterations is None else f"/{iterations}"
    result = train(config, lambda progress: _print_progress(progress, total))
    print(json.dumps(asdict(result), allow_nan=False), flush=True)


def _print_progress(progress: "Progress", total: str) -> None:
    print(
        f"iteration {progress.iteration}{total}  loss {progress.loss:.4f}  {progress.images_per_s:.1f} images/s",
        flush=True,  # through a pipe too, at once
    )


def _entry() -> NoReturn:
    # ^C and a closed pipe end a training script without a traceback, and by the signal, so that the caller sees which.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # left alone where it is ignored, as under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())


if __name__ == "__main__":
    _entry()
