"""`autocap budget --simulate`."""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.cli.user_rights import become_user
from autocap.errors import AutocapError
from autocap.plugins.fleet.config import UNIFORM, Amount, PlanConfig, Policy
from autocap.printing import columns, encoding_of, note, put, put_json

if TYPE_CHECKING:
    from autocap.plugins.fleet.budget.plan import Plan
    from autocap.plugins.fleet.reports.plan import PlannedBudget


def simulate(config: PlanConfig, folder: Path) -> None:
    """Say what budgets would do to the jobs of a file. folder: where it is drawn. Raises AutocapError."""
    become_user(_load)
    from autocap.plugins.fleet.budget.job_file import published, read_curves, read_jobs
    from autocap.plugins.fleet.budget.plan import Plan

    known = published() | ({} if config.curves is None else read_curves(config.curves))
    plan = Plan(jobs=read_jobs(config.jobs, known), curves=known)
    planned = _played(plan, config.budgets, config.rules)
    if config.plots:
        _draw(folder, planned)
    _show(plan, planned, as_json=config.json)


def _played(plan: "Plan", budgets: Sequence[Amount], rules: Sequence[str]) -> "list[PlannedBudget]":
    from autocap.plugins.fleet.budget.plan import uniform
    from autocap.plugins.fleet.reports.plan import PlannedBudget

    asked_w = plan.asked_w
    planned = []
    for budget in budgets:
        budget_w = budget.of(asked_w)
        for rule in rules:
            outcome = plan.play(budget_w, uniform if rule == UNIFORM else Policy(rule))
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
