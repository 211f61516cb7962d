"""A sweep as text: per GPU set all caps, the best by each metric as the papers print it, and the Pareto front."""

import shlex

from autocap.reports.text import WIDTH, drawn
from autocap.reports.wording import node as node_wording
from autocap.reports.wording import run as run_wording
from autocap.sweep import wording
from autocap.sweep.summary import Panel, SweepSummary


def lines(summary: SweepSummary, width: int = WIDTH) -> list[str]:
    """What the sweep came to, line by line, without colour."""
    told = _heading(summary)
    for panel in summary.panels:
        told += ["", *_panel(summary, panel, width)]
    return told


def _heading(summary: SweepSummary) -> list[str]:
    left = f"; runs left: {summary.runs_left}" if summary.runs_left else ""
    label = f" ({run_wording.EMULATED})" if summary.plan.emulated else ""
    return [
        f"sweep of {shlex.join(summary.command)}{label}; ended: {summary.ended_because}{left}",
        *wording.heading(summary),
    ]


def _panel(summary: SweepSummary, panel: Panel, width: int) -> list[str]:
    names = ", ".join(dict.fromkeys(gpu.name for gpu in panel.gpus.gpus))
    told = [f"GPU {panel.gpus.label}: {names}; limit found on arrival {panel.gpus.baseline_w:g} W"]
    if panel.rows:
        told += ["", *drawn(wording.caps(panel, emulated=summary.modelled), width)]
    if panel.rows and panel.node is not None:
        told += ["", *wording.at_rest(panel)]
        told += ["", *drawn(wording.of_gpus(panel, emulated=summary.plan.emulated), width)]
    if panel.baseline is None:
        told += ["", "the limit found on arrival was not measured, so there is nothing to compare"]
    else:
        told += ["", *drawn(wording.bests(summary, panel, panel.baseline.measurement), width)]
        by_both = node_wording.bests(panel)
        told += [] if by_both is None else ["", *drawn(by_both, width)]
        told += ["", *drawn(run_wording.front(panel.pareto, emulated=summary.modelled), width)]
    head, *rest = list(wording.left_out(panel)) or [""]
    return [*told, "", head, *(f"  {line}" for line in rest)] if head else told
