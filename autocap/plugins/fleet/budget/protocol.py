"""What the manager of a budget and its clients say to each other, version 1: one JSON object a line, strict in both
directions, each request answered in turn.

    line = encode_request(1, Join(devices=("GPU-…",), pid=4711))
    encode_answer(1, Joined(original_w=(300.0,), min_w=(100.0,), max_w=(300.0,), ceiling_w=210.0))

A tuner that has joined also hears `CeilingChanged` at any time, with id null: its ceiling has changed, and caps above
that are no longer in force. docs/budget.md says what each message means. Watts are of one device's cap unless they say
otherwise; an unknown is null.
"""

from dataclasses import MISSING, dataclass, fields
from typing import get_args

from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import BadMessage, Json, answer_in, line_of, names_of, request_in
from autocap.wire.refusal import Code, Refusal

__all__ = ["BadMessage", "Code", "Refusal"]

VERSION = 1
MOST_BYTES = 262_144  # of a line, with its newline
MOST_DEVICES, MOST_POINTS = 1024, 4096
LEAST_WEIGHT, MOST_WEIGHT = 0.01, 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A tuner comes. devices: of its job, UUIDs. pid: the job's."""

    devices: tuple[str, ...]
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Set:
    """watts: a cap for each device, in the order in which they joined."""

    watts: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The tuner is alive; at least every half second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishCurve:
    """The job's curve, as `JobCurve` has it, up to the cap that the tuner asks for. most_slowdown: that it allows;
    `None` for no limit."""

    caps_w: tuple[float, ...]
    slowdown: tuple[float, ...]
    energy: tuple[float, ...]
    slowdown_stderr: tuple[float, ...]
    energy_stderr: tuple[float, ...]
    most_slowdown: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The tuner ends; the job goes on as one that nobody tunes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Another budget, watts for all, or another policy; `None` for as it is."""

    watts: float | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weigh:
    """From now on the job of a process has that weight: with 2 it is slowed down by half as much as the others."""

    pid: int
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """How it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The budget ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """In the order of the devices. original_w: the limits that the manager found. ceiling_w: the highest cap now."""

    original_w: tuple[float | None, ...]
    min_w: tuple[float, ...]
    max_w: tuple[float, ...]
    ceiling_w: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """To SET, KNOWN, CHANGE, WEIGH and END."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingChanged:
    """To BEAT, and unasked. put_back: other caps were, or may have been, set since the last beat."""

    ceiling_w: float
    put_back: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """To LEAVE, in the order of the devices: the caps that the budget gives them now."""

    caps_w: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStanding:
    """One job. cap_w: in force, of its devices the lowest; ceiling_w: up to which the budget lets it. draw_w: of all
    its devices. slowdown: that its curve has at the cap in force, with its standard error; most_slowdown: that its
    tuner allows. node: of a budget over several. doubt: why what its tuner says is not followed, a sentence."""

    name: str
    devices: tuple[str, ...]
    tuned: bool
    pid: int | None
    cap_w: float
    lowest_w: float
    draw_w: float | None
    slowdown: float
    slowdown_stderr: float
    weight: float = 1.0
    node: str | None = None
    doubt: str | None = None
    ceiling_w: float | None = None
    most_slowdown: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """budget_w, reserved_w, room_w, power_w, short_w: of all, watts. free: devices that no job uses. pause: jobs that
    would have to be paused for the budget to be kept. record: the run directory. failed: sentences on devices that are
    outside, each of which is counted with a limit. follows: sentences on what events leave of the budget."""

    budget_w: float
    policy: str
    reserved_w: float
    room_w: float
    power_w: float | None
    short_w: float
    pause: tuple[str, ...]
    jobs: tuple[JobStanding, ...]
    free: tuple[str, ...]
    record: str
    pid: int
    failed: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()


Request = Join | Set | Beat | PublishCurve | Leave | Change | Weigh | Ask | End
Answer = Joined | Done | CeilingChanged | Left | Standing
_NAMES = names_of(get_args(Request | Answer | Refusal), {PublishCurve: "known", CeilingChanged: "told"})
_REQUESTS: dict[str, type[Request]] = {_NAMES[cls]: cls for cls in get_args(Request)}
_ANSWERS: dict[str, type[Answer | Refusal]] = {_NAMES[cls]: cls for cls in get_args(Answer | Refusal)}


def encode_request(id: int, request: Request) -> bytes:
    """One line. Raises BadMessage where it would be too long."""
    return line_of({"v": VERSION, "id": id, "op": _NAMES[type(request)], **_said(request)}, MOST_BYTES)


def decode_request(line: bytes) -> tuple[int, Request]:
    """The id and the request in a line. Raises BadMessage for whatever is not exactly one."""
    id, cls, body = request_in(line, MOST_BYTES, VERSION, _REQUESTS)
    name, keys = _NAMES[cls], {one.name for one in fields(cls)}
    if not {one.name for one in fields(cls) if one.default is MISSING} <= set(body) <= keys:
        raise BadMessage(f"{name} has the keys {', '.join(['v', 'id', 'op', *sorted(keys)])} and no others", id)
    try:
        made = decode(cls, body, strict=True)
        _require_sane(made)
    except BadMessage as error:
        raise BadMessage(f"{name}: {error}", id) from None
    return id, made


def encode_answer(id: int | None, answer: Answer | Refusal) -> bytes:
    """One line. id: of the request, `None` for what was not asked."""
    said, is_refusal = _said(answer), isinstance(answer, Refusal)
    said = {key: value for key, value in said.items() if value is not None or not is_refusal}
    return line_of({"v": VERSION, "id": id, "is": _NAMES[type(answer)], **said}, MOST_BYTES)


def decode_answer(line: bytes) -> tuple[int | None, Answer | Refusal]:
    """The id and the answer in a line; keys that are not known are left out. Raises BadMessage."""
    id, body = answer_in(line, MOST_BYTES, VERSION)
    name = body.get("is")
    cls = _ANSWERS.get(name) if isinstance(name, str) else None
    if cls is None:
        raise BadMessage("it is none of the answers that are known")
    return id, decode(cls, body, strict=True)


def _said(record: Request | Answer | Refusal) -> dict[str, Json]:
    said = encode(record, strict=True)
    assert isinstance(said, dict)
    return said


def _require_sane(request: Request) -> None:
    """Raises BadMessage for lists that no job has."""
    if isinstance(request, Join):
        named = request.devices
        if not 0 < len(named) <= MOST_DEVICES or len(set(named)) < len(named):
            raise BadMessage(f"devices are not 1 to {MOST_DEVICES}, or one stands there twice")
        if request.pid <= 0:
            raise BadMessage("a job's pid is above 0")
    if isinstance(request, Weigh) and not (request.pid > 0 and LEAST_WEIGHT <= request.weight <= MOST_WEIGHT):
        raise BadMessage(f"a job's pid is above 0, and its weight {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}")
    if isinstance(request, Set) and not 0 < len(request.watts) <= MOST_DEVICES:
        raise BadMessage(f"watts are not 1 to {MOST_DEVICES}")
    if isinstance(request, PublishCurve):
        columns = [getattr(request, one.name) for one in fields(request) if one.default is MISSING]
        if not 0 < len(columns[0]) <= MOST_POINTS or len({len(column) for column in columns}) != 1:
            raise BadMessage(f"a curve has 1 to {MOST_POINTS} points, and each column as many")
        if request.most_slowdown is not None and request.most_slowdown <= 0:
            raise BadMessage("a limit on a slowdown is above 0, such as 0.05")
