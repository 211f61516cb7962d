"""What the controller and the agents of a job say to each other: one JSON object a line, in both directions.

    line = line_of(Word(number=7, interval_s=0.1, counted=True))     to the agents, that all of them read
    line = line_of(Do(number=8, what=Deed.SET, caps_w=(200.0,)), to=(2,))    to the third of them
    heard = said(line)                                                the record again, by whoever it was

Seconds are those of the sender's own monotonic clock of the system. Agents are numbered from 0; a line to the agents
names those that it is for, or none where it is for all. What an agent has not understood it leaves out, as versions
are the same on all nodes: `Hello` shows it where they are not.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autocap.errors import AutocapError
from autocap.guardian import Restored
from autocap.records import GpuInfo, NodeReading, Reading, SensorInfo, StepReading
from autocap.runlog.codec import decode, encode

VERSION = 1
MOST_BYTES = 1 << 20  # of a line
_TO, _SAYS = "to", "says"


class BadLine(AutocapError):
    """A line that is none of these messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The job, as the nodes know it.

    engine: "slurm" or "ray". job: its id there.
    """

    engine: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """To the agents, first of all: what to look for and how. The fields are those of `RunConfig` and `TuneConfig`.

    step_map: the name of the file in which the job's processes count their steps, the same on every node; `None`
    where nothing was put into them.
    """

    target: Target
    device: str
    gpus: tuple[str, ...] | None
    actuator: str
    progress: str
    node_power: str
    shared_gpu: bool
    observe: bool
    wait_s: float
    step_map: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """To the agents, twice a second or so: the controller lives. Each answers with `Heard`.

    interval_s: between two of their samples. counted: whether iterations need be counted now.
    """

    number: int
    interval_s: float
    counted: bool


class Deed(StrEnum):
    """What an agent can be told to do."""

    REHEARSE = "rehearse"
    SET = "set"
    RESTORE = "restore"
    END = "end"  # put back, and leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Do:
    """To an agent. number: rises from one to the next; one that came already is answered again and not done again.
    caps_w: of SET, watts, one a device."""

    number: int
    what: Deed
    caps_w: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """From an agent, first of all. boot_id, clock_id: the machine's, and that of its monotonic clock (its time
    namespace): where both are the same, clocks are the same."""

    version: int
    autocap_version: str
    node: str
    pid: int
    boot_id: str
    clock_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """From an agent: the job's devices on its node, guarded from now on unless only observed.

    The fields are those of `Device`; original_w: the limits found, watts. gpus: with the caps that may be set there.
    actuator: who sets them, as events.ActuatorChosen has it. node_power: the name of the meter, `None` without one;
    whole, refresh_s: as PowerSource has them.
    """

    kind: str
    emulated: bool
    driver: str | None
    gpus: tuple[GpuInfo, ...]
    sensor: SensorInfo
    original_w: tuple[float | None, ...]
    actuator: str = "direct"
    where: str = ""
    reason: str = ""
    node_power: str | None = None
    whole: bool = False
    refresh_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All that an agent has read at one moment, as in a Sample; times on its own clock."""

    t_s: float
    readings: tuple[Reading, ...]
    steps: StepReading | None = None
    node: NodeReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """From an agent: what it has read since the last time. first: the number of the first of these rows, from 0 on."""

    first: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """From an agent: the answer to a Word. heard_s, said_s: when it came and when this was sent. put_back: whether its
    limits were, or may have been, put back since the last answer."""

    number: int
    heard_s: float
    said_s: float
    put_back: bool = False


class Fault(StrEnum):
    """Why something was not done: which error the controller's guardian raises."""

    REFUSED = "refused"
    NOT_PERMITTED = "not_permitted"
    FOREIGN = "foreign"
    GUARD = "guard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """From an agent: the answer to a Do. fault, why: `None` where it was done. restored: of RESTORE and END, what
    became of each limit."""

    number: int
    fault: Fault | None = None
    why: str | None = None
    restored: tuple[Restored, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """From an agent: a sentence for the run log."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """From an agent: the job's processes on its node have all ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """From an agent, last of all: why it cannot do its work. Nothing is set on its node."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """From the engine: an agent is gone, and why, as far as it knows."""

    why: str


