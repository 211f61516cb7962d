"""A run's status as a few lines of a terminal: the one view behind `autocap run` and `autocap report --follow`."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.segment import Segment, SegmentLines
from rich.table import Table
from rich.text import Text

from autocap.events import State
from autocap.reports.live.status import Status
from autocap.reports.summary.record import Summary
from autocap.reports.text import folded, table_lines
from autocap.reports.wording.numbers import LOW_CONFIDENCE, change, mark, with_unit
from autocap.text import printable, spelled

_BAR_COLUMNS = 30
_GAP = "   "  # between the parts of a line
_SHOWN_TRIALS = 12


class View:
    """Renders a status. What only events change is rendered once an event, so that a refresh costs next to nothing."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._key = (-1, 0, 0)
        self._body: list[str] = []

    def lines(self, status: Status, t_s: float, columns: int, most: int) -> list[str]:
        """At most so many lines of at most so many columns, the most important first. t_s: now, on the run's clock."""
        head = self._rendered(_filled(_now(status, t_s), columns, self._console.encoding, "bold"), columns)
        key = (status.version, columns, most - len(head))
        if key != self._key:
            self._key, self._body = key, self._rendered(_body(status, columns, key[2], self._console.encoding), columns)
        return [*head, *self._body][:most]

    def _rendered(self, parts: Sequence[RenderableType], columns: int) -> list[str]:
        if not parts:
            return []
        options = self._console.options.update(width=columns, no_wrap=True, overflow="ellipsis")
        lines = self._console.render_lines(Group(*parts), options, pad=False)
        # Until here all is text: whatever it holds, the only escape sequences are those that the styles become now.
        safe = [
            [Segment(spelled(printable(part.text), self._console.encoding), part.style) for part in line]
            for line in lines
        ]
        cropped = [Segment.adjust_line_length(line, columns, pad=False) for line in safe]
        with self._console.capture() as capture:
            self._console.print(SegmentLines(cropped, new_lines=True), width=columns, crop=False)
        return capture.get().split("\n")[: len(cropped)]


def _now(status: Status, t_s: float) -> list[str]:
    """The present state, in parts."""
    label = " (emulated)" if status.emulated else ""
    known, knob = [setting for setting in status.settings if setting is not None], status.knob
    return [
        f"autocap {status.state or 'starting'}",
        f"{knob.short} {with_unit(known, knob) if known else '–'}",
        f"draw {'–' if status.total_w is None else f'{status.total_w:.0f} W'}{label}",
        *([] if status.node_w is None else [f"node {status.node_w:.0f} W"]),
        _pace(status),
        f"{int(t_s) // 3600}:{int(t_s) // 60 % 60:02d}:{int(t_s) % 60:02d}",
    ]


def _pace(status: Status) -> str:
    """Time per iteration, or, where that is not known, over the baseline's."""
    if status.by_proxy:
        shown = "–" if status.time_ratio is None else f"×{status.time_ratio:.3f}"
        return f"time {shown} ({LOW_CONFIDENCE})"
    return "– s/iter" if status.period_s is None else f"{status.period_s:.4g} s/iter"


def _body(status: Status, columns: int, most: int, encoding: str) -> list[RenderableType]:
    """What only events change."""
    summary = status.summary
    if summary is None:
        return []
    parts = _search(status)
    for sentence in (_so_far(status, summary), _expected(status, summary)):
        parts += _filled(sentence, columns, encoding)
    return [*parts, *_table(status, columns, most - len(parts), encoding)]


def _search(status: Status) -> list[RenderableType]:
    """The progress of the search; nothing before and after it."""
    if status.state is State.PAUSED:
        return [Text("paused: the job does not train now")]
    if status.trial is None and status.state is not State.CONFIRMING:
        return []
    what = (
        status.knob.said("confirming the best cap")
        if status.trial is None
        else f"trying {status.knob.text(status.trial.setting)}"
    )
    share, line = status.searched, Table.grid(padding=(0, 1))
    cells: list[RenderableType] = [Text("search")]
    if share is not None:
        cells += [ProgressBar(total=1.0, completed=share, width=_BAR_COLUMNS), Text(f"{100 * share:.0f} %")]
    line.add_row(*cells, Text(what, overflow="ellipsis", no_wrap=True))
    return [line]


def _so_far(status: Status, summary: Summary) -> list[str]:
    versus, share = summary.versus_baseline, status.saved_share
    if versus is None or versus.net_energy_j is None or share is None or not summary.trials:
        return []
    label = " (emulated)" if status.emulated else ""
    return [
        f"net so far: energy {-100 * share:+.1f} %",
        f"{versus.net_energy_j:+.0f} J{label}",
        f"{summary.metric.name} {change(versus.net_metric_pct, versus.net_metric_stderr_pct)}",
    ]


def _expected(status: Status, summary: Summary) -> list[str]:
    """What is to be gained per iteration: by the cap that is kept, or, until then, by the best trial."""
    metric, decided = summary.metric.name, status.decided
    if decided is not None and decided.setting is None:
        return [summary.knob.said("expected: nothing; no cap is kept, the limit found on arrival is back")]
    versus = summary.versus_baseline
    if decided is not None and versus is not None and summary.chosen is not None:
        energy = change(versus.energy_pct, versus.energy_stderr_pct)
        time = change(versus.time_pct, versus.time_stderr_pct)
        sure = "confirmed" if summary.chosen.confirmed else "not confirmed"
        held = with_unit(summary.chosen.setting, summary.knob)
        at_cap = f"expected at {held}, {sure}: energy {energy}, time {time}{mark(summary)}"
        of_metric = f"{metric} {change(versus.metric_pct, versus.metric_stderr_pct)}"
        return [at_cap] if metric == "energy" else [at_cap, of_metric]
    best = status.best
    if best is None:
        return []
    changed = change(100 * (best.cost - 1), 100 * best.cost_stderr)
    return [f"at {with_unit(best.setting, summary.knob)}, the best so far: {metric} {changed}"]


def _table(status: Status, columns: int, most: int, encoding: str) -> list[RenderableType]:
    """The latest baseline and trials, in so many lines."""
    for rows in range(min(most - 1, _SHOWN_TRIALS), 0, -1):
        table = status.rows(rows)
        if table is None:
            break
        titles, *lines = table_lines(table, columns, encoding)
        if len(lines) < most:
            return [Text(titles, style="dim"), *map(Text, lines)]
    return []


def _filled(parts: Sequence[str], columns: int, encoding: str, style: str = "") -> list[RenderableType]:
    """The parts side by side, on as many lines as they take."""
    lines: list[str] = []
    for part in (spelled(printable(part), encoding) for part in parts):
        longer = f"{lines[-1]}{_GAP}{part}" if lines else part
        if lines and cell_len(longer) <= columns:
            lines[-1] = longer
        else:
            lines += folded(part, columns)
    return [Text(line, style=style, no_wrap=True, overflow="ellipsis") for line in lines]
