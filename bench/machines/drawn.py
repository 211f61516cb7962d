"""A machine drawn at random: what it is, and what goes wrong there; with the numbers of the facts in docs/nvml.md."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

from autocap.devices.model import profile_names, profiles
from autocap.testing.nvml import Card, Episode, Fault, Limits, Machine, Steps, Trouble, again, machine
from autocap.testing.nvml.machine import LOST, TIMEOUT, UNKNOWN

_SENSORS = ("v100", "turing", "a100", "rtx-3090", "rtx-4090", "h100")
_SHORTEST_S, _LONGEST_S = 400.0, 900.0
_HOURS_S = 36_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """seed: repeats it. kind: of machine. manners: what goes wrong there. refused: by what words a refusal names its
    cause, where no cap can be kept; `None` where one can. may_end: the same, where either is right. lost: how a card
    is, until the end of the job."""

    seed: int
    kind: str
    manners: tuple[str, ...]
    machine: Machine
    metric: str
    refused: str | None = None
    may_end: str | None = None
    lost: Fault | None = None


Change = Callable[["Drawn", Random], "Drawn"]


def drawn(seed: int, manners: int | Sequence[str] | None = None, kind: str | None = None) -> Drawn:
    """manners: which, or how many; 0 to 2 by chance unless given. kind: by chance as well."""
    rng = Random(f"machine {seed}")
    profile = rng.choice(profile_names())
    gpus = rng.choice((1, 1, 2, 2, 4))
    made = machine(profile, gpus=gpus)
    arrivals_mw = [_arrival_mw(card, rng) for card in made.cards]
    seconds = rng.uniform(_SHORTEST_S, _LONGEST_S)
    made = replace(
        made,
        cards=tuple(replace(card, arrival_mw=w) for card, w in zip(made.cards, arrivals_mw, strict=True)),
        sensor=rng.choice(_SENSORS),
        iterations=round(seconds / profiles.load(profile).default_time_s),
        start_s=0.0,
        job_pid=os.getpid(),
        seed=seed,
    )
    by_chance = rng.choice(tuple(KINDS))
    kind = by_chance if kind is None else kind
    one = Drawn(seed=seed, kind=kind, manners=(), machine=made, metric=rng.choice(("energy", "edp", "eds")))
    one = KINDS[kind](one, rng)
    if manners is None:
        manners = rng.choice((0, 1, 1, 2))
    names = rng.sample(tuple(MANNERS), manners) if isinstance(manners, int) else manners
    for name in names:
        one = replace(MANNERS[name](one, rng), manners=(*one.manners, name))
    return one


def pairs(seed: int) -> list[Drawn]:
    """Each two manners once, on a plain machine. seed: of the first."""
    return [drawn(seed + number, two, "plain") for number, two in enumerate(combinations(MANNERS, 2))]


def _arrival_mw(card: Card, rng: Random) -> int:
    """The default on two machines of three; else what an operator has set."""
    if rng.random() < 0.67:
        return card.default_mw
    return rng.randrange(round(0.85 * card.default_mw), card.default_mw)


def _cards(one: Drawn, **changes: object) -> Drawn:
    cards = tuple(replace(card, **changes) for card in one.machine.cards)  # type: ignore[arg-type]  # by name
    return replace(one, machine=replace(one.machine, cards=cards))


def _share(one: Drawn, share: float) -> int:
    """Of the range of its cards' limits, milliwatts."""
    card = one.machine.cards[0]
    return card.min_mw + round(share * (card.max_mw - card.min_mw))


def _with(one: Drawn, **changes: object) -> Drawn:
    """Another machine, its cards the same."""
    return replace(one, machine=replace(one.machine, **changes))  # type: ignore[arg-type]  # by name


def _old_driver(one: Drawn, rng: Random) -> Drawn:
    average = rng.random() < 0.5
    changed = _cards(one, instant_scope=None, limit_fields=False, usage_is_average=average, samples_buffer=not average)
    return _with(changed, driver_version="470.82.01")


def _plateau(one: Drawn, rng: Random) -> Drawn:
    low = rng.uniform(0.2, 0.6)
    return _cards(one, plateau_mw=(_share(one, low), _share(one, low + 0.25)))


# What a machine is.
KINDS: dict[str, Change] = {
    "plain": lambda one, rng: one,
    "laptop": lambda one, rng: replace(
        _cards(one, limits=Limits.UNSUPPORTED, energy_counter=False), refused="no power limit to set"
    ),
    "MIG": lambda one, rng: replace(_cards(one, mig=True), refused="MIG instances, which share one power limit"),
    "virtual GPU": lambda one, rng: replace(
        _cards(one, virtual=True, limits=Limits.UNSUPPORTED, energy_counter=False, instant_scope=None),
        refused="virtual GPU",
    ),
    "container without CAP_SYS_ADMIN": lambda one, rng: replace(
        _cards(one, limits=Limits.REFUSED), refused="needs root or CAP_SYS_ADMIN"
    ),
    "foreign chassis, 60 % of the limit": lambda one, rng: _cards(one, acts_share=0.6),
    "power of the module alone": lambda one, rng: _cards(one, instant_scope=1),
    "no persistence": lambda one, rng: _cards(one, persistence=False),
    "old driver": _old_driver,
    "peaks above the limit": lambda one, rng: _cards(one, peaks_share=0.03, peaks_gain=1.25),
    "plateau": _plateau,
    "floor above the range": lambda one, rng: _cards(
        one, floor_mw=_share(one, rng.uniform(0.2, 0.5)), floor_refuses=rng.random() < 0.5
    ),
    "lowest cap at 67 %": lambda one, rng: _cards(
        one, min_mw=max(one.machine.cards[0].min_mw, round(0.67 * one.machine.cards[0].max_mw))
    ),
    "held lower from outside": lambda one, rng: _cards(one, ceiling_mw=_share(one, rng.uniform(0.75, 0.95))),
}


