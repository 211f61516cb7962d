"""What the controller and the agents of a job, and the site of a budget and its nodes' managers, say to each other: one
JSON object a line, in both directions. `fleet.multinode` says when the latter two speak.

    line = line_of(Heartbeat(number=7, interval_s=0.1, counted=True))     to the agents, that all of them read
    line = line_of(Command(number=8, what=CommandKind.SET, caps_w=(200.0,)), to=(2,))    to the third of them
    heard = said(line)                                                the record again, by whoever it was

Seconds are those of the sender's own monotonic clock of the system. Agents are numbered from 0; a line to the agents
names those that it is for, or none where it is for all. What an agent has not understood it leaves out, as versions
are the same on all nodes: `Hello` shows it where they are not.

What an agent has read is most of all that is sent, and so `Rows` are sent by position, as names would be nine tenths of
them: fields of these records, and of readings, are added at their ends alone."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, get_args

from autocap.errors import AutocapError
from autocap.limits import Restored
from autocap.plugins.fleet.budget.protocol import JobStanding
from autocap.records import GpuInfo, NodeReading, Reading, SensorInfo, StepReading
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import line_of as json_line
from autocap.wire.json_lines import names_of, parse

if TYPE_CHECKING:  # an agent waits for none of it
    from autocap.devices.base import Device, PowerSource
    from autocap.session.via import Actuation

VERSION = 3
MOST_BYTES = 1 << 20  # of a line
_TO, _SAYS = "to", "says"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All that an agent has read at one moment, as in a Sample; times on its own clock."""

    t_s: float
    readings: tuple[Reading, ...]
    steps: StepReading | None = None
    node: NodeReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """From an agent: what it has read since the last time. first: the number of the first of these rows, from 0 on.
    put_backs: how often its limits were put back so far, or may have been, by who guards them; not as it was told to.
    A row that shows it is never said without."""

    first: int
    rows: tuple[Row, ...]
    put_backs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAllocation:
    """To the nodes, twice a second or so, and whenever a part changes: the site lives. Each answers with `NodeReport`.

    since: for each node, by its number, how many numbers ago the last of these was that it is known to have answered.
    parts_w: of the budget, watts; serials: of the orders that these are of, 0 for a node that is to hold its floor.
    """

    number: int
    policy: str
    since: tuple[int, ...]
    serials: tuple[int, ...]
    parts_w: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """One job of a node. at: how it stands; the slowdown that it allows is the one that is kept to. caps_w, slowdown,
    energy: its curve, as `JobCurve` has it, from its lowest cap to the highest that is of use to it."""

    at: JobStanding
    caps_w: tuple[float, ...]
    slowdown: tuple[float, ...]
    energy: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """From a node: how it stands. number: of the latest `SetAllocation` that it has heard, 0 before. serial: of the
    order whose part it holds, 0 where it holds its floor. Watts of all its devices:

    may_w: the most that may be in force until it takes up another part. floor_w: what it falls to by itself; fixed_w:
    of that, what is no job's. found_w: what is in force once its limits are as they were found. powers_w: of each
    device, in the order of `Found`; power_w: of the node, as far as the budget has it. free: devices that no job uses.
    failed: sentences on devices that are outside."""

    number: int
    serial: int
    may_w: float
    floor_w: float
    fixed_w: float
    found_w: float
    reserved_w: float
    jobs: tuple[JobReport, ...]
    free: tuple[str, ...]
    powers_w: tuple[float | None, ...]
    power_w: float | None
    failed: tuple[str, ...] = ()


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
    via: str = field(metadata={"key": "actuator"})  # as it is written
    progress: str
    node_power: str
    shared_gpu: bool
    observe: bool
    wait_s: float
    step_map: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """To the agents, twice a second or so: the controller lives. Each answers with `HeartbeatReply`.

    interval_s: between two of their samples. counted: whether iterations need be counted now. since: for each agent,
    by its number, how many numbers ago the last word was that it is known to have answered.
    """

    number: int
    interval_s: float
    counted: bool
    since: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """To an agent of a later step, instead of `Begin`: an earlier one on its node is gone. What that left is to be put
    back, and what is read then is answered with `Done`.

    kind, uuids, original_w: of the devices, and the limits found on them, watts, as the earlier one said in `Found`.
    """

    target: Target
    kind: str
    uuids: tuple[str, ...]
    original_w: tuple[float | None, ...]


