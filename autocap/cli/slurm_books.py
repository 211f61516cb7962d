"""What Slurm's accounting says of the job that a run was in, beside what the run says itself; `autocap report --slurm
JOBID` reads it from `sacct`."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from autocap.errors import EngineUnavailable
from autocap.events import Event, Tally
from autocap.job import slurm
from autocap.reports.document import Table
from autocap.reports.run_list import moment
from autocap.reports.summary.record import Summary
from autocap.reports.summary.summarise import last_of

if TYPE_CHECKING:
    from autocap.reports.rendering import Presentation


_SLACK_S = 2.0  # Slurm writes whole seconds, and its clock is another machine's
_GPUS, _CPUS, _GPUS_AND_CPUS, _NODE = "the GPUs", "the CPU packages", "the GPUs and CPU packages", "the whole node"
_READ_BY = {"gpu": _GPUS, "rapl": _CPUS, "ipmi": _NODE, "xcc": _NODE, "pm_counters": _NODE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A job or one of its steps, as Slurm has it in its books.

    id: such as 4711 or 4711.0. began_s, ended_s: seconds since 1970; the end `None` while it runs. energy_j: `None`
    where none was counted. nodes: on how many it ran.
    """

    id: str
    began_s: float
    ended_s: float | None
    energy_j: float | None
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmAccounting:
    """What Slurm says of a job. plugins: what read the energy. shared_because: others may have computed on its nodes,
    `None` where it had them for itself."""

    job: Entry
    steps: tuple[Entry, ...]
    plugins: tuple[str, ...]
    shared_because: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Slurm's numbers beside ours: joules, seconds, and what they are of.

    entry: which job or step it is; all that is Slurm's is `None` where they cannot be compared: `reason`. energy and
    time of ours: since the first iteration counted. power_pct: our mean power over Slurm's, less 1; of different times,
    as the two say how long. `None` where they count different things: `reason`.
    """

    entry: str | None
    energy_j: float | None
    seconds: float | None
    counts: str | None
    our_energy_j: float | None
    our_seconds: float | None
    our_counts: str | None
    power_pct: float | None
    reason: str | None


def beside(summary: Summary, events: Sequence[Event], books: SlurmAccounting) -> Beside:
    """The two beside each other, or why not."""
    tally, began = last_of(Tally, events), moment(summary.started_at)
    ours = None if tally is None or tally.elapsed_s <= 0 else tally
    entry, why = _entry(books, None if began is None else began.timestamp(), ours, events)
    counts = _counted(books.plugins)
    our_counts = None if ours is None else _our_counts(summary)
    why = why or _different(summary, counts, our_counts)
    power_pct = None
    if why is None and ours is not None and entry is not None and entry.energy_j:
        power_pct = 100 * (ours.energy_j / ours.elapsed_s * _lasted(entry) / entry.energy_j - 1)
    return Beside(
        entry=None if entry is None else entry.id,
        energy_j=None if entry is None else entry.energy_j,
        seconds=None if entry is None else _lasted(entry),
        counts=None if entry is None else counts,
        our_energy_j=None if ours is None else ours.energy_j,
        our_seconds=None if ours is None else ours.elapsed_s,
        our_counts=our_counts,
        power_pct=power_pct,
        reason=why,
    )


def table(found: Beside) -> Table | None:
    """Both as a table; `None` where Slurm's may not be shown."""
    if found.entry is None:
        return None
    rows = [_row(f"Slurm, {found.entry}", found.energy_j, found.seconds, found.counts)]
    rows.append(_row("autocap", found.our_energy_j, found.our_seconds, found.our_counts))
    return Table(
        heading="Slurm's books", titles=("", "kJ", "s", "mean W", "counts"), rows=tuple(rows), left=(0, 4), spare=(1,)
    )


def sentence(found: Beside) -> str:
    """What comes of it."""
    if found.power_pct is None:
        return f"no comparison with Slurm's books: {found.reason}"
    return (
        f"autocap's mean power is {found.power_pct:+.1f} % against that in Slurm's books; Slurm gives no error, and "
        "counts from the beginning of the job or step, autocap from the first iteration"
    )


def _row(who: str, energy_j: float | None, seconds: float | None, counts: str | None) -> tuple[str, ...]:
    if energy_j is None or seconds is None:
        return who, "–", "–", "–", counts or "–"
    return who, f"{energy_j / 1000:.1f}", f"{seconds:.0f}", f"{energy_j / seconds:.1f}", counts or "–"


def _entry(
    books: SlurmAccounting, began_s: float | None, ours: Tally | None, events: Sequence[Event]
) -> tuple[Entry | None, str | None]:
    """The shortest step that holds the run, or the job, and why none may be shown."""
    job = books.job
    if books.shared_because is not None:
        return None, books.shared_because
    if not books.plugins:
        return None, "Slurm counts no energy here (AcctGatherEnergyType is none)"
    if ours is None or began_s is None:
        return None, "the run counted no iteration"
    start_s = began_s + ours.t_s - ours.elapsed_s - events[0].t_s
    end_s = start_s + ours.elapsed_s
    if not _holds(job, start_s, end_s):
        return None, (
            f"the run lasted from {_time(start_s)} to {_time(end_s)}, and job {job.id} from {_time(job.began_s)} "
            f"{'on' if job.ended_s is None else f'to {_time(job.ended_s)}'}: it was not in that job"
        )
    if job.ended_s is None:
        return None, f"job {job.id} still runs, and Slurm writes energy down when a step ends"
    # Each step has its nodes' energy for as long as it ran. The job has the sum of its steps, which holds that energy
    # twice wherever two ran at a time.
    counted = [one for one in books.steps if one.energy_j]
    holding = [one for one in counted if one.nodes == job.nodes and _holds(one, start_s, end_s)]
    if holding:
        return min(holding, key=_lasted), None
    if not counted:
        return None, f"Slurm has no energy of job {job.id}"
    return None, f"no step of job {job.id} was on all of its nodes for as long as the run"


