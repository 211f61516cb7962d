"""`autocap budget --simulate`."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.cli.user_rights import become_user
from autocap.config import values
from autocap.errors import AutocapError
from autocap.printing import columns, encoding_of, note, put, put_json
from autocap.text import did_you_mean

if TYPE_CHECKING:
    from autocap.plugins.fleet.budget.plan import Plan
    from autocap.plugins.fleet.reports.plan import PlannedBudget

POLICIES = ("fair", "throughput", "energy", "uniform")
USUAL = "90%,80%,70%,60%"
_MOST_BUDGETS = 100
_LEAST_W, _MOST_W = 1e-3, 1e9


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


def policies(text: str) -> tuple[str, ...]:
    """`fair,uniform`: how budgets are shared, each once."""
    parts = tuple(dict.fromkeys(part.strip(" ") for part in text.split(",")))
    for part in parts:
        if part not in POLICIES:
            meant = did_you_mean(part, POLICIES)
            raise argparse.ArgumentTypeError(
                f"unknown policy {values.shown(part)}{meant}; choose of {', '.join(POLICIES)}"
            )
    return parts


def simulate(
    jobs: Path,
    budgets: Sequence[Amount],
    rules: Sequence[str],
    curves: Path | None,
    plots: Path | None,
    *,
    as_json: bool,
) -> None:
    """Say what budgets would do to the jobs of a file. Raises AutocapError."""
    become_user(_load)
    from autocap.plugins.fleet.budget.job_file import published, read_curves, read_jobs
    from autocap.plugins.fleet.budget.plan import Plan

    known = published() | ({} if curves is None else read_curves(curves))
    plan = Plan(jobs=read_jobs(jobs, known), curves=known)
    planned = _played(plan, budgets, rules)
    if plots is not None:
        _draw(plots, planned)
    _show(plan, planned, as_json=as_json)


def _played(plan: "Plan", budgets: Sequence[Amount], rules: Sequence[str]) -> "list[PlannedBudget]":
    from autocap.plugins.fleet.budget.plan import uniform
    from autocap.plugins.fleet.budget.shares import Policy
    from autocap.plugins.fleet.reports.plan import PlannedBudget

    asked_w = plan.asked_w
    planned = []
    for budget in budgets:
        budget_w = budget.of(asked_w)
        for rule in rules:
            outcome = plan.play(budget_w, uniform if rule == "uniform" else Policy(rule))
            planned.append(PlannedBudget(budget_w=budget_w, fraction=budget_w / asked_w, rule=rule, outcome=outcome))
    return planned


def _show(plan: "Plan", planned: "Sequence[PlannedBudget]", *, as_json: bool) -> None:
    from autocap.plugins.fleet.reports import plan as budget_plan
    from autocap.reports import text

    if as_json:
        put_json(budget_plan.as_json(planned))
        return
    made = budget_plan.document(planned, len(plan.jobs), plan.asked_w)
    put(*text.lines(made, columns(sys.stdout), encoding_of(sys.stdout)))


def _draw(folder: Path, planned: "Sequence[PlannedBudget]") -> None:
    from autocap.plugins.fleet.reports import plan as budget_plan
    from autocap.reports.figures import svg
    from autocap.runlog.output_directory import OutputDirectory

    try:
        with closing(OutputDirectory(folder)) as place:
            place.put("budget.svg", svg.file(budget_plan.picture(planned)))
    except OSError as error:
        raise AutocapError(f"no plots can be put into {folder}: {error.strerror}; pass another --out") from error
    note(f"drew {folder / 'budget.svg'}")


def _load() -> None:
    """What is imported late."""
    from autocap.plugins.fleet.budget import job_file, plan  # noqa: F401
    from autocap.plugins.fleet.reports import plan as budget_plan  # noqa: F401
    from autocap.reports import text  # noqa: F401
    from autocap.reports.figures import svg  # noqa: F401
