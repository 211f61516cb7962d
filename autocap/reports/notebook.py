"""A run's summary as a notebook shows it: the headline, the caps that were tried, and why none was kept.

No style sheet and no colour of its own: notebooks strip the one, and are light or dark without telling. Whatever comes
from the run is escaped.
"""

from collections.abc import Iterator, Sequence

from autocap.records import Measurement
from autocap.reports.figures.ink import escape
from autocap.reports.summary.record import Summary
from autocap.reports.wording import run as wording
from autocap.reports.wording.headline import headline
from autocap.reports.wording.numbers import common_caps, with_error
from autocap.reports.wording.proxy import PROXY

_MOST_ROWS = 30  # the last; a search takes some ten trials
_MOST_WARNINGS = 20
_CELL = "padding:2px 10px;text-align:right;white-space:nowrap"
_REMARK = "padding:2px 10px;text-align:left"


def html(summary: Summary) -> str:
    """The summary as one element of a page."""
    return f'<div class="autocap-result">{"".join(_parts(summary))}</div>'


def _parts(summary: Summary) -> Iterator[str]:
    yield f"<p><strong>{escape(headline(summary))}</strong></p>"
    if summary.baseline is not None and summary.metric.name == "eds":
        yield _line(f"{wording.meaning(summary.metric)}.")
    if summary.chosen is None:
        why = summary.decided_because
        yield _line(f"Why: {why}" if why else f"Ended: {summary.ended_because}")
    if summary.baseline is not None:
        yield _table(summary, summary.baseline)
        yield _line("Per iteration, against the baseline; ± is the standard error.")
    if summary.is_relative:
        yield _line(f"{PROXY[0].upper()}{PROXY[1:]}.")
    if summary.emulated:
        yield _line(wording.EMULATED)
    if summary.warnings:
        items = "".join(f"<li>{escape(text)}</li>" for text in summary.warnings[:_MOST_WARNINGS])
        yield f"<details><summary>Warnings: {len(summary.warnings)}</summary><ul>{items}</ul></details>"


def _line(text: str) -> str:
    return f'<p style="margin:4px 0">{escape(text)}</p>'


def _table(summary: Summary, baseline: Measurement) -> str:
    titles = ("cap W", "energy %", "time %", summary.metric.name, "")
    rows = "".join(_row(cells, "td") for cells in _rows(summary, baseline))
    return f'<table style="margin:4px 0"><thead>{_row(titles, "th")}</thead><tbody>{rows}</tbody></table>'


def _rows(summary: Summary, baseline: Measurement) -> Iterator[tuple[str, ...]]:
    yield common_caps(baseline.cap_w), "0", "0", "1", wording.BASELINE
    left_out = len(summary.trials) - _MOST_ROWS
    if left_out > 0:
        yield "…", "–", "–", "–", f"{left_out} earlier trials"
    for trial in summary.trials[-_MOST_ROWS:]:
        cost = "–" if trial.cost is None else with_error(trial.cost, trial.cost_stderr)
        remark = trial.state.value if trial.reason is None else f"{trial.state.value}: {trial.reason}"
        yield common_caps(trial.cap_w), _percent(trial.energy_pct), _percent(trial.time_pct), cost, remark
    chosen, versus = summary.chosen, summary.versus_baseline
    if chosen is not None and versus is not None and versus.metric_pct is not None:
        cost = with_error(1 + versus.metric_pct / 100, versus.metric_stderr_pct and versus.metric_stderr_pct / 100)
        yield (
            common_caps(chosen.cap_w),
            _percent(versus.energy_pct),
            _percent(versus.time_pct),
            cost,
            wording.kept(summary),
        )


def _percent(change: float | None) -> str:
    return "–" if change is None else f"{change:+.1f}".replace("-", "−")


def _row(cells: Sequence[str], tag: str) -> str:
    *numbers, remark = map(escape, cells)
    weight = ";font-weight:bold" if remark in (wording.KEPT, wording.KEPT_UNCONFIRMED) else ""
    shown = "".join(f'<{tag} style="{_CELL}{weight}">{cell}</{tag}>' for cell in numbers)
    return f'<tr>{shown}<{tag} style="{_REMARK}{weight}">{remark}</{tag}></tr>'
