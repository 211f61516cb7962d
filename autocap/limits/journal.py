"""What must be put back, and by whom it was changed: one entry a device, on disk before each set.

An entry covers every moment at which its owner can be killed. With l the last value set and v the next one:
written (l, v), then set to v, then written (v, none). Whenever the owner dies the device holds l or v, and both are
in the entry; once a set is complete only v is, so that somebody else's l is not taken for ours.

An entry's file is replaced again and again without opening anything. Two files take turns, both open all the time: the
one that has the name, and a spare beside it. A write fills the spare, makes it durable, and has the two change names:

    spare filled and synced;  link NAME -> NAME.old;  rename NAME.tmp -> NAME;  rename NAME.old -> NAME.tmp;  sync

NAME stands for a whole file at every moment. Killed in between, a process leaves NAME.tmp, NAME.old or both, which
nobody reads and `Journal.sweep` removes.
"""

import json
import os
import re
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from autocap.devices.base import Setting
from autocap.devices.limit_steps import is_likely_step
from autocap.errors import GuardError
from autocap.job.processes import ProcessId
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits.state_dir import ASIDE, TEMPORARY, StateDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """name, unit: as the knob has them. tolerance: no further apart than this, two values are the same."""

    name: str
    unit: str
    tolerance: float

    @classmethod
    def of(cls, knob: Knob) -> "Turned":
        return cls(name=knob.name, unit=knob.unit, tolerance=knob.tolerance)

    @property
    def is_power_limit(self) -> bool:
        return self.name == POWER_LIMIT.name

    @property
    def noun(self) -> str:
        """What a value of it is called."""
        return "limit" if self.is_power_limit else self.name

    @property
    def unset(self) -> str:
        """A clause for what cannot be guarded."""
        return unset(self.name)

    def same(self, one: float, other: float) -> bool:
        """Whether two values are the same."""
        return abs(one - other) <= self.tolerance

    def text(self, value: float) -> str:
        """A value, as "260 W", "clock 1200 MHz" or "mode 2"."""
        shown = f"{value:g} {self.unit}".rstrip()
        return shown if self.is_power_limit else f"{self.name} {shown}"


def unset(name: str) -> str:
    """The same, of the knob of that name."""
    return "no cap is set" if name == POWER_LIMIT.name else f"{name} is not set"


LIMIT = Turned.of(POWER_LIMIT)


class HeldFile:
    """name: of a file that is there. Raises OSError or GuardError where the two cannot be opened."""

    def __init__(self, state: StateDir, name: str) -> None:
        self._state, self._name = state, name
        self._current = state.open(name, os.O_RDWR)
        try:
            self._spare = state.create(name + TEMPORARY)
        except BaseException:
            os.close(self._current)
            raise

    def is_in_place(self) -> bool:
        """Whether the two names stand for our two files; not once somebody has removed or replaced one."""
        still = self._state.is_still
        return still(self._name, self._current) and still(self._name + TEMPORARY, self._spare)

    def write(self, data: bytes) -> None:
        """Replace the file as a whole; it is durable on return. Raises OSError where it is not, as on a file system
        that has no links; a whole file stands there even then."""
        temporary, aside = self._name + TEMPORARY, self._name + ASIDE
        self._state.fill(self._spare, data)
        self._state.unlink(aside)
        self._state.link(self._name, aside)
        self._state.rename(temporary, self._name)
        self._current, self._spare = self._spare, self._current
        self._state.rename(aside, temporary)
        self._state.sync()

    def close(self) -> None:
        """Leave the file, without the spare."""
        try:
            if self._state.is_still(self._name + TEMPORARY, self._spare):
                self._state.unlink(self._name + TEMPORARY)
            self._state.unlink(self._name + ASIDE)
        finally:
            os.close(self._spare)
            os.close(self._current)