def _different(summary: Summary, counts: str | None, our_counts: str | None) -> str | None:
    if summary.modelled:
        return "autocap's power is modelled (an emulated device)"
    if counts is None:
        return "what Slurm's plugins read is not known here"
    if summary.node is not None and summary.node.source == "slurm":
        return "autocap's own number is from Slurm's meter (--node-power slurm), so it would be compared with itself"
    if counts != our_counts:
        return f"Slurm counts {counts}, and autocap {our_counts}; --node-power chooses what autocap counts"
    return None


def _counted(plugins: tuple[str, ...]) -> str | None:
    """What the energy in Slurm's books is of; `None` where that is not known."""
    kinds = {_READ_BY.get(plugin) for plugin in plugins}
    if kinds == {_GPUS, _CPUS}:
        return _GPUS_AND_CPUS
    return kinds.pop() if len(kinds) == 1 else None


def _our_counts(summary: Summary) -> str:
    if summary.device is not None and summary.device.kind == "rapl" and summary.node is None:
        return _CPUS
    if summary.node is None:
        return _GPUS
    if summary.node.whole:
        return _NODE
    return _GPUS_AND_CPUS if summary.node.source == "rapl" else f"the GPUs and {summary.node.source} for the rest"


def _holds(entry: Entry, start_s: float, end_s: float) -> bool:
    ended_s = end_s if entry.ended_s is None else entry.ended_s
    return entry.began_s - _SLACK_S <= start_s and end_s <= ended_s + _SLACK_S


def _lasted(entry: Entry) -> float:
    assert entry.ended_s is not None  # of a job that has ended
    return max(1.0, entry.ended_s - entry.began_s)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


_FIELDS = ("JobID", "Start", "End", "NNodes", "AllocCPUS", "ConsumedEnergyRaw", "Partition", "NodeList")
_MOST_J = 1e18  # what is more stands for "unknown" in Slurm
_NO_BOOKS = "accounting storage is disabled"


def with_books(report: "Presentation", events: Sequence[Event], job: str) -> "Presentation":
    """A report on a run with Slurm's numbers beside ours, or why not. Raises EngineUnavailable where there are none."""
    from autocap.reports.document import Sentences
    from autocap.reports.summary.summarise import summarise
    from autocap.wire.codec import encode

    found = beside(summarise(events), events, read(job))
    said, shown = sentence(found), table(found)
    body = (*report.document.body, *([] if shown is None else [shown]), Sentences(lines=(said,)))
    document = replace(report.document, body=body, remarks=(*report.document.remarks, said))
    assert isinstance(report.result, dict)
    return replace(report, document=document, result={**report.result, "slurm": encode(found)})


def read(job: str, environ: Mapping[str, str] = os.environ) -> SlurmAccounting:
    """Raises EngineUnavailable with what to do."""

    in_seconds = {**environ, "SLURM_TIME_FORMAT": "%s"}
    question = ("sacct", f"--jobs={job}", "--noheader", "--parsable2", f"--format={','.join(_FIELDS)}")
    try:
        answer = slurm.ask(in_seconds, *question)
    except EngineUnavailable as error:
        if _NO_BOOKS in str(error):
            raise EngineUnavailable(
                "this Slurm keeps no books (accounting storage is disabled), so it has no energy of any job; only its "
                "site can change that, and autocap's own numbers are in the report without --slurm"
            ) from error
        raise
    rows = [dict(zip(_FIELDS, line.split("|", len(_FIELDS) - 1), strict=True)) for line in _lines(answer)]
    jobs = [row for row in rows if "." not in row["JobID"]]
    if not jobs:
        raise EngineUnavailable(f"Slurm's books have no job {job}; sacct --user=$USER lists yours")
    if len(jobs) > 1:
        raise EngineUnavailable(
            f"Slurm's books have {len(jobs)} jobs under {job}; name one, such as {jobs[0]['JobID']}"
        )
    of_job = jobs[0]
    plugins, _ = slurm.energy_plugins(environ)
    shared = slurm.why_not_alone(environ, job, of_job["NodeList"], _count(of_job["AllocCPUS"]), of_job["Partition"])
    steps = tuple(_read_entry(row) for row in rows if row is not of_job and row["Start"].isdecimal())
    return SlurmAccounting(job=_read_entry(of_job), steps=steps, plugins=plugins, shared_because=shared)


def _lines(answer: str) -> list[str]:
    return [line for line in answer.splitlines() if line.count("|") >= len(_FIELDS) - 1]


def _read_entry(row: Mapping[str, str]) -> Entry:

    if not row["Start"].isdecimal():
        raise EngineUnavailable(f"job {row['JobID']} has not begun, as Slurm's books have it; ask once it has ended")
    energy = row["ConsumedEnergyRaw"]
    energy_j = float(energy) if re.fullmatch(r"\d{1,20}(\.\d+)?", energy) else 0.0
    return Entry(
        id=row["JobID"],
        began_s=float(row["Start"]),
        ended_s=float(row["End"]) if row["End"].isdecimal() else None,
        energy_j=energy_j if 0 < energy_j < _MOST_J else None,
        nodes=_count(row["NNodes"]) or 1,
    )


def _count(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None
