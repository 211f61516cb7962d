"""A list of runs as a table."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePath

from autocap.reports.document import Document, Table
from autocap.reports.past_run import RUNNING, SWEEP, PastRun
from autocap.reports.summary.summarise import UNFINISHED
from autocap.reports.wording.numbers import common_caps, counted, cut
from autocap.reports.wording.proxy import LOW_CONFIDENCE

_COMMAND, _NAME, _CLAUSE = 40, 28, 1000  # characters of a cell; the JSON has all of them
TITLES = ("when", "run", "state", "device", "metric", "command", "kept W", "saved")
_SPARE = tuple(TITLES.index(title) for title in ("metric", "device", "when", "state"))
_LEFT = tuple(range(6))


def moment(started_at: str | None) -> datetime | None:
    """When a run began; `None` where it does not say so."""
    try:
        found = datetime.fromisoformat(started_at or "")
    except ValueError:
        return None
    return None if found.tzinfo is None else found


def document(runs: Sequence[PastRun], place: PurePath) -> Document:
    """A row a run, in their order. place: where they lie."""
    table = Table(
        heading=f"runs in {place}, the latest first",
        titles=TITLES,
        rows=tuple(map(_row, runs)),
        spare=_SPARE,
        below=(TITLES.index("command"),),
        left=_LEFT,
    )
    return Document(headline="Runs", body=(table,))


def _row(run: PastRun) -> tuple[str, ...]:
    began = moment(run.started_at)
    when = "–" if began is None else f"{began:%Y-%m-%d %H:%M}"
    name = cut(PurePath(run.directory).name, _NAME)
    if run.trouble is not None:
        return (when, name, "–", "–", "–", "–", "–", cut(f"cannot be read: {run.trouble}", _CLAUSE))
    return (
        when,
        name,
        run.state,
        cut(counted(run.gpus) or "–", _NAME),
        "–" if run.metric is None else cut(run.metric.name, _NAME),
        cut(shlex.join(run.command), _COMMAND),
        _kept(run),
        cut(saved(run), _CLAUSE),
    )


def saved(run: PastRun) -> str:
    """What a run came to, in a clause: what the kept cap saves per iteration, or why there is none."""
    if run.mode == SWEEP:
        return f"a sweep, {run.runs_left} runs left" if run.runs_left else "a sweep, complete"
    if not run.gpus and run.state != RUNNING:
        return f"not tuned: {run.why}"
    if run.cap_w is None:
        if run.why != UNFINISHED:
            return f"no cap kept: {run.why}"
        return "nothing is decided yet" if run.state == RUNNING else "no cap kept: killed before anything was decided"
    if run.saved is None or run.saved.energy_pct is None or run.saved.time_pct is None:
        return "not on record"
    label = " (emulated)" if run.modelled else ""
    energy = _change(-run.saved.energy_pct, run.saved.energy_stderr_pct, "")
    sure = f" ({LOW_CONFIDENCE})" if run.confidence == "low" else ""
    return f"{energy} energy{label}, time {_change(run.saved.time_pct, run.saved.time_stderr_pct, '+')}{sure}"


def _change(pct: float, stderr: float | None, sign: str) -> str:
    """As `wording.numbers.change` with another sign; an error that is not known is said not to be."""
    return f"{pct:{sign}.1f} ± {'?' if stderr is None else f'{stderr:.1f}'} %"


def _kept(run: PastRun) -> str:
    if run.cap_w is None:
        return "–"
    found = [cap_w for cap_w in run.found_w if cap_w is not None]
    return f"{common_caps(run.cap_w)} of {common_caps(found)}" if found else common_caps(run.cap_w)
