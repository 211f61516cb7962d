"""The document of a run: what is said of it, from its headline to its small print."""

import shlex
from collections.abc import Iterator, Sequence

from autocap.config.option import taken_words
from autocap.events import Event, TrialWithdrawn
from autocap.job import registry
from autocap.reports.document import Document, Sentences, Table
from autocap.reports.summary.record import Summary
from autocap.reports.summary.summarise import all_of
from autocap.reports.wording import books, granted
from autocap.reports.wording import run as wording
from autocap.reports.wording.events import withdrawn
from autocap.reports.wording.headline import headline
from autocap.reports.wording.numbers import PROXY, ago, best_cap, counted_runs, mark
from autocap.runlog.memory.store import SHOWN_DIGITS
from autocap.text import printable


def run_document(summary: Summary, events: Sequence[Event]) -> Document:
    """The document of a run that `autocap run`, `attach` or `autocap.tune` recorded."""
    of_node = wording.node_heading(summary.node, summary.device.kind if summary.device else None)
    at_rest = [] if summary.node is None else wording.node_at_rest(summary.node, summary.knob)
    aim = "" if summary.device is None else f"minimising {wording.aim(summary)}; "
    aim = f"{aim}ended: {summary.ended_because}"
    return Document(
        kicker=f"autocap {summary.mode} · {wording.device(summary)}",
        headline=headline(summary),
        remarks=(
            *wording.remarks(events),
            *wording.per_gpu(summary),
            *_given(summary, events),
            *books.remarks(summary),
            *of_node,
            *at_rest,
        ),
        aim=aim,
        label=wording.EMULATED if summary.emulated else "",
        facts=(*wording.facts(summary), *books.facts(summary)),
        warnings=summary.warnings,
        body=tuple(_body(summary, events, [aim, *of_node], at_rest)),
        job=tuple(_job(summary, events)),
        version=summary.autocap_version,
    )


def _given(summary: Summary, events: Sequence[Event]) -> list[str]:
    found_w = () if summary.device is None else [gpu.cap_original_w for gpu in summary.device.gpus]
    return granted.remarks(events, found_w, summary.baseline)


def _body(
    summary: Summary, events: Sequence[Event], intent: Sequence[str], at_rest: Sequence[str]
) -> Iterator[Sentences | Table]:
    label = f" ({wording.EMULATED})" if summary.emulated else ""
    heading = [headline(summary), f"{wording.device(summary)}{label}", *intent]
    if summary.device is None:
        heading = [f"{shlex.join(summary.command)}: not tuned: {summary.ended_because}"]
    if summary.baseline is None:
        why = f": {summary.decided_because}" if summary.decided_because else ", so there is nothing to compare"
        yield Sentences(lines=(*heading, f"no baseline was measured{why}"))
    else:
        yield Sentences(lines=tuple(heading))
        if summary.is_relative:
            yield Sentences(lines=(PROXY,), warning=True)
        yield wording.trials(summary, events)
        doubtful = tuple(withdrawn(one, summary.knob) for one in all_of(TrialWithdrawn, events))
        if doubtful:
            yield Sentences(lines=doubtful, warning=True)
        result = [wording.outcome(summary), *wording.per_gpu(summary), *wording.savings(summary)]
        yield Sentences(lines=(*result, *wording.expectation(events), *at_rest))
        if summary.node is not None:
            yield wording.gpus_part(summary, events)
    spent = books.table(summary)
    if spent is not None:
        yield spent
        yield Sentences(lines=tuple(books.remarks(summary)))
    if summary.trials:
        by_metric = summary.knob.said(f"Best cap by metric{mark(summary)}")
        yield wording.bests(summary.best_by_metric, summary.best_by_metric_gpu, by_metric, summary.knob)
        front = f"Pareto front{mark(summary)}: energy and time that no other cap beats"
        yield wording.front(summary.pareto, summary.knob.said(front), summary.knob, emulated=summary.modelled)
    for name in (*registry.ours("sections"), *registry.plugged_in("sections")):
        yield from _section(name, summary, events)
    if summary.device is not None:
        yield granted.of_devices(summary.device, summary.knob)


def _section(name: str, summary: Summary, events: Sequence[Event]) -> Sequence[Sentences | Table]:
    """What a plug-in, or another package, has to say. Whatever it raises, the rest of the report is there."""
    try:
        return tuple(registry.load("sections", name)(summary, events))
    except Exception as error:  # noqa: BLE001 - somebody else's code
        why = printable(f"{type(error).__name__}: {error}")
        return (Sentences(lines=(f"the section {name} of this report failed: {why}",), warning=True),)


def _job(summary: Summary, events: Sequence[Event]) -> Iterator[tuple[str, str]]:
    options = ", ".join(f"{option.name}={option.value}" for option in summary.strategy.options)
    yield "command", shlex.join(summary.command)
    yield "started", summary.started_at
    yield "ended", summary.ended_because
    yield "process", "unknown" if summary.pid is None else str(summary.pid)
    yield "strategy", f"{summary.strategy.name} ({options})" if options else summary.strategy.name
    if summary.settings:
        yield "settings", taken_words(summary.settings)
    if summary.remembered is not None:
        known = summary.remembered
        what = f"{best_cap(known.setting, summary.metric.name, summary.knob)}, measured {ago(known.age_s)}"
        yield "remembered", f"{counted_runs(known.runs)}, {what} ({known.key[:SHOWN_DIGITS]})"
    if summary.progress is not None:
        yield "iterations", f"from {summary.progress.kind}, confidence {summary.progress.confidence}"
    for sentence in wording.expectation(events):
        yield "expected", sentence.removeprefix("expected: ")
