"""A run in words and tables, with uncertainties: what every report says, as text or as a page."""

from collections.abc import Iterator, Sequence

from autocap.events import ASKED, BLOCK_ENDED, JOB_ENDED, Decided, Event, MetricInfo, State, WouldTry
from autocap.knobs import POWER_LIMIT, Knob
from autocap.metrics import DEFAULT_K, ratios
from autocap.records import Measurement
from autocap.reports.document import Fact, Table
from autocap.reports.summary.baselines import Row, rows
from autocap.reports.summary.gains import ENERGY, TIME, changes_pct
from autocap.reports.summary.record import (
    ESTIMATED,
    PREDICTED,
    BestCap,
    ChosenSummary,
    NodeSummary,
    ParetoPoint,
    Summary,
    TrialSummary,
    VersusBaseline,
)
from autocap.reports.summary.summarise import UNFINISHED, all_of, knob_of, last_of
from autocap.reports.wording import granted
from autocap.reports.wording.numbers import (
    LOW_CONFIDENCE,
    change,
    common_caps,
    counted,
    lasted,
    mark,
    per_iteration,
    ratio,
    times,
    with_error,
    with_rel_error,
    with_unit,
)

EMULATED = "EMULATED power: modelled, not measured"  # said wherever such power is shown
BASELINE, BASELINE_AGAIN = "baseline", "baseline, measured again"  # the rows below are held against it
KEPT, KEPT_UNCONFIRMED = "kept, confirmed", "kept, not confirmed"
UNCONFIRMED = ", not confirmed"
_TO_THE_END = frozenset({JOB_ENDED, BLOCK_ENDED, ASKED, UNFINISHED})  # as long as there was a job, or longer
_EMULATED = "emulated"  # in short
NO_CAP_PAGE = "`autocap help no-cap-kept` goes through the reasons"
_MANY_PREDICTED = 8
MOST_ROWS = 300  # of a table; a search takes some ten trials


def device(summary: Summary) -> str:
    """The devices by name, without a word on emulation."""
    if summary.device is None:
        return "no device"
    return counted([gpu.name for gpu in summary.device.gpus])


def aim(summary: Summary) -> str:
    """What was minimised and what that is, how, and by what iterations were counted."""
    progress = f", iterations from {summary.progress.kind}{mark(summary)}" if summary.progress else ""
    meaning = f" ({explained(summary.metric)})" if summary.metric.name == "eds" else ""
    return f"{asked_for(summary.metric)}{meaning} with strategy {summary.strategy.name}{progress}"


def asked_for(metric: MetricInfo) -> str:
    """The metric and its limit, such as `eds k=2, at most 5 % slower`."""
    limit = "" if metric.max_slowdown is None else f", at most {100 * metric.max_slowdown:g} % slower"
    return f"{_with_k(metric)}{limit}"


def explained(metric: MetricInfo) -> str:
    """EDS in words, with the user's k."""
    k = metric.k or DEFAULT_K
    return (
        f"{100 * (k - 1) / k:.3g} % energy + {100 / k:.3g} % time, each as a share of the baseline's; lower is better"
    )


def meaning(metric: MetricInfo) -> str:
    """The same as a clause."""
    return f"{_with_k(metric)} is {explained(metric)}"


def _with_k(metric: MetricInfo) -> str:
    return metric.name + ("" if metric.k is None else f" k={metric.k:g}")


def trials(summary: Summary, events: Sequence[Event], latest: int | None = None) -> Table:
    """The trials, each below the baseline that it is held against, and the kept cap. latest: only so many of them; else
    a row says how many are left out."""
    shown = rows(summary, events, MOST_ROWS if latest is None else latest)
    left_out = len(summary.trials) - sum(row.trial is not None for row in shown)
    notes = [_EMULATED] * summary.modelled + [LOW_CONFIDENCE] * summary.is_relative
    return Table(
        heading=summary.knob.said("Measured caps"),
        note=", ".join(notes),
        titles=(summary.knob.title, "W", *per_iteration(summary), "energy %", "time %", summary.metric.name, ""),
        rows=tuple(_trial_rows(summary, shown, left_out if latest is None else 0)),
        spare=(3, 2, 1, 5, 4),
    )