class CommandKind(StrEnum):
    """What an agent can be told to do."""

    REHEARSE = "rehearse"
    SET = "set"
    RESTORE = "restore"
    END = "end"  # put back, and leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """To an agent. number: rises from one to the next; one that came already is answered again and not done again.
    caps_w: of SET, watts, one a device."""

    number: int
    what: CommandKind
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
    via: who sets them, as events.SetterChosen has it. node_power: the name of the meter, `None` without one;
    whole, refresh_s: as PowerSource has them.
    """

    kind: str
    emulated: bool
    driver: str | None
    gpus: tuple[GpuInfo, ...]
    sensor: SensorInfo
    original_w: tuple[float | None, ...]
    via: str = field(default="direct", metadata={"key": "actuator"})  # as it is written
    where: str = ""
    reason: str = ""
    node_power: str | None = None
    whole: bool = False
    refresh_s: float | None = None

    @classmethod
    def of(
        cls,
        device: "Device",
        original_w: tuple[float | None, ...],
        way: "Actuation | None",
        meter: "PowerSource | None",
    ) -> "Found":
        """way: how they are set, `None` where they are only observed."""
        kind, emulated, driver, gpus, sensor = device.kind, device.emulated, device.driver, device.gpus, device.sensor
        made = cls(kind=kind, emulated=emulated, driver=driver, gpus=gpus, sensor=sensor, original_w=original_w)
        if way is not None:
            made = replace(made, gpus=way.gpus, via=way.name, where=way.where, reason=way.reason)
        if meter is not None:
            made = replace(made, node_power=meter.name, whole=meter.whole, refresh_s=meter.refresh_s)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """From an agent: the answer to a Word. heard_s, said_s: when it came and when this was sent. put_backs: as in
    Rows."""

    number: int
    heard_s: float
    said_s: float
    put_backs: int = 0


class Fault(StrEnum):
    """Why something was not done: which error the controller's guardian raises."""

    REFUSED = "refused"
    NOT_PERMITTED = "not_permitted"
    FOREIGN = "foreign"
    GUARD = "guard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """From an agent: the answer to a Do, or to a Settle, of number 0. fault, why: `None` where it was done. restored:
    of RESTORE, END and Settle, what became of each limit."""

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
    """From an agent: the job's processes on its node have all ended. restored: what became of each limit."""

    restored: tuple[Restored, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """From an agent, last of all: why it cannot do its work. Nothing is set on its node. restored: as in JobEnded."""

    why: str
    restored: tuple[Restored, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """From a node that was asked for its devices alone: what `autocap devices --json` prints there."""

    devices: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """From the engine: an agent is gone, and why, as far as it knows."""

    why: str


ToAgent = Begin | Settle | Heartbeat | Command | SetAllocation
FromAgent = Hello | Found | Rows | HeartbeatReply | Done | Note | JobEnded | Failed | Listed | Lost | NodeReport
Message = ToAgent | FromAgent

_NAMES = names_of(
    get_args(Message),
    {SetAllocation: "share", NodeReport: "books", Heartbeat: "word", Command: "do", HeartbeatReply: "heard"},
)
_KINDS: dict[str, type[Message]] = {name: kind for kind, name in _NAMES.items()}


def line_of(message: Message, to: Sequence[int] | None = None) -> bytes:
    """A message as a line, with its newline. to: the agents that it is for, `None` for all, or from an agent."""
    body: dict[str, Any] = {_SAYS: _NAMES[type(message)]}
    if to is not None:
        body[_TO] = list(to)
    body["with"] = encode(message, flat=isinstance(message, Rows))
    return json_line(body, sys.maxsize)


def said(line: bytes | str) -> Message:
    """The message that a line is. Raises BadLine."""
    return addressed(line)[0]


def addressed(line: bytes | str) -> tuple[Message, tuple[int, ...] | None]:
    """The message that a line is, and which agents it is for, `None` for all. Raises BadLine."""
    try:
        body: Any = parse(line if isinstance(line, bytes) else line.encode(), MOST_BYTES + 1)
        kind, to = _KINDS[body[_SAYS]], body.get(_TO)
        made = decode(kind, body["with"], flat=kind is Rows)
        return made, None if to is None else tuple(int(number) for number in to)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadLine(f"an agent or its controller said what neither says: {type(error).__name__}: {error}") from None
