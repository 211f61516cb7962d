"""python -m bench cluster up, down and env: the GPUs of a pretended cluster, a board a node, and its start and end."""

import argparse
import os
import random
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote

from autocap.testing.nvml import FileBoard, Machine, machine, plain
from autocap.testing.nvml.machine import Limits
from bench.cluster import helpers, layout, ray_nodes, slurm
from bench.cluster.layout import Cluster, ClusterError, default_directory, found, require_free


def whole_machine(
    profile: str, *, cards: int, spread: float, seed: int, arrivals_mw: Sequence[int] | None = None
) -> Machine:
    """All cards of a cluster, as if they stood in one machine that idles until its job comes.

    spread: relative standard deviation of their efficiency. seed: of what the cards are like, and of all noise.
    arrivals_mw: as `machine` has them.
    """
    made = machine(profile, gpus=cards, arrivals_mw=arrivals_mw)
    return replace(made, seed=seed, start_s=None, efficiency_spread=spread)


def create(places: Sequence[Path], whole: Machine, limits: Limits = Limits.SETTABLE) -> list[FileBoard]:
    """A board for every node, each with as many of the cards. limits: who may set them. Their time begins now, or is
    that of those in whose place they come, as a helper has it that goes on: what it set would else be in force late."""
    each = len(whole.cards) // len(places)
    boards, origin_s = [], time.monotonic()
    if places[0].exists():
        origin_s = FileBoard(places[0]).read().origin_s
    for number, place in enumerate(places):
        cards = whole.cards[number * each : (number + 1) * each]
        own = tuple(replace(card, minor_number=index, limits=limits) for index, card in enumerate(cards))
        boards.append(FileBoard.create(place, replace(whole, cards=own)))
    for board in boards:
        board.update(lambda state: replace(state, origin_s=origin_s, nodes=tuple(map(str, places))))
    return boards


ENGINES = {"slurm": slurm, "ray": ray_nodes}
_PORTS, _DRAWS = range(20_000, 32_000), 200  # below those that the system gives away


def share(text: str) -> float:
    """A share, with or without a per cent sign: 3% or 0.03."""
    value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no share of 0 to below 100%")
    return value


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those that say what a cluster is like."""
    parser.add_argument("--nodes", type=int, default=4, metavar="N", help="pretended nodes (default: 4)")
    parser.add_argument("--gpus", type=int, default=2, metavar="N", help="emulated GPUs in each (default: 2)")
    parser.add_argument("--engine", choices=sorted(ENGINES), default="slurm", help="(default: slurm)")
    parser.add_argument(
        "--spread", type=share, default=0.03, metavar="S", help="of the cards' efficiency, a share (default: 3%%)"
    )
    parser.add_argument(
        "--helper", action="store_true", help="jobs are nobody's, and root's helper on each node sets limits; as root"
    )
    parser.add_argument(
        "--networks", action="store_true", help="each node has a network of its own, which can be cut; as root"
    )
    parser.add_argument(
        "--profile", default="quadro-rtx-6000/resnet50", metavar="P", help="of cards and job (default: %(default)s)"
    )


def options(argv: Sequence[str]) -> argparse.Namespace:
    """What those of `add_options` mean."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    return parser.parse_args(argv)


def cluster_of(args: argparse.Namespace, directory: Path) -> Cluster:
    """The cluster that the options ask for, with ports that are free."""
    if args.nodes < 1 or args.gpus < 1:
        raise ClusterError(f"{args.nodes} nodes of {args.gpus} GPUs were asked for; a cluster has 1 or more of each")
    if args.helper and (os.geteuid() != 0 or args.engine != "slurm"):
        raise ClusterError("--helper was given; that needs root, whose helper it is, and --engine slurm")
    if args.networks and (lacks := slurm.lacks_for_networks() if args.engine == "slurm" else "Ray's nodes share one"):
        raise ClusterError(f"--networks was given; {lacks}")
    return Cluster(
        engine=args.engine,
        nodes=args.nodes,
        gpus=args.gpus,
        profile=args.profile,
        spread=args.spread,
        port=_free_ports(args.nodes + 1),
        folder=str(directory.resolve()),
        helper=args.helper,
        networks=args.networks,
    )


def start(cluster: Cluster) -> None:
    """Start a cluster; what was begun is ended again where it fails. Raises ClusterError."""
    engine = ENGINES[cluster.engine]
    if (lacks := engine.missing()) is not None:
        raise ClusterError(lacks)
    require_free(cluster.directory)
    cluster.directory.mkdir(parents=True, exist_ok=True)
    cluster.write()
    new_boards(cluster)
    with ExitStack() as undo:
        undo.callback(_end, cluster)
        if cluster.networks:
            slurm.lay(cluster)
        if cluster.helper:
            helpers.start(cluster)
        engine.start(cluster)
        undo.pop_all()


def new_boards(cluster: Cluster, seed: int = 1, arrivals_mw: Sequence[int] | None = None) -> list[FileBoard]:
    """Boards that nobody has touched, also in place of those of an earlier job.

    seed: what the cards are like, and their noise. arrivals_mw: the limits found on them; the profile's default ones
    unless given.
    """
    cards = cluster.nodes * cluster.gpus
    whole = whole_machine(cluster.profile, cards=cards, spread=cluster.spread, seed=seed, arrivals_mw=arrivals_mw)
    return create(cluster.boards, whole, Limits.ROOTS if cluster.helper else Limits.SETTABLE)


def stop(cluster: Cluster) -> None:
    """End what was started, and remove its files."""
    _end(cluster)
    shutil.rmtree(cluster.directory)


def _end(cluster: Cluster) -> None:
    layout.end(cluster)
    if cluster.networks:
        slurm.take_away(cluster)


@contextmanager
def started(cluster: Cluster) -> Iterator[None]:
    """A cluster, for as long as it is needed. Raises ClusterError."""
    start(cluster)
    try:
        yield
    finally:
        stop(cluster)


def environment(cluster: Cluster) -> dict[str, str]:
    """Of a process that is to use a cluster: ours, without what is said to autocap or to another cluster."""
    return plain("SLURM_", "RAY_") | cluster.for_user()


def exports(cluster: Cluster) -> str:
    """Lines for a shell."""
    lines = []
    for name, value in cluster.for_user().items():
        rest = "${PYTHONPATH:+:$PYTHONPATH}" if name == "PYTHONPATH" else ""
        lines.append(f"export {name}={quote(value)}{rest}")
    return "\n".join(lines)


def up(args: argparse.Namespace) -> int:
    cluster = cluster_of(args, args.dir)
    start(cluster)
    print(f"# {cluster.nodes} nodes under {cluster.engine} in {cluster.folder}; for a shell that is to use them:")
    print(exports(cluster))
    return 0


def down(args: argparse.Namespace) -> int:
    stop(found(args.dir))
    return 0


def env(args: argparse.Namespace) -> int:
    print(exports(found(args.dir)))
    return 0


def add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=default_directory(), metavar="DIR", help="of its files (default: %(default)s)"
    )


def _free_ports(count: int) -> int:
    """The first of some ports in a row on which nobody listens."""
    for _ in range(_DRAWS):
        first = random.choice(_PORTS)
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise ClusterError(f"no {count} ports in a row are free between {_PORTS[0]} and {_PORTS[-1]}")
