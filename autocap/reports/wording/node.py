"""What a report says of the machine around the GPUs, where its power counts."""

from collections.abc import Sequence

from autocap.events import Event
from autocap.knobs import POWER_LIMIT, Knob
from autocap.records import Measurement
from autocap.reports.document import Table
from autocap.reports.summary.baselines import Row, rows
from autocap.reports.summary.record import ESTIMATED, NodeSummary, Summary
from autocap.reports.wording import run as run_wording
from autocap.reports.wording.numbers import common_caps, with_error
from autocap.reports.wording.proxy import per_iteration


def heading(node: NodeSummary | None, device: str | None) -> list[str]:
    """What the energy in the report is of; nothing where it is the devices' own. device: their kind."""
    if node is None:
        return []
    if not node.whole:
        return [f"energy is the whole node's: the GPUs' and beside it {node.source}"]
    every = "" if node.refresh_s is None else f", a fresh reading every {node.refresh_s:.2g} s"
    included = "without the emulated GPUs'" if device == "emulated" else "the GPUs' included"  # no meter reads those
    return [f"energy is the whole node's, {included}, as {node.source} reads it{every}"]


def at_rest(
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


def of_gpus(summary: Summary, events: Sequence[Event]) -> Table:
    """The GPUs' part in what the table of trials has of the whole node."""
    shown, out = rows(summary, events, run_wording.MOST_ROWS), []
    for place, row in enumerate(shown):
        measurement = row.baseline if row.trial is None else row.trial.measurement
        if measurement is not None:
            note = _note(row, first=place == 0)
            out.append(_gpu_row(measurement, row.baseline, note, summary.knob))
    if summary.chosen is not None and summary.chosen.measurement is not None and shown:
        out.append(_gpu_row(summary.chosen.measurement, shown[-1].baseline, run_wording.kept(summary), summary.knob))
    titles = (summary.knob.title, "W", per_iteration(summary)[1], "energy %", "")
    return Table(
        heading="The GPUs' part",
        note="emulated" if summary.emulated else "",
        titles=titles,
        rows=tuple(out),
        spare=(1, 2),
    )


def _note(row: Row, *, first: bool) -> str:
    if row.trial is not None:
        return row.trial.state.value
    return run_wording.BASELINE if first else run_wording.BASELINE_AGAIN


def _gpu_row(measurement: Measurement, baseline: Measurement, note: str, knob: Knob) -> tuple[str, ...]:
    base = baseline.of_gpus()
    of_gpus = base if measurement is baseline else measurement.of_gpus()
    watts, _, joules, energy, _ = run_wording.measured(of_gpus, base)
    return common_caps(measurement.setting, knob), watts, joules, energy, note
