"""What is remembered of jobs, as tables."""

import shlex
from collections.abc import Sequence
from datetime import datetime

from autocap.reports.document import Document, Sentences, Table
from autocap.reports.wording.numbers import ago, counted, cut
from autocap.reports.wording.run import EMULATED, asked_for, measured
from autocap.runlog.memory.entry import MOST_AGE, SHOWN_DIGITS, Curve, Entry

_COMMAND = 48  # characters of a cell; the JSON has all of them
TITLES = ("key", "job", "on", "runs", "measured", "kept W", "metric")


def document(entries: Sequence[Entry], now: datetime) -> Document:
    """A row a job, in their order."""
    in_watts = all(entry.setup.knob is None for entry in entries)
    table = Table(
        heading="remembered jobs, the one used last first",
        titles=TITLES if in_watts else tuple("kept" if title == "kept W" else title for title in TITLES),
        rows=tuple(_row(entry, now, bare=in_watts) for entry in entries),
        below=(TITLES.index("job"),),
        spare=tuple(TITLES.index(title) for title in ("on", "runs", "measured")),
        left=(0, 1, 2),
    )
    return Document(headline="Memory", body=(table,))


def of_one(entry: Entry, now: datetime) -> Document:
    """All that is remembered of a job."""
    setup = entry.setup
    known = [
        ("key", entry.key),
        ("job", shlex.join(entry.command)),
        ("on", counted(setup.gpus)),
        ("device", f"{setup.kind}{f', {EMULATED}' * setup.emulated}"),
        ("driver", setup.driver and f"branch {setup.driver}"),
        ("node", setup.node),
        ("knob", setup.knob and setup.knob.name),
        ("runs", f"{entry.runs}, the last by autocap {entry.autocap_version}"),
    ]
    lines = tuple(f"{name}: {value}" for name, value in known if value)
    return Document(
        headline="Memory",
        body=(Sentences(lines=lines), *(_curve(curve, entry, now) for curve in reversed(entry.curves))),
    )


def _row(entry: Entry, now: datetime, *, bare: bool) -> tuple[str, ...]:
    """bare: the title has the unit."""
    last, shown = entry.latest, entry.setup.turned.bare if bare else entry.setup.turned.text
    return (
        entry.key[:SHOWN_DIGITS],
        cut(shlex.join(entry.command), _COMMAND),
        counted(entry.setup.gpus),
        str(entry.runs),
        ago((now - last.when).total_seconds()),
        "–" if last.kept_w is None else shown(last.kept_w),
        last.metric.name,
    )


def _curve(curve: Curve, entry: Entry, now: datetime) -> Table:
    notes = [f"measured {ago((now - curve.when).total_seconds())}", f"iterations from {curve.progress}"]
    if now - curve.when > MOST_AGE:
        notes.append("too old to be used")
    if not curve.holds:
        notes.append("the workload has changed since")
    notes += ["emulated"] * entry.setup.emulated
    rows = [
        (
            "/".join(map(entry.setup.turned.bare, curve.baseline.setting)),
            *measured(curve.baseline, curve.baseline),
            "baseline",
        )
    ]
    for point in sorted(curve.points, key=lambda point: point.setting):
        kept = "kept" if point.setting == curve.kept_w else ""
        rows.append((entry.setup.turned.bare(point.setting), *measured(point.measurement, curve.baseline), kept))
    return Table(
        heading=f"minimising {asked_for(curve.metric)}",
        note=", ".join(notes),
        titles=(entry.setup.turned.title, "W", "s/iter", "J/iter", "energy %", "time %", ""),
        rows=tuple(rows),
    )
