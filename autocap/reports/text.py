"""A run as text for a terminal: what `telling` says, line by line."""

from autocap.reports.summary.record import Summary
from autocap.reports.tables import WIDTH, drawn
from autocap.reports.wording import node as nodetelling
from autocap.reports.wording import per_gpu as pergputelling
from autocap.reports.wording import run as telling


def lines(summary: Summary, width: int = WIDTH) -> list[str]:
    """What the run came to, line by line, without colour."""
    if summary.baseline is None:
        return [*_heading(summary), "no baseline was measured, so there is nothing to compare"]
    table = drawn(telling.trials(summary, summary.baseline), width)
    told = [*_heading(summary), "", *table, "", telling.outcome(summary)]
    told += [*pergputelling.lines(summary), *telling.savings(summary)]
    if summary.node is not None:
        of_gpus = nodetelling.of_gpus(summary, summary.baseline)
        told += [*nodetelling.at_rest(summary.node), "", *drawn(of_gpus, width)]
    if not summary.trials:
        return told
    front = telling.front(summary.pareto, emulated=telling.modelled(summary))
    bests = nodetelling.bests(summary) or telling.bests(summary)
    return [*told, "", *drawn(bests, width), "", *drawn(front, width)]


def _heading(summary: Summary) -> list[str]:
    if summary.device is None:
        return [f"{telling.command(summary)}: not tuned: {summary.ended_because}"]
    label = f" ({telling.EMULATED})" if telling.emulated(summary) else ""
    return [
        f"{telling.device(summary)}{label}",
        f"minimising {telling.aim(summary)}; ended: {summary.ended_because}",
        *nodetelling.heading(summary.node, telling.kind(summary)),
    ]