SCHEMA, OF_KNOB = 1, 2  # of a power limit; of another knob, of which earlier versions know nothing
SUFFIX = ".json"
UNFINISHED = (SUFFIX + TEMPORARY, SUFFIX + ASIDE)
LOCK = ".lock"
# More than any device's limit, name, process or setting needs; whatever is beyond was not written by us.
_MOST_W = 1e6
_MOST = sys.float_info.max  # of another knob
_LONGEST_TEXT = 300
_MOST_BITS = 128
_VALUES = ("original_w", "last_w", "next_w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One guarded device.

    original_w: the requested limit found on arrival, `None` where it could not be read (then none is ever set).
    last_w: the last value set, `None` before the first and after the original was put back. next_w: the value about
    to be set, `None` when no set is under way. owner: the controller. job: the process that an emulated device acts
    on. settings: what was found beside the limit and goes back with it; none for a device of which a cap changes
    nothing else. settling: the device may still make another limit of the last one; none that has settings does. knob:
    what is set, whose values the limits are.
    """

    kind: str
    uuid: str
    original_w: float | None
    boot_id: str
    owner: ProcessId
    job: ProcessId | None = None
    last_w: float | None = None
    next_w: float | None = None
    settings: tuple[Setting, ...] = ()
    settling: bool = False
    knob: Turned = LIMIT

    @property
    def found_text(self) -> str:
        """What was found, as it is said."""
        return f"the {self.knob.noun} found" if self.original_w is None else self.knob.text(self.original_w)

    @property
    def untouched(self) -> bool:
        """No limit of ours can be on the device."""
        return self.last_w is None and self.next_w is None

    def names(self, limit_w: float) -> bool:
        """Whether a requested limit is one that the owner set or found."""
        return any(self.knob.same(limit_w, one_w) for one_w in self._ours_w)

    def is_ours(self, limit_w: float) -> bool:
        """The same, or it is what the device may just have made of one, rather than somebody else's."""
        made = self.settling and any(self.may_become(one_w, limit_w) for one_w in self._ours_w)
        return self.names(limit_w) or made

    def may_become(self, asked_w: float, there_w: float) -> bool:
        """Whether some card that takes limits in steps may make that of what is asked; of no other knob it does."""
        return self.knob.is_power_limit and is_likely_step(self.original_w, asked_w, there_w)

    @property
    def _ours_w(self) -> tuple[float, ...]:
        ours_w = (self.original_w if self.last_w is None else self.last_w, self.next_w)
        return tuple(one_w for one_w in ours_w if one_w is not None)

    def before_set(self, next_w: float, requested_w: float | None) -> "Entry":
        """The entry to write before `next_w` is set on a device that now holds `requested_w` (`None`: not known)."""
        held_w = requested_w
        if held_w is None:
            held_w = self.last_w if self.next_w is None else self.next_w
        if held_w is not None and self.original_w is not None and self.knob.same(held_w, self.original_w):
            held_w = None
        return replace(self, last_w=held_w, next_w=next_w, settling=self.knob.is_power_limit and not self.settings)

    def after_set(self) -> "Entry":
        """The entry once `next_w` is set."""
        return replace(self, last_w=self.next_w, next_w=None)

    def after_step(self, made_w: float) -> "Entry":
        """The entry once the device has made that of the limit that was set last."""
        return replace(self, last_w=made_w, next_w=None)

    def after_settling(self) -> "Entry":
        """The entry once the device has had its time: what comes then is not its doing."""
        return replace(self, settling=False)

    def after_restore(self) -> "Entry":
        """The entry once the original is back."""
        return replace(self, last_w=None, next_w=None, settling=False)


def encode(entry: Entry) -> bytes:
    """The entry as it stands on disk and goes to the watchdog."""
    # Earlier versions named files to remove in `cleanup`, and restore no entry that is without it.
    fields = asdict(entry)
    knob = fields.pop("knob")
    if not entry.knob.is_power_limit:
        del fields["settings"], fields["settling"]
        values = {name.removesuffix("_w") if name in _VALUES else name: value for name, value in fields.items()}
        return json.dumps({"schema": OF_KNOB, "knob": knob, **values}, indent=1).encode()
    if not entry.settling:  # which they do not know either
        del fields["settling"]
    return json.dumps({"schema": SCHEMA, "cleanup": [], **fields}, indent=1).encode()


def decode(data: bytes) -> Entry:
    """The entry in some bytes, of whatever origin. Raises OtherSchema, and ValueError, which says what is wrong without
    a word of what is in them."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    try:
        schema = fields.pop("schema")
        if type(schema) is int and schema not in (SCHEMA, OF_KNOB) and 0 < schema < 1000:
            raise OtherSchema(f"has schema {schema}, and this version knows {SCHEMA} and {OF_KNOB} only")
        if schema not in (SCHEMA, OF_KNOB):
            raise ValueError("its schema is none")
        return _parse(fields) if schema == SCHEMA else _parse_of_knob(fields)
    except UnicodeEncodeError:  # a lone surrogate
        raise ValueError("a text in it is none") from None
    except (KeyError, TypeError, AttributeError):
        raise ValueError("its fields are not those of an entry") from None


class Journal:
    """Entries by device UUID. Only the holder of a device's lock writes or deletes its entry."""

    def __init__(self, state: StateDir) -> None:
        self._state = state
        self._held: dict[str, HeldFile] = {}

    def save(self, entry: Entry) -> None:
        """Write the entry; it is durable on return. Raises GuardError, and then the former entry stands."""
        name, data = file_name(entry.uuid, SUFFIX), encode(entry)
        try:
            self._write(name, data)
        except OSError as error:
            raise GuardError(
                f"the journal entry of {entry.uuid} cannot be written to {self._state.path}: {error}; "
                f"without it {entry.knob.unset}, make room there or set AUTOCAP_STATE_DIR"
            ) from error

    def hold(self, uuid: str) -> None:
        """From now on, save the device's entry without opening a file; as before where that cannot be had."""
        name = file_name(uuid, SUFFIX)
        self._let_go(name)
        with suppress(GuardError, OSError):
            self._held[name] = HeldFile(self._state, name)

    def let_go(self) -> None:
        """Hold no entry any more."""
        for name in tuple(self._held):
            self._let_go(name)

    def _let_go(self, name: str) -> None:
        held = self._held.pop(name, None)
        if held is not None:
            with suppress(OSError):  # a spare that stays is in nobody's way
                held.close()

    def _write(self, name: str, data: bytes) -> None:
        held = self._held.get(name)
        if held is None:
            self._state.write(name, data)
            return
        try:
            if held.is_in_place():
                held.write(data)
                return
        except OSError:
            pass  # the way that needs a descriptor; the two that are given up are enough for it
        self._let_go(name)
        self._state.write(name, data)

    def load(self, uuid: str) -> Entry | None:
        """The device's entry, `None` where there is none. Raises GuardError for one that is refused or damaged."""
        return self.load_file(file_name(uuid, SUFFIX))

    def load_file(self, name: str) -> Entry | None:
        try:
            data = self._state.read(name)
        except OSError as error:
            raise GuardError(f"the journal entry {self._state.path / name} cannot be read: {error.strerror}") from error
        if data is None:
            return None
        try:
            entry = decode(data)
        except OtherSchema as error:
            raise GuardError(
                f"the journal entry {self._state.path / name} {error}; run `autocap restore` of the version that "
                "wrote it"
            ) from error
        except ValueError as error:
            raise DamagedEntry(
                f"the journal entry {self._state.path / name} is damaged ({error}), so the limit "
                "that it was to put back is not known"
            ) from error
        if file_name(entry.uuid, SUFFIX) != name:
            raise DamagedEntry(f"the journal entry {self._state.path / name} names another device")
        return entry

    def delete(self, uuid: str) -> None:
        """Remove the entry and what stands beside it. Raises GuardError."""
        name = file_name(uuid, SUFFIX)
        self._let_go(name)
        try:
            self._state.unlink(name)
            self.sweep(uuid)
        except OSError as error:
            raise GuardError(f"the journal entry {self._state.path / name} cannot be removed: {error}") from error

    def set_aside(self, name: str) -> str:
        """Rename a damaged entry, which says nothing any more but is evidence; the new name."""
        self._state.rename(name, name + ".damaged")
        return name + ".damaged"

    def file_names(self) -> list[str]:
        """The names of all entries, sound or not."""
        return [name for name in self._state.names() if name.endswith(SUFFIX)]

    def sweep(self, uuid: str) -> None:
        """Remove what a killed writer left beside an entry, which was never in force."""
        for suffix in UNFINISHED:
            self._state.unlink(file_name(uuid, suffix))

    def remnants(self) -> list[str]:
        """Devices of which a killed run has left a lock file or an unfinished entry."""
        suffixes = (*UNFINISHED, LOCK)
        return [self.device_of(name) for name in self._state.names() if name.endswith(suffixes)]

    def device_of(self, name: str) -> str:
        """The device that the name of an entry or a lock file stands for, whatever is inside."""
        return re.sub("%([0-9a-f]{1,6})%", _unescaped, name.partition(".")[0])


def _unescaped(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    is_character = code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
    return chr(code) if is_character else match[0]


class OtherSchema(Exception):
    """An entry of another version of autocap."""


class DamagedEntry(GuardError):
    """A journal entry that cannot be understood, as opposed to one that may not be trusted."""


def file_name(uuid: str, suffix: str) -> str:
    """A plain file name for a device; different devices have different ones."""
    return "".join(c if c in _PLAIN else f"%{ord(c):x}%" for c in uuid) + suffix


_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


# Any: json.loads gives it, and every field is checked here.
def _parse(fields: dict[str, Any]) -> Entry:
    fields.pop("cleanup", None)
    for name in _VALUES:
        limit_w = fields[name]
        if limit_w is not None and not (type(limit_w) in (int, float) and 0 < limit_w < _MOST_W):
            raise ValueError(f"{name} is no power in watts")
    fields["settings"] = tuple(map(_setting, fields.get("settings", ())))
    if type(fields.get("settling", False)) is not bool:
        raise ValueError("settling is neither true nor false")
    return _made(fields, LIMIT)


def _parse_of_knob(fields: dict[str, Any]) -> Entry:
    knob = _turned(fields.pop("knob"))
    if fields.keys() & {*_VALUES, "settings", "settling"}:
        raise ValueError("it has fields of a power limit")
    for name in _VALUES:
        value = fields[name] = fields.pop(name.removesuffix("_w"))
        if value is not None and not (type(value) in (int, float) and abs(value) <= _MOST):
            raise ValueError(f"{name.removesuffix('_w')} is no value of a knob")
    return _made(fields, knob)


def _made(fields: dict[str, Any], knob: Turned) -> Entry:
    """What is the same of all. Raises TypeError for a field that is none."""
    for text in (fields["kind"], fields["uuid"], fields["boot_id"]):
        _require_text(text)
    if fields["original_w"] is None and (fields["last_w"] is not None or fields["next_w"] is not None):
        raise ValueError("a limit was set without an original")
    fields["owner"] = _process(fields["owner"])
    fields["job"] = None if fields["job"] is None else _process(fields["job"])
    return Entry(**fields, knob=knob)


def _turned(fields: dict[str, Any]) -> Turned:
    knob = Turned(**fields)
    try:
        Knob(name=knob.name, unit=knob.unit, values=(0.0, 1.0))
    except ValueError:
        raise ValueError("the name or the unit of its knob is none") from None
    if knob.is_power_limit or not (type(knob.tolerance) in (int, float) and 0 < knob.tolerance <= _MOST):
        raise ValueError("its knob is a power limit, or has no tolerance")
    return knob


def _require_text(text: object) -> None:
    if not isinstance(text, str) or "\0" in text or len(text.encode()) > _LONGEST_TEXT:
        raise ValueError("a text was expected")


def _setting(fields: dict[str, object]) -> Setting:
    name, value = fields["name"], fields["value"]
    _require_text(name)
    if not isinstance(name, str) or type(value) is not int or value.bit_length() > _MOST_BITS:
        raise ValueError("a setting is none")
    return Setting(name=name, value=value)


def _process(fields: dict[str, object]) -> ProcessId:
    pid, start_ticks = fields["pid"], fields["start_ticks"]
    if type(pid) is not int or type(start_ticks) is not int or pid <= 0:
        raise ValueError("a process is none")
    if max(pid.bit_length(), start_ticks.bit_length()) > _MOST_BITS:
        raise ValueError("a process is none")
    return ProcessId(pid, start_ticks)
