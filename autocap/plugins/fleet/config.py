"""The settings of a budget, as `autocap.config` has those of a run, and the devices that it can hold."""

import argparse
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, cast

from autocap.config import DEVICE, NODE_POWER, VIA, RunConfig, values
from autocap.config.option import CommandOption, same
from autocap.devices import inventory_of, kind_of
from autocap.devices.inventory import HoldableInventory
from autocap.errors import UsageError
from autocap.plugins.fleet.openadr.source import VtnSource
from autocap.text import did_you_mean

UNIFORM = "uniform"  # the same cap for all, to compare with
USUAL_BUDGETS = "90%,80%,70%,60%"
_MOST_BUDGETS = 100
_LEAST_W, _MOST_W = 1e-3, 1e9


class Policy(StrEnum):
    """How a budget is shared."""

    FAIR = "fair"
    THROUGHPUT = "throughput"
    ENERGY = "energy"


RULES = (*Policy, UNIFORM)  # of planned budgets


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A budget: watts, or a share of what the jobs ask for at most at one time."""

    watts: float | None = None
    fraction: float | None = None

    def of(self, asked_w: float) -> float:
        """In watts."""
        return asked_w * (self.fraction or 0.0) if self.watts is None else self.watts


def amounts(text: str) -> tuple[Amount, ...]:
    """`80%,20000`: budgets, watts or percentages."""
    parts = [part.strip(" ") for part in text.split(",")]
    if len(parts) > _MOST_BUDGETS:
        raise argparse.ArgumentTypeError(f"these are {len(parts)} budgets; give at most {_MOST_BUDGETS}")
    return tuple(_amount(part) for part in parts)


def _amount(part: str) -> Amount:
    if part.endswith("%"):
        return Amount(fraction=values.percentage(part))
    watts = values.number_or_none(part)
    if watts is None or not _LEAST_W <= watts <= _MOST_W:
        raise argparse.ArgumentTypeError(
            f"{values.shown(part)} is no budget; give watts, {values.plain(_LEAST_W)} to {values.plain(_MOST_W)}, or a "
            "percentage such as 80%"
        )
    return Amount(watts=watts)


def rules(text: str) -> tuple[str, ...]:
    """`fair,uniform`: how budgets are shared, each once."""
    parts = tuple(dict.fromkeys(part.strip(" ") for part in text.split(",")))
    for part in parts:
        if part not in RULES:
            meant = did_you_mean(part, RULES)
            raise argparse.ArgumentTypeError(
                f"unknown policy {values.shown(part)}{meant}; choose of {', '.join(RULES)}"
            )
    return parts


_BUDGET = ("budget",)
_begun = partial(CommandOption, "a budget that begins", commands=_BUDGET)
_planned = partial(CommandOption, "planned jobs", commands=_BUDGET)
_of_run = partial(same, RunConfig, command="budget", group="a budget that begins")


_policy = _begun(
    "--policy NAME",
    rules,
    "how they are shared: fair (equal slowdowns), throughput or energy; of --simulate a list, uniform as well "
    "(default: fair, of --simulate all)",
    usual=RULES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetConfig:
    """`autocap budget WATTS …`. watts: `None` where the schedule alone says it. gpus: `None` for all whose limits can
    be set. floor_w: the lowest cap, `None` for the device's own. for_s: `None` until it is ended. schedule: a file,
    absolute, or `command:CMD`. group: who else may speak to it. nodes: `None` for this machine alone. job: of Slurm."""

    watts: float | None
    policy: Annotated[Policy, _policy] = Policy.FAIR
    gpus: Annotated[
        tuple[str, ...] | None,
        _of_run("--gpus", help="indices, ranges or UUIDs, by comma (default: all whose limits can be set)"),
    ] = None
    device: Annotated[str, _of_run("--device", help="auto or nvml (default: auto)")] = DEVICE
    via: Annotated[str, _of_run("--via", help="who sets the limits: auto, direct, helper or zeusd (default: auto)")] = (
        VIA
    )
    node_power: Annotated[
        str,
        _of_run(
            "--node-power",
            help="the budget is the whole machine's, whose power is read: WATTS, rapl, ipmi, slurm or command:CMD",
        ),
    ] = NODE_POWER
    for_s: Annotated[float | None, _begun("--for S", values.positive("seconds"), "end it after so many seconds")] = None
    schedule: Annotated[
        str | None,
        _begun(
            "--schedule SOURCE",
            values.word,
            "rows of time,watts: a file, or command:CMD, whose output is read; SIGHUP reads it again",
            runs_code="command:",
        ),
    ] = None
    floor_w: Annotated[
        float | None, _begun("--floor W", values.positive("watts"), "no cap below that (default: the GPU's lowest)")
    ] = None
    out: Annotated[Path | None, _of_run("--out", help="where it is recorded, or drawn")] = None
    force: Annotated[bool, _of_run("--force", help="replace a record that is there")] = False
    group: Annotated[str | None, _begun("--group NAME", values.word, "who may register jobs, besides us")] = None
    prometheus: Annotated[tuple[str, int] | None, _of_run("--prometheus", help="export metrics there")] = None
    nodes: Annotated[
        str | None,
        _of_run(
            "--nodes",
            help="one budget over the GPUs of several nodes: slurm (those of the job around this command, or of "
            "--job), or ray[:ADDRESS] (all of a cluster's that have GPUs)",
        ),
    ] = None
    job: Annotated[str | None, _of_run("--job", help="with --nodes slurm: the Slurm job")] = None
    openadr: VtnSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """How the answer of `autocap budget status` and of a plan is printed."""

    json: Annotated[bool, _planned("--json", None, "print it as JSON; of status as well")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfig(Printed):
    """`autocap budget --simulate JOBS.csv …`. rules: what of `RULES` is played. out: where it is drawn."""

    jobs: Annotated[Path, _planned("--simulate JOBS.csv", values.path, "the jobs")]
    rules: Annotated[tuple[str, ...], _policy] = RULES
    budgets: Annotated[
        tuple[Amount, ...],
        _planned(
            "--budget LIST",
            amounts,
            f"watts, or percentages of what the jobs ask for at most, by comma (default: {USUAL_BUDGETS})",
        ),
    ] = amounts(USUAL_BUDGETS)
    curves: Annotated[Path | None, _planned("--curves FILE.csv", values.path, "columns curve,cap_w,power_w,time_s")] = (
        None
    )
    plots: Annotated[bool, _planned("--plots", None, "draw it as budget.svg into --out, or here")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """All options of `autocap budget`, whatever it is to do."""

    hold: BudgetConfig
    demand: VtnSource
    plan: PlanConfig


def holdable(name: str) -> HoldableInventory:
    """All devices of the kind that --device names. Raises UsageError where a budget cannot hold their limits."""
    kind, why = kind_of(name), "its devices are known to the session of their job alone, which sets their caps"
    inventory = inventory_of(kind)
    if inventory is not None:
        if inventory.shared is None:
            return cast(HoldableInventory, inventory)
        why = inventory.shared
    raise UsageError(f"a budget cannot hold --device {name}: {why}; choose nvml")
