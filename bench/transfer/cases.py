"""Published cap curves and times of the same job on several cards."""

import csv
import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autocap.plugins.predict.cards import Card, cards
from bench.strategies.curve_set import PUBLISHED
from bench.strategies.curves import CapCurve, built_in

Floats = NDArray[np.float64]
DATA = Path(__file__).parents[1] / "data"
_CARDS = {"quadro-rtx-6000": "Quadro RTX 6000", "tesla-v100": "V100 SXM2"}
_LLM_LIMITS_W = {"RTX 3090": 350.0, "RTX 4090": 450.0, "RTX 5090": 575.0}
# The same model and load on two cards; all other curves have no fellow.
_SAME = {
    "Qwen3.6-27B Q3 (dense), llama.cpp, decode, 1 stream": "Qwen3.6-27B Q3, decode, 1 stream",
    "Qwen3.6-27B Q3, llama.cpp, decode, 1 stream": "Qwen3.6-27B Q3, decode, 1 stream",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CapCase:
    """One job on one card. share: caps over the card's default limit; power_w, time_s at them, of any unit of work that
    is the same on all cards; arrays of shape (caps,), caps ascending, and the last is the default limit."""

    card: str
    network: str
    limit_w: float
    share: Floats
    power_w: Floats
    time_s: Floats

    @property
    def draw(self) -> float:
        """Power at the default limit over that limit."""
        return float(self.power_w[-1] / self.limit_w)

    @property
    def power(self) -> Floats:
        """P/P0."""
        return np.asarray(self.power_w / self.power_w[-1])

    @property
    def time(self) -> Floats:
        """t/t0."""
        return np.asarray(self.time_s / self.time_s[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeCase:
    """What a network's time became from one card to another at their default limits: ln t_target/t_source.
    bits: of its arithmetic, 16 or 32."""

    source: Card
    target: Card
    network: str
    bits: int
    log_ratio: float


@cache
def cap_cases() -> tuple[CapCase, ...]:
    """All curves at hand."""
    found = []
    for curve in built_in():
        family, _, network = curve.name.partition("/")
        found.append(_case(_CARDS[family], network, curve, curve.caps_w[-1]))
    zeus = json.loads((DATA / "zeus2023.json").read_text())
    for name, job in zeus["workloads"].items():
        size = "128" if name == "resnet50" else str(job["default"])
        row = job["batch_sizes"][size]
        curve = CapCurve(
            name=name,
            caps_w=tuple(map(float, zeus["caps_w"])),
            powers_w=tuple(row["power_w"]),
            times_s=tuple(row["time_s"]),
        )
        found.append(_case("V100 PCIe", f"{name}, batch {size}", curve, 250.0))
    found.append(_case("A40", "resnet50, batch 128", PUBLISHED[1], 300.0))
    rows = defaultdict[str, list[tuple[float, float, float]]](list)
    with (DATA / "llm_caps.csv").open() as file:
        for line in csv.DictReader(file):
            rows[line["curve"]].append((float(line["cap_w"]), float(line["power_w"]), 1 / float(line["tokens_per_s"])))
    for name, points in rows.items():
        card, _, load = name.partition(", ")
        kept = [point for point in sorted(points) if point[0] <= _LLM_LIMITS_W[card]]
        caps, powers, times = zip(*kept, strict=True)
        curve = CapCurve(name=name, caps_w=caps, powers_w=powers, times_s=times)
        found.append(_case(card, _SAME.get(load, load), curve, caps[-1]))
    return tuple(found)


def _case(card: str, network: str, curve: CapCurve, limit_w: float) -> CapCase:
    return CapCase(
        card=card,
        network=network,
        limit_w=limit_w,
        share=np.array(curve.caps_w) / limit_w,
        power_w=np.array(curve.powers_w, dtype=float),
        time_s=np.array(curve.times_s, dtype=float),
    )


def cap_pairs() -> list[tuple[CapCase, CapCase]]:
    """The same network on two cards, each way."""
    every = cap_cases()
    return [(one, other) for one in every for other in every if one.network == other.network and one.card != other.card]


@cache
def time_cases() -> tuple[TimeCase, ...]:
    """Times at default limits: ten networks in two precisions on nine cards, those that ran the same batch, and those
    of the curves. The 32-bit ones of cards from 2020 on used TF32; the curves' precision is 32 bits."""
    data = json.loads((DATA / "transfer_times.json").read_text())
    known = {card.model: card for card in cards()}
    found = [
        TimeCase(
            source=known[one],
            target=known[other],
            network=network,
            bits=int(bits),
            log_ratio=float(np.log(rates[one][place] / rates[other][place])),
        )
        for bits, rates in data["rates"].items()
        for group in data["same_batch"]
        for one in group
        for other in group
        if one != other
        for place, network in enumerate(data["networks"])
    ]
    for one, other in cap_pairs():
        found.append(
            TimeCase(
                source=known[one.card],
                target=known[other.card],
                network=one.network,
                bits=16 if "Qwen" in one.network else 32,
                log_ratio=float(np.log(other.time_s[-1] / one.time_s[-1])),
            )
        )
    return tuple(found)