ToAgent = Begin | Word | Do
FromAgent = Hello | Found | Rows | Heard | Done | Note | JobEnded | Failed | Lost
Message = ToAgent | FromAgent

_KINDS: dict[str, type[Message]] = {
    kind.__name__.lower(): kind
    for kind in (Begin, Word, Do, Hello, Found, Rows, Heard, Done, Note, JobEnded, Failed, Lost)
}


def line_of(message: Message, to: Sequence[int] | None = None) -> bytes:
    """A message as a line, with its newline. to: the agents that it is for, `None` for all, or from an agent."""
    body: dict[str, Any] = {_SAYS: type(message).__name__.lower()}
    if to is not None:
        body[_TO] = list(to)
    body["with"] = _columns(message) if isinstance(message, Rows) else encode(message)
    return json.dumps(body, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def said(line: bytes | str) -> Message:
    """The message that a line is. Raises BadLine."""
    return addressed(line)[0]


def addressed(line: bytes | str) -> tuple[Message, tuple[int, ...] | None]:
    """The message that a line is, and which agents it is for, `None` for all. Raises BadLine."""
    try:
        body = json.loads(line)
        kind, held = _KINDS[body[_SAYS]], body["with"]
        to = body.get(_TO)
        made = _rows(held) if kind is Rows else decode(kind, held)
        return made, None if to is None else tuple(int(number) for number in to)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise BadLine(f"an agent or its controller said what neither says: {type(error).__name__}: {error}") from None


# Rows are most of all that is sent, and are written by position: names would be nine tenths of them.
def _columns(rows: Rows) -> list[Any]:
    return [
        rows.first,
        [
            [
                row.t_s,
                [
                    [
                        reading.t_s,
                        reading.power_w,
                        reading.energy_j,
                        reading.beside_j,
                        reading.requested_w,
                        reading.enforced_w,
                        reading.sm_clock_hz,
                        reading.cap_binding,
                        reading.throttled,
                        reading.utilisation,
                        reading.temperature_c,
                    ]
                    for reading in row.readings
                ],
                None
                if row.steps is None
                else [row.steps.count, row.steps.t_s, row.steps.of_calls, row.steps.suspended],
                None if row.node is None else [row.node.t_s, row.node.power_w, row.node.whole, row.node.energy_j],
            ]
            for row in rows.rows
        ],
    ]


def _rows(held: Any) -> Rows:
    first, rows = held
    return Rows(first=int(first), rows=tuple(_row(*row) for row in rows))


def _row(t_s: float, readings: list[list[Any]], steps: list[Any] | None, node: list[Any] | None) -> Row:
    return Row(
        t_s=float(t_s),
        readings=tuple(_reading(*reading) for reading in readings),
        steps=None if steps is None else _steps(*steps),
        node=None if node is None else _node(*node),
    )


def _reading(
    t_s: float,
    power_w: float | None,
    energy_j: float | None,
    beside_j: float | None,
    requested_w: float | None,
    enforced_w: float | None,
    sm_clock_hz: float | None,
    cap_binding: bool | None,
    throttled: bool,
    utilisation: float | None,
    temperature_c: float | None,
) -> Reading:
    return Reading(
        t_s=float(t_s),
        power_w=_number(power_w),
        energy_j=_number(energy_j),
        beside_j=_number(beside_j),
        requested_w=_number(requested_w),
        enforced_w=_number(enforced_w),
        sm_clock_hz=_number(sm_clock_hz),
        cap_binding=None if cap_binding is None else bool(cap_binding),
        throttled=bool(throttled),
        utilisation=_number(utilisation),
        temperature_c=_number(temperature_c),
    )


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _steps(count: int, t_s: float, of_calls: bool, suspended: bool) -> StepReading:
    return StepReading(count=int(count), t_s=float(t_s), of_calls=bool(of_calls), suspended=bool(suspended))


def _node(t_s: float, power_w: float | None, whole: bool, energy_j: float | None) -> NodeReading:
    return NodeReading(t_s=float(t_s), power_w=_number(power_w), whole=bool(whole), energy_j=_number(energy_j))
