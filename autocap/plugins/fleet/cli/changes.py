"""`autocap budget set`, `weight`, `status`, `watch` and `end`: words to the budget that runs on this machine."""

import math
import sys
import time
from contextlib import closing
from dataclasses import asdict

from autocap.errors import PeerLost
from autocap.plugins.fleet.budget.calling import call, holder_paths
from autocap.plugins.fleet.budget.words import Ask, Change, Done, End, JobStanding, Standing, Weigh
from autocap.text import beneath, note, put, put_json

_EVERY_S = 1.0
_HOME_AND_CLEAR = "\x1b[H\x1b[J"


def change(watts: float | None, policy: str | None) -> None:
    """Another budget, or another policy, at once. Raises AutocapError."""
    with closing(call(holder_paths())) as there:
        there.ask(Change(watts=watts, policy=policy), Done)


def weigh(pid: int, weight: float) -> None:
    """Another weight of a job, at once. Raises AutocapError."""
    with closing(call()) as there:
        there.ask(Weigh(pid=pid, weight=weight), Done)


def end() -> None:
    """End it. Raises AutocapError."""
    with closing(call(holder_paths())) as there:
        there.ask(End(), Done)


def show(*, as_json: bool) -> None:
    """How it stands. Raises AutocapError."""
    with closing(call(holder_paths())) as there:
        standing = there.ask(Ask(), Standing)
    if as_json:
        put_json(asdict(standing))
    else:
        put(*lines(standing))


def watch() -> None:
    """How it stands, every second, until it ends or somebody presses ^C. Raises AutocapError where none runs."""
    with closing(call(holder_paths())) as there:
        while True:
            try:
                standing = there.ask(Ask(), Standing)
            except PeerLost:
                note("the budget has ended, or its manager is started again")
                return
            if sys.stdout.isatty():
                beneath(sys.stdout).write(_HOME_AND_CLEAR)
            put(*lines(standing))
            time.sleep(_EVERY_S)


def lines(standing: Standing) -> list[str]:
    """A table of the jobs below what all have."""
    power = "not known" if standing.power_w is None else f"{standing.power_w:.0f} W"
    found = [
        f"budget {standing.budget_w:.0f} W ({standing.policy}), drawn {power}, reserved {standing.reserved_w:.0f} W, "
        f"not given away {standing.room_w:.0f} W",
    ]
    found += standing.follows
    if standing.short_w > 0:
        names = ", ".join(standing.pause)
        found.append(
            f"the lowest caps exceed the budget by {standing.short_w:.0f} W; pause {names}, or raise the budget"
        )
    rows = [
        ("job", "GPUs", "cap W", "up to W", "drawn W", "slowdown %", "±", "weight", "tuned"),
        *map(_row, standing.jobs),
    ]
    if any(job.node is not None for job in standing.jobs):
        nodes = ["node", *(job.node or "" for job in standing.jobs)]
        longest = max(map(len, nodes))
        rows = [(f"{node.ljust(longest)}  {row[0]}", *row[1:]) for node, row in zip(nodes, rows, strict=True)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    found += ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    found += [f"{job.name}: {job.doubt}" for job in standing.jobs if job.doubt is not None]
    found += [_beyond(job) for job in standing.jobs if job.slowdown > (job.most_slowdown or math.inf)]
    found.append(f"{len(standing.free)} GPUs are free, each at its lowest cap")
    return [*found, *standing.failed]


def _beyond(job: JobStanding) -> str:
    """Of a job that is slower than its tuner allows."""
    return (
        f"{job.name}: its tuner allows {100 * (job.most_slowdown or 0):g} % of slowdown; the budget and that cannot "
        "both hold"
    )


def _row(job: JobStanding) -> tuple[str, ...]:
    return (
        job.name,
        str(len(job.devices)),
        f"{job.cap_w:.0f}",
        f"{job.cap_w if job.ceiling_w is None else job.ceiling_w:.0f}",
        "-" if job.draw_w is None else f"{job.draw_w:.0f}",
        f"{100 * job.slowdown:.1f}",
        f"{100 * job.slowdown_stderr:.1f}",
        f"{job.weight:g}",
        "yes" if job.tuned else "no",
    )
