"""`autocap budget --simulate`."""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.errors import AutocapError
from autocap.plugins.fleet.config import UNIFORM, PlanConfig, Policy
from autocap.text import columns, encoding_of, note, put, put_json

if TYPE_CHECKING:
    from autocap.reports.figures.model import Picture


def simulate(config: PlanConfig, folder: Path) -> None:
    """Say what budgets would do to the jobs of a file. folder: where it is drawn. Raises AutocapError."""
    from autocap.plugins.fleet.budget.job_file import published, read_curves, read_jobs
    from autocap.plugins.fleet.budget.plan import Plan, uniform
    from autocap.plugins.fleet.reports import plan as report
    from autocap.reports import text

    known = published() | ({} if config.curves is None else read_curves(config.curves))
    plan = Plan(jobs=read_jobs(config.jobs, known), curves=known)
    asked_w, planned = plan.asked_w, list[report.PlannedBudget]()
    for budget_w in (budget.of(asked_w) for budget in config.budgets):
        for rule in config.rules:
            outcome, share = plan.play(budget_w, uniform if rule == UNIFORM else Policy(rule)), budget_w / asked_w
            planned.append(report.PlannedBudget(budget_w=budget_w, fraction=share, rule=rule, outcome=outcome))
    if config.plots:
        _draw(folder, report.picture(planned))
    if config.json:
        put_json(report.as_json(planned))
    else:
        made = report.document(planned, len(plan.jobs), asked_w)
        put(*text.lines(made, columns(sys.stdout), encoding_of(sys.stdout)))


def _draw(folder: Path, picture: "Picture") -> None:
    from autocap.reports.figures import svg
    from autocap.runlog.output_directory import OutputDirectory

    try:
        with closing(OutputDirectory(folder)) as place:
            place.put("budget.svg", svg.file(picture))
    except OSError as error:
        raise AutocapError(f"no plots can be put into {folder}: {error.strerror}; pass another --out") from error
    note(f"drew {folder / 'budget.svg'}")
