"""What must be put back, and by whom it was changed: one entry a device, on disk before each set.

An entry covers every moment at which its owner can be killed. With l the last value set and v the next one:
written (l, v), then set to v, then written (v, none). Whenever the owner dies the device holds l or v, and both are
in the entry; once a set is complete only v is, so that somebody else's l is not taken for ours.
"""

import json
import math
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from autocap.devices.base import Setting
from autocap.errors import GuardError
from autocap.guardian.state_dir import TEMPORARY, StateDir
from autocap.job.processes import ProcessId
from autocap.records import same_limit

SCHEMA = 1
SUFFIX = ".json"
UNFINISHED = ".json" + TEMPORARY
LOCK = ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One guarded device.

    original_w: the requested limit found on arrival, `None` where it could not be read (then none is ever set).
    last_w: the last value set, `None` before the first and after the original was put back. next_w: the value about
    to be set, `None` when no set is under way. owner: the controller. job: the process that an emulated device acts
    on. settings: what was found beside the limit and goes back with it; none for a device of which a cap changes
    nothing else.
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

    @property
    def untouched(self) -> bool:
        """No limit of ours can be on the device."""
        return self.last_w is None and self.next_w is None

    def is_ours(self, limit_w: float) -> bool:
        """Whether a requested limit is one that the owner set or found, rather than somebody else's."""
        ours = (self.original_w if self.last_w is None else self.last_w, self.next_w)
        return any(one_w is not None and same_limit(limit_w, one_w) for one_w in ours)

    def before_set(self, next_w: float, requested_w: float | None) -> "Entry":
        """The entry to write before `next_w` is set on a device that now holds `requested_w` (`None`: not known)."""
        held_w = requested_w
        if held_w is None:
            held_w = self.last_w if self.next_w is None else self.next_w
        if held_w is not None and self.original_w is not None and same_limit(held_w, self.original_w):
            held_w = None
        return replace(self, last_w=held_w, next_w=next_w)

    def after_set(self) -> "Entry":
        """The entry once `next_w` is set."""
        return replace(self, last_w=self.next_w, next_w=None)

    def after_restore(self) -> "Entry":
        """The entry once the original is back."""
        return replace(self, last_w=None, next_w=None)


class Journal:
    """Entries by device UUID. Only the holder of a device's lock writes or deletes its entry."""

    def __init__(self, state: StateDir) -> None:
        self._state = state

    def save(self, entry: Entry) -> None:
        """Write the entry; it is durable on return. Raises GuardError, and then the former entry stands."""
        # Earlier versions named files to remove in `cleanup`, and restore no entry that is without it.
        data = json.dumps({"schema": SCHEMA, "cleanup": [], **asdict(entry)}, indent=1).encode()
        try:
            self._state.write(file_name(entry.uuid, SUFFIX), data)
        except OSError as error:
            raise GuardError(
                f"the journal entry of {entry.uuid} cannot be written to {self._state.path}: {error}; "
                "without it no cap is set, make room there or set AUTOCAP_STATE_DIR"
            ) from error

    def load(self, uuid: str) -> Entry | None:
        """The device's entry, `None` where there is none. Raises GuardError for one that is refused or damaged."""
        return self.load_file(file_name(uuid, SUFFIX))

    def load_file(self, name: str) -> Entry | None:
        data = self._state.read(name)
        if data is None:
            return None
        try:
            fields = json.loads(data)
            if (schema := fields.pop("schema")) != SCHEMA:
                raise GuardError(
                    f"the journal entry {self._state.path / name} has schema {schema}, and this version knows {SCHEMA} "
                    "only; run `autocap restore` of the version that wrote it"
                )
            entry = _parse(fields)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedEntry(
                f"the journal entry {self._state.path / name} is damaged ({error!r}), so the limit "
                "that it was to put back is not known"
            ) from error
        if file_name(entry.uuid, SUFFIX) != name:
            raise DamagedEntry(f"the journal entry {self._state.path / name} names another device, {entry.uuid}")
        return entry

    def delete(self, uuid: str) -> None:
        name = file_name(uuid, SUFFIX)
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
        """Remove an unfinished entry, which was never in force."""
        self._state.unlink(file_name(uuid, UNFINISHED))

    def remnants(self) -> list[str]:
        """Devices of which a killed run has left a lock file or an unfinished entry."""
        suffixes = (UNFINISHED, LOCK)
        return [self.device_of(name) for name in self._state.names() if name.endswith(suffixes)]

    def device_of(self, name: str) -> str:
        """The device that the name of an entry or a lock file stands for, whatever is inside."""
        return re.sub("%([0-9a-f]{1,6})%", lambda match: chr(int(match[1], 16)), name.partition(".")[0])


class DamagedEntry(GuardError):
    """A journal entry that cannot be understood, as opposed to one that may not be trusted."""


def file_name(uuid: str, suffix: str) -> str:
    """A plain file name for a device; different devices have different ones."""
    return "".join(c if c in _PLAIN else f"%{ord(c):x}%" for c in uuid) + suffix


_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


# Any: json.loads gives it, and every field is checked here.
def _parse(fields: dict[str, Any]) -> Entry:
    fields.pop("cleanup", None)
    texts = (fields["kind"], fields["uuid"], fields["boot_id"])
    if not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise ValueError("a text was expected")
    for name in ("original_w", "last_w", "next_w"):
        limit_w = fields[name]
        if limit_w is not None and not (type(limit_w) in (int, float) and 0 < limit_w < math.inf):
            raise ValueError(f"{name} is no power in watts: {limit_w!r}")
    if fields["original_w"] is None and (fields["last_w"] is not None or fields["next_w"] is not None):
        raise ValueError("a limit was set without an original")
    fields["owner"] = _process(fields["owner"])
    fields["job"] = None if fields["job"] is None else _process(fields["job"])
    fields["settings"] = tuple(map(_setting, fields.get("settings", ())))
    return Entry(**fields)


def _setting(fields: dict[str, object]) -> Setting:
    name, value = fields["name"], fields["value"]
    if not isinstance(name, str) or type(value) is not int:
        raise ValueError(f"no setting: {fields}")
    return Setting(name=name, value=value)


def _process(fields: dict[str, object]) -> ProcessId:
    pid, start_ticks = fields["pid"], fields["start_ticks"]
    if type(pid) is not int or type(start_ticks) is not int or pid <= 0:
        raise ValueError(f"no process: {fields}")
    return ProcessId(pid, start_ticks)
