"""`autocap report --slurm JOBID`: what Slurm's `sacct` has in its books of that job."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from autocap.errors import EngineUnavailable
from autocap.events import Event
from autocap.job import slurm

if TYPE_CHECKING:
    from autocap.reports.rendering import Presentation
    from autocap.reports.slurm_books import Books, Entry

_FIELDS = ("JobID", "Start", "End", "NNodes", "AllocCPUS", "ConsumedEnergyRaw", "Partition", "NodeList")
_MOST_J = 1e18  # what is more stands for "unknown" in Slurm
_NO_BOOKS = "accounting storage is disabled"


def with_books(report: "Presentation", events: Sequence[Event], job: str) -> "Presentation":
    """A report on a run with Slurm's numbers beside ours, or why not. Raises EngineUnavailable where there are none."""
    from autocap.reports import slurm_books
    from autocap.reports.document import Sentences
    from autocap.reports.summary.summarise import summarise
    from autocap.wire.codec import encode

    found = slurm_books.beside(summarise(events), events, read(job))
    said, shown = slurm_books.sentence(found), slurm_books.table(found)
    body = (*report.document.body, *([] if shown is None else [shown]), Sentences(lines=(said,)))
    document = replace(report.document, body=body, remarks=(*report.document.remarks, said))
    assert isinstance(report.result, dict)
    return replace(report, document=document, result={**report.result, "slurm": encode(found)})


def read(job: str, environ: Mapping[str, str] = os.environ) -> "Books":
    """Raises EngineUnavailable with what to do."""
    from autocap.reports.slurm_books import Books

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
    steps = tuple(_entry(row) for row in rows if row is not of_job and row["Start"].isdecimal())
    return Books(job=_entry(of_job), steps=steps, plugins=plugins, shared_because=shared)


def _lines(answer: str) -> list[str]:
    return [line for line in answer.splitlines() if line.count("|") >= len(_FIELDS) - 1]


def _entry(row: Mapping[str, str]) -> "Entry":
    from autocap.reports.slurm_books import Entry

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
