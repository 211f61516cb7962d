"""The GPUs of a pretended cluster: a board a node, and what they are together."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autocap.testing.nvml import FileBoard, Machine, machine
from autocap.testing.nvml.machine import Limits


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