def _trial_rows(summary: Summary, shown: Sequence[Row], left_out: int) -> Iterator[tuple[str, ...]]:
    knob = summary.knob
    for place, row in enumerate(shown):
        if row.trial is None:
            remark = BASELINE_AGAIN if place else BASELINE
            yield common_caps(row.baseline.setting, knob), *measured(row.baseline, row.baseline), "1", remark
        else:
            yield common_caps(row.trial.setting, knob), *trial_cells(row.trial, row.baseline)
        if place == 0 and left_out:
            yield "…", *["–"] * 6, f"{left_out} earlier trials"
    chosen, versus = summary.chosen, summary.versus_baseline
    if chosen is not None and chosen.measurement is not None and shown:
        # The baseline of the last row is the one that `versus` compares with.
        cells = measured(chosen.measurement, shown[-1].baseline)
        yield common_caps(chosen.setting, knob), *cells, metric_of(versus), kept(summary)


def bests(best: Sequence[BestCap], of_gpus: Sequence[BestCap], heading: str, knob: Knob = POWER_LIMIT) -> Table:
    """The best cap by each metric, whatever was minimised. of_gpus: the same by the GPUs' energy alone, where that of
    the node counts; else nothing."""
    cap = knob.title
    columns = (f"node: {cap}", "value", f"GPUs: {cap}", "value") if of_gpus else (cap, "value")
    rows = []
    for found in zip(best, of_gpus, strict=True) if of_gpus else zip(best):
        cells = [(common_caps(one.setting, knob), with_error(one.cost, one.cost_stderr)) for one in found]
        rows.append((found[0].metric, *(cell for pair in cells for cell in pair), found[0].source))
    return Table(
        heading=heading,
        note="the baseline's value is 1",
        titles=("metric", *columns, ""),
        rows=tuple(rows),
        spare=(4, 2) if of_gpus else (),
        left=(0,),
        folded=True,
    )


