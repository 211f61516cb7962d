"""What a page on a run says, from its headline to its small print, before it is drawn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autocap.events import Event
from autocap.reports.figures import pictures
from autocap.reports.figures.model import Picture
from autocap.reports.summary.record import Summary
from autocap.reports.summary.summarise import summarise
from autocap.reports.wording import node as node_wording
from autocap.reports.wording import per_gpu as per_gpu_wording
from autocap.reports.wording import run as run_wording
from autocap.reports.wording.numbers import common_caps
from autocap.reports.wording.run import Fact, Table
from autocap.runlog.samples import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """kicker: what it is about, above the headline. remarks: clauses on what came of it. aim: what was to be found.
    label: how its power must be marked, or nothing. tables: each with its title. job: what was run, name by name; the
    first is a command. version: of autocap, that made it.
    """

    kicker: str
    headline: str
    remarks: tuple[str, ...]
    aim: str
    label: str
    facts: tuple[Fact, ...]
    warnings: tuple[str, ...]
    pictures: tuple[Picture, ...]
    tables: tuple[tuple[str, Table], ...]
    job: tuple[tuple[str, str], ...]
    version: str


def run_page(events: Sequence[Event], samples: Samples) -> Page:
    """The page of a run that `autocap run` or `attach` recorded. Raises RunDirectoryError as `summarise`."""
    summary = summarise(events)
    aim = "" if summary.device is None else f"minimising {run_wording.aim(summary)}; "
    return Page(
        kicker=f"autocap {summary.mode} · {run_wording.device(summary)}",
        headline=_headline(summary),
        remarks=(*run_wording.remarks(events), *per_gpu_wording.lines(summary), *_of_node(summary)),
        aim=f"{aim}ended: {summary.ended_because}",
        label=run_wording.EMULATED if run_wording.emulated(summary) else "",
        facts=tuple(run_wording.facts(summary)),
        warnings=summary.warnings,
        pictures=tuple(pictures(summary, events, samples)),
        tables=tuple(_tables(summary)),
        job=tuple(_job(summary)),
        version=summary.autocap_version,
    )


def _headline(summary: Summary) -> str:
    if summary.device is None:
        return "Not tuned"
    if run_wording.undecided(summary):
        return "Nothing decided yet"
    if summary.chosen is None:
        return "No cap was kept" if summary.trials else "No cap was tried"
    found = [gpu.cap_original_w for gpu in summary.device.gpus if gpu.cap_original_w is not None]
    of = f" of {common_caps(found)} W" if found else ""
    return f"Kept {common_caps(summary.chosen.cap_w)} W{of}"


def _of_node(summary: Summary) -> list[str]:
    if summary.node is None:
        return []
    return [*node_wording.heading(summary.node, run_wording.kind(summary)), *node_wording.at_rest(summary.node)]


def _tables(summary: Summary) -> Iterator[tuple[str, Table]]:
    if summary.baseline is not None:
        yield "Measured caps", run_wording.trials(summary, summary.baseline)
        if summary.node is not None:
            yield "The GPUs' part", node_wording.of_gpus(summary, summary.baseline)
    if summary.trials:
        yield "Best cap by metric", node_wording.bests(summary) or run_wording.bests(summary)
        yield (
            "Energy and time that no other cap beats",
            run_wording.front(summary.pareto, emulated=run_wording.modelled(summary)),
        )
    if summary.device is not None:
        yield "Power limits", run_wording.limits(summary)


def _job(summary: Summary) -> Iterator[tuple[str, str]]:
    options = ", ".join(f"{option.name}={option.value}" for option in summary.strategy.options)
    yield "command", run_wording.command(summary)
    yield "started", summary.started_at
    yield "ended", summary.ended_because
    yield "process", "unknown" if summary.pid is None else str(summary.pid)
    yield "strategy", f"{summary.strategy.name} ({options})" if options else summary.strategy.name
    if summary.progress is not None:
        yield "iterations", f"from {summary.progress.kind}, confidence {summary.progress.confidence}"