def _episodes(
    one: Drawn, trouble: Trouble, rng: Random, *, first_s: float, for_s: float, every_s: float | None = None
) -> Drawn:
    """On one card by chance."""
    gpu = rng.randrange(len(one.machine.cards))
    card = one.machine.cards[gpu]
    found = Episode(trouble=trouble, from_s=first_s, until_s=first_s + for_s, every_s=every_s)
    changed = replace(card, episodes=(*card.episodes, found))
    return replace(one, machine=one.machine.with_card(gpu, changed))


def _counter_stops(one: Drawn, rng: Random) -> Drawn:
    trouble = rng.choice((Trouble.COUNTER_STANDS, Trouble.COUNTER_SKIPS))
    return _episodes(one, trouble, rng, first_s=rng.uniform(10, 60), every_s=40.0, for_s=rng.choice((3.0, 8.0)))


def _hiccups(one: Drawn, rng: Random) -> Drawn:
    code = rng.choice((TIMEOUT, UNKNOWN))
    faults = tuple(Fault(code=code, after=rng.randrange(200, 60_000), gpu=0) for _ in range(12))
    return _with(one, faults=(*one.machine.faults, *faults))


def _slow(one: Drawn, rng: Random) -> Drawn:
    begins = [rng.uniform(20, 400) for _ in range(4)]
    faults = tuple(Fault(code=0, gpu=0, from_s=t_s, delay_s=6.0) for t_s in begins)
    return _with(one, faults=(*one.machine.faults, *faults))


def _agent(one: Drawn, rng: Random) -> Drawn:
    limit_mw = one.machine.cards[0].default_mw - 10_000
    found = again(0, limit_mw, from_s=rng.uniform(60, 200), every_s=15.0, until_s=4000.0)
    changed = _with(one, changes=(*one.machine.changes, *found))
    return replace(changed, may_end="somebody else has changed it")


SLOW = "calls that take 6 s"
# What goes wrong there.
MANNERS: dict[str, Change] = {
    "no energy counter": lambda one, rng: _cards(one, energy_counter=False),
    "a counter half too high": lambda one, rng: _cards(one, energy_gain=1.5),
    "a counter that stands still": lambda one, rng: _episodes(
        one, Trouble.COUNTER_STANDS, rng, first_s=0.0, for_s=_HOURS_S
    ),
    "a counter that stops for seconds": _counter_stops,
    "a counter that wraps": lambda one, rng: _cards(one, counter_wraps_mj=rng.choice((1 << 24, 1 << 25))),
    "zeros for one second in ten": lambda one, rng: _episodes(
        one, Trouble.ZERO, rng, first_s=rng.uniform(0, 10), every_s=10.0, for_s=1.0
    ),
    "a sensor that sticks": lambda one, rng: _episodes(
        one, Trouble.STUCK, rng, first_s=rng.uniform(20, 60), every_s=60.0, for_s=5.0
    ),
    "readings that are missing": lambda one, rng: _episodes(
        one, Trouble.MISSING, rng, first_s=rng.uniform(20, 60), every_s=45.0, for_s=2.0
    ),
    "sets that are ignored now and then": lambda one, rng: _cards(one, ignored_share=0.15),
    "sets that take another value now and then": lambda one, rng: replace(
        _cards(one, wrong_share=0.1, wrong_mw=-7_000), may_end="clamped|somebody else|stays at|ignored"
    ),
    "limits in steps of 25 W": lambda one, rng: _cards(
        one, steps=Steps(step_mw=25_000, lag_s=rng.choice((0.008, 0.5)))
    ),
    "calls that fail now and then": _hiccups,
    SLOW: _slow,
    "getters without permission": lambda one, rng: _cards(one, denied=tuple(rng.sample(GETTERS, rng.randrange(1, 5)))),
    "a card that is lost": lambda one, rng: replace(
        one,
        lost=Fault(code=LOST, gpu=0, times=None, from_s=rng.uniform(60, 300)),
        may_end="fallen off the bus",
    ),
    "an agent that sets its number every 15 s": _agent,
    "a driver that is reloaded": lambda one, rng: _with(one, reloads=(rng.uniform(40, 300),)),
}
# That a container may not ask (MIG: even memory); those without which nothing can be tuned are another matter.
GETTERS: tuple[str, ...] = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetVirtualizationMode",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetName",
)