def front(points: Sequence[ParetoPoint], heading: str, knob: Knob = POWER_LIMIT, *, emulated: bool) -> Table:
    """The Pareto front; of the caps that were only predicted a few."""
    predicted = [point for point in points if point.source == PREDICTED]
    shown = predicted[:: 1 + len(predicted) // _MANY_PREDICTED]
    rows = [
        (
            common_caps(point.setting, knob),
            with_error(point.energy, point.energy_stderr),
            with_error(point.time, point.time_stderr),
            point.source,
        )
        for point in points[:MOST_ROWS]
        if point.source != PREDICTED or point in shown
    ]
    return Table(
        heading=heading,
        note="the baseline's are 1" + (f"; {_EMULATED}" if emulated else ""),
        titles=(knob.title, "energy", "time", ""),
        rows=tuple(rows),
        folded=True,
    )


def has_tried(summary: Summary) -> bool:
    """Whether a trial was begun."""
    return bool(summary.trials) or any(span.name == State.SEARCHING for span in summary.states)


def kept(summary: Summary) -> str:
    """The remark of the row of the cap that was kept."""
    sure = KEPT if summary.chosen is not None and summary.chosen.confirmed else KEPT_UNCONFIRMED
    return f"{sure}{until(summary)}"


def until(summary: Summary) -> str:
    """That a cap was not kept to the end of the job, where it was not."""
    return "" if summary.chosen is None or summary.ended_because in _TO_THE_END else " until the tuning ended"


def chosen(one: ChosenSummary) -> str:
    """The caps that were kept in a line."""
    sure = f"{with_unit(one.setting, one.knob)}, {'' if one.confirmed else 'not '}confirmed"
    m = one.measurement
    if m is None or m.is_relative:
        return sure
    time_s, energy_j = with_rel_error(m.period_s, m.period_rel_stderr), m.energy_per_iteration_j
    return f"{sure}: {time_s} s and {with_rel_error(energy_j, m.energy_rel_stderr)} J per iteration"


def undecided(summary: Summary) -> bool:
    """Whether the run was killed, or still runs, before its search came to an end."""
    held = any(span.name == State.HOLDING for span in summary.states)
    return summary.ended_because == UNFINISHED and summary.chosen is None and not held


def outcome(summary: Summary) -> str:
    """What was kept, and what it changes per iteration; or why nothing was."""
    return summary.knob.said(_outcome(summary))


def _outcome(summary: Summary) -> str:
    if undecided(summary):
        return "nothing is decided yet, as far as is on record."
    if summary.chosen is None:
        if not has_tried(summary):
            why = f": {summary.decided_because} ({NO_CAP_PAGE})" if summary.decided_because else "."
            return f"no cap was kept{why}"  # one may have been set, to see whether a period is real
        if summary.decided_because is not None:
            return f"no cap was kept, {granted.back(summary)}: {summary.decided_because} ({NO_CAP_PAGE})"
        ended = "" if summary.trials else ", as the search ended before its first trial did"
        return f"no cap was kept{ended}: {granted.back(summary)} ({NO_CAP_PAGE})"
    unsure = UNCONFIRMED * (not summary.chosen.confirmed)
    held = f"kept {with_unit(summary.chosen.setting, summary.knob)}{unsure}{until(summary)}"
    changed = changes(summary)
    if not changed:
        return held
    gained = ", ".join(f"{name} {by}" for name, by in changed)
    return f"{held}: {gained} per iteration, against the baseline{mark(summary)}"


def changes(summary: Summary) -> list[tuple[str, str]]:
    """Energy, time and, where it is another, the metric of the kept cap per iteration against the baseline's, each as
    name and number."""
    versus = summary.versus_baseline
    if versus is None or versus.energy_pct is None or versus.time_pct is None or versus.metric_pct is None:
        return []
    energy = change(versus.energy_pct, versus.energy_stderr_pct)
    if versus.gpu_energy_pct is not None:
        energy += f" (GPUs alone {change(versus.gpu_energy_pct, versus.gpu_energy_stderr_pct)})"
    changed = [("energy", energy), ("time", change(versus.time_pct, versus.time_stderr_pct))]
    if summary.metric.name != "energy":
        changed.append((summary.metric.name, change(versus.metric_pct, versus.metric_stderr_pct)))
    return changed


def net(summary: Summary) -> tuple[str, str] | None:
    """What the whole run came to, search and all: joules, and the metric; `None` where it is not known."""
    versus = summary.versus_baseline
    if not summary.trials or versus is None or versus.net_energy_j is None or versus.net_metric_pct is None:
        return None
    return (
        f"{versus.net_energy_j:+.0f} J",
        f"{summary.metric.name} {change(versus.net_metric_pct, versus.net_metric_stderr_pct)}",
    )


def savings(summary: Summary) -> list[str]:
    """Net of the search, and what the search took."""
    versus, totals = summary.versus_baseline, summary.totals
    if versus is None or totals is None or not summary.trials:
        return []
    out, whole = [], net(summary)
    if whole is not None:
        joules, of_metric = whole
        over = lasted(summary, totals)
        out.append(f"net of the search: {joules}{_label(summary)} over {over}, {of_metric}")
    paid = "" if versus.break_even_s is None else f"; it has paid for itself by {versus.break_even_s:.0f} s"
    out.append(f"the search took {totals.exploration_s:.0f} s{paid}")
    return out


def facts(summary: Summary) -> Iterator[Fact]:
    """What the run is judged by: the kept cap, the whole run net of its search, and what the search took; or, where
    no cap was kept, the baseline."""
    changed = changes(summary)
    for name, value in changed:
        label = _with_k(summary.metric) if name == summary.metric.name else name
        power = _label(summary) if name == "energy" else ""
        unsure = UNCONFIRMED * (summary.chosen is not None and not summary.chosen.confirmed)
        note = summary.knob.said(f"at the kept cap{unsure}, against the baseline{mark(summary)}")
        yield Fact(name=f"{label} per iteration{power}", value=value, note=note)
    whole, totals, versus = net(summary), summary.totals, summary.versus_baseline
    if whole is not None and totals is not None:
        joules, of_metric = whole
        name = f"whole run, net of the search{_label(summary)}"
        note = f"{of_metric} over {lasted(summary, totals)}"
        yield Fact(name=name, value=joules, note=note)
    if summary.trials and totals is not None:
        paid = "it has not paid for itself"
        if versus is not None and versus.break_even_s is not None:
            paid = f"paid for itself by {versus.break_even_s:.0f} s"
        joules = f"{totals.exploration_energy_j:.0f} J{_label(summary)}"
        yield Fact(name="the search took", value=f"{totals.exploration_s:.0f} s", note=f"{joules}; {paid}")
    base = summary.baseline
    if not changed and base is not None and not base.is_relative:
        seconds = f"{with_rel_error(base.period_s, base.period_rel_stderr)} s"
        yield Fact(
            name="baseline time per iteration", value=seconds, note=f"at {with_unit(base.setting, summary.knob)}"
        )
        yield Fact(name=f"baseline energy per iteration{_label(summary)}",
                   value=f"{with_rel_error(base.energy_per_iteration_j, base.energy_rel_stderr)} J",
                   note=f"{with_rel_error(base.power_w, base.power_rel_stderr)} W drawn")  # fmt: skip


def per_gpu(summary: Summary) -> list[str]:
    """What a cap per GPU gained over the common cap, or why there is none; nothing where none was looked for."""
    versus = summary.versus_common
    if versus is None:
        return []
    knob = summary.knob
    if not versus.kept:
        return [knob.said("no cap per GPU was kept: ") + versus.reason]
    settings = f"{'/'.join(map(knob.bare, versus.setting))} {knob.unit_shown}".rstrip()
    changes = [
        (f"energy{_label(summary)}", versus.energy_pct, versus.energy_stderr_pct),
        ("time", versus.time_pct, versus.time_stderr_pct),
        (summary.metric.name, versus.metric_pct, versus.metric_stderr_pct),
    ]
    changed = ", ".join(f"{name} {_signed(pct, stderr)}" for name, pct, stderr in changes)
    return [knob.said(f"caps per GPU {settings}: {changed} per iteration, against the common cap")]


def remarks(events: Sequence[Event]) -> list[str]:
    """Why the last decision was what it was, and what a run that only observed would have tried."""
    out, decided, knob = [], last_of(Decided, events), knob_of(events)
    if decided is not None:
        what = (
            f"kept{UNCONFIRMED * (not decided.confirmed)}" if decided.setting is not None else knob.said("no cap kept")
        )
        out.append(f"{what}: {decided.reason}")
    for event in all_of(WouldTry, events):
        tried = ", ".join(map(knob.text, event.settings)) or "nothing"
        out.append(f"observed only: a search would have begun with {tried}")
    return out


def expectation(events: Sequence[Event]) -> list[str]:
    """What the strategy expected of the last cap that was decided on; nothing where it did not say."""
    decided = last_of(Decided, events)
    return [] if decided is None or decided.expected is None else [f"expected: {decided.expected}"]


def _label(summary: Summary) -> str:
    return f" ({_EMULATED})" if summary.modelled else ""


def trial_cells(trial: TrialSummary, baseline: Measurement) -> list[str]:
    """As `measured`, then the cost and what became of the trial; dashes where it could not be measured."""
    note = trial.state.value if trial.reason is None else f"{trial.state.value}: {trial.reason}"
    if trial.measurement is None or trial.cost is None or trial.cost_stderr is None:
        return ["–"] * 6 + [note]
    return [*measured(trial.measurement, baseline), ratio(trial.cost, trial.cost_stderr), note]


def measured(m: Measurement, baseline: Measurement) -> list[str]:
    """Watts, seconds and joules per iteration, or how many times those of the baseline where nothing else is known, and
    the change of energy and of time against the baseline, percent."""
    energy, time = changes_pct(m, baseline)
    seconds = with_rel_error(m.period_s, m.period_rel_stderr)
    joules = with_rel_error(m.energy_per_iteration_j, m.energy_rel_stderr)
    if m.is_relative:
        both = ratios(m, baseline)
        seconds, joules = ("×1" if m is baseline else times(both[name]) for name in (TIME, ENERGY))
    return [
        f"{m.power_w:.1f}",
        seconds,
        joules,
        f"{energy:+.1f}" if m is not baseline else "0",
        f"{time:+.1f}" if m is not baseline else "0",
    ]


def metric_of(versus: VersusBaseline | None) -> str:
    """The metric of the cap that was kept, against the baseline's."""
    if versus is None or versus.metric_pct is None or versus.metric_stderr_pct is None:
        return "–"
    return ratio(1 + versus.metric_pct / 100, versus.metric_stderr_pct / 100)


def _signed(pct: float | None, stderr: float | None) -> str:
    return "–" if pct is None else f"{'+' if pct >= 0 else ''}{with_error(pct, stderr)} %"


def node_heading(node: NodeSummary | None, device: str | None) -> list[str]:
    """What the energy in the report is of; nothing where it is the devices' own. device: their kind."""
    if node is None:
        return []
    if not node.whole:
        return [f"energy is the whole node's: the GPUs' and beside it {node.source}"]
    every = "" if node.refresh_s is None else f", a fresh reading every {node.refresh_s:.2g} s"
    included = "without the emulated GPUs'" if device == "emulated" else "the GPUs' included"  # no meter reads those
    return [f"energy is the whole node's, {included}, as {node.source} reads it{every}"]


def node_at_rest(
    node: NodeSummary, knob: Knob = POWER_LIMIT, *, when: str = "before the first iteration", per: str = "iter"
) -> list[str]:
    """Its idle power, and its energy as a machine with another idle power would have it.

    when: the machine was at rest. per: what energy is counted for.
    """
    if node.idle_w is None:
        wanted = " and its energy is not compared with another's" if node.standard_idle_w is not None else ""
        return [f"what the node draws at rest was not seen {when}{wanted}; pass --idle-power"]
    seen = ""
    if node.idle_source == ESTIMATED:
        seen = f", by the lowest 2 % of {node.idle_seen_s:.0f} s {when}"
    share = "" if node.idle_share is None else f", {100 * node.idle_share:.0f} % of the baseline's power"
    lines = [f"at rest the node draws {node.idle_w:.0f} W{seen}{share}"]
    if node.standard:
        energies = ", ".join(
            f"{with_error(one.energy_per_iteration_j, one.stderr_j)} J/{per} at {knob.text(max(one.setting))}"
            for one in node.standard
        )
        lines.append(f"as on a machine that draws {node.standard_idle_w:g} W at rest: {energies}")
    return lines


def gpus_part(summary: Summary, events: Sequence[Event]) -> Table:
    """The GPUs' part in what the table of trials has of the whole node."""
    shown, out = rows(summary, events, MOST_ROWS), []
    for place, row in enumerate(shown):
        measurement = row.baseline if row.trial is None else row.trial.measurement
        if measurement is not None:
            note = _gpu_note(row, first=place == 0)
            out.append(_gpu_row(measurement, row.baseline, note, summary.knob))
    if summary.chosen is not None and summary.chosen.measurement is not None and shown:
        out.append(_gpu_row(summary.chosen.measurement, shown[-1].baseline, kept(summary), summary.knob))
    titles = (summary.knob.title, "W", per_iteration(summary)[1], "energy %", "")
    return Table(
        heading="The GPUs' part",
        note="emulated" if summary.emulated else "",
        titles=titles,
        rows=tuple(out),
        spare=(1, 2),
    )


def _gpu_note(row: Row, *, first: bool) -> str:
    if row.trial is not None:
        return row.trial.state.value
    return BASELINE if first else BASELINE_AGAIN


def _gpu_row(measurement: Measurement, baseline: Measurement, note: str, knob: Knob) -> tuple[str, ...]:
    base = baseline.of_gpus()
    of_gpus = base if measurement is baseline else measurement.of_gpus()
    watts, _, joules, energy, _ = measured(of_gpus, base)
    return common_caps(measurement.setting, knob), watts, joules, energy, note
