"""Who may have which devices, within which bounds: the rules, and which of them decides. Their files are read anew when
they have changed, strictly, and only where nobody else can write them.

    version = 1

    [[rule]]
    groups = ["gpupower"]
    devices = ["GPU-4f2e…"]
    min_w = 150
"""

import grp
import os
import pwd
import stat
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autocap.errors import AutocapError
from autocap.job.trusted_code import writable
from autocap.wire.who import Peer, user_name

ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """users, groups: by number; `None` for not named. With neither, the rule is for everybody who can connect. devices:
    UUIDs and PCI addresses as `plain_address` has them, or ANY. min_w, max_w: caps, watts. sets_per_s: of a device.
    shared: other users may compute there. given: the devices are theirs, whoever computes there, and nobody else's.
    source: the file that has it.
    """

    users: frozenset[int] | None = None
    groups: frozenset[int] | None = None
    devices: frozenset[str] = frozenset({ANY})
    min_w: float | None = None
    max_w: float | None = None
    sets_per_s: float | None = None
    shared: bool = False
    given: bool = False
    source: str = ""

    def covers(self, names: Iterable[str]) -> bool:
        """Whether it is about a device with these names."""
        return ANY in self.devices or not self.devices.isdisjoint(names)

    def is_for(self, peer: Peer) -> bool:
        if self.users is None and self.groups is None:
            return True
        return peer.uid in (self.users or ()) or not (self.groups or frozenset()).isdisjoint(peer.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a client may do with a device. alone: only while nobody else computes on it. above_found: also caps above
    the limit found. why: whence it is so."""

    min_w: float = 0.0
    max_w: float = float("inf")
    sets_per_s: float | None = None
    alone: bool = True
    above_found: bool = False
    why: str = "it is lent to whoever computes there alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """rules: in the order in which they are asked. closed: what no rule allows is not allowed, as where an
    administrator has written a policy."""

    rules: tuple[Rule, ...] = ()
    closed: bool = False

    def names(self) -> list[tuple[Rule, str]]:
        """What rules call devices, each with its rule; not ANY."""
        return [(rule, name) for rule in self.rules for name in sorted(rule.devices - {ANY})]

    def grant(self, peer: Peer, names: Sequence[str]) -> Grant | str:
        """What a client may do with the device of these names; a sentence where that is nothing."""
        about = [rule for rule in self.rules if rule.covers(names)]
        first = next((rule for rule in about if rule.is_for(peer)), None)
        theirs = next((rule for rule in about if rule.given and not rule.is_for(peer)), None)
        if theirs is not None and not (first is not None and first.given):
            return f"it was given to {_whom(theirs)} by {theirs.source}"
        if first is not None:
            return Grant(
                min_w=first.min_w or 0.0,
                max_w=float("inf") if first.max_w is None else first.max_w,
                sets_per_s=first.sets_per_s,
                alone=not (first.shared or first.given),
                why=f"a rule of {first.source} allows it",
            )
        if self.closed:
            return f"no rule of the policy allows it to {peer.name}; ask your administrator"
        return Grant()


def plain_address(text: str) -> str:
    """A PCI address as rules and devices are compared by: 0000:01:00.0; anything else as it is, UUIDs in lower case."""
    domain, colon, rest = text.lower().partition(":")
    if not colon:
        return text.lower()
    return f"{domain[-4:].rjust(4, '0')}:{rest}" if rest.count(":") == 1 else f"0000:{domain}:{rest}"


def _whom(rule: Rule) -> str:
    users = [user_name(uid) for uid in sorted(rule.users or ())]
    return ", ".join([*users, *(f"group {gid}" for gid in sorted(rule.groups or ()))]) or "others"


USUAL_POLICY = Path("/etc/autocap/policy.toml")
DROP_INS = "policy.d"  # in the state directory: rules that last as long as a job
_SUFFIX = ".toml"
_MOST_BYTES, _MOST_FILES, _MOST_RULES, _MOST_NAMES = 1 << 16, 256, 1024, 1024
_MOST_W, _MOST_PER_S = 1e6, 1e3
_AGAIN_S = 5.0  # between looks at files that were refused and have not changed
_KEYS = frozenset({"users", "groups", "devices", "min_w", "max_w", "sets_per_s", "shared", "given"})


class PolicyRefused(AutocapError):
    """The policy cannot be read, or is not to be trusted; nothing is lent until that is mended."""


class PolicyFiles:
    """path: of the administrator's file, which must be there; when `None` the usual one, which need not, before it was
    read once. drop_ins: a directory. uid: the user who may own them besides root. now: the clock, seconds. From any
    thread."""

    def __init__(self, path: Path | None, drop_ins: Path, uid: int, now: Callable[[], float] = time.monotonic) -> None:
        self._path = USUAL_POLICY if path is None else path
        self._must_be_there = path is not None
        self._drop_ins, self._uid = drop_ins, uid
        self._now, self._lock = now, threading.Lock()
        self._seen: dict[Path, object] | None = None  # when it was read last, and what came of that
        self._found: Policy | str = ""
        self._read_s = 0.0

    @property
    def path(self) -> Path:
        """Of the administrator's file."""
        return self._path

    def current(self) -> Policy:
        """The policy as it stands on disk now. Raises PolicyRefused."""
        names = self._names()
        seen: dict[Path, object] = {name: _signature(name) for name in [self._path, *names]}
        with self._lock:  # one reads for all
            # A refusal holds for a while as well, as clients ask many times a second; not for ever, as it may be for a
            # reason outside of the files, such as a user who is not known for a moment.
            is_old = isinstance(self._found, str) and self._now() - self._read_s >= _AGAIN_S
            if self._seen != seen or is_old:
                self._seen, self._read_s = seen, self._now()
                try:
                    self._found = self._read(names)
                except PolicyRefused as error:
                    self._found = str(error)
            found = self._found
        if isinstance(found, str):
            raise PolicyRefused(found)
        return found

    def _names(self) -> list[Path]:
        try:
            if not os.path.lexists(self._drop_ins):
                return []
            self._require_safe(self._drop_ins, os.stat(self._drop_ins, follow_symlinks=False), stat.S_ISDIR)
            names = sorted(name for name in os.listdir(self._drop_ins) if name.endswith(_SUFFIX))
        except OSError as error:
            raise PolicyRefused(f"the policy cannot be read: {error}; nothing is lent until it can") from error
        if len(names) > _MOST_FILES:
            raise PolicyRefused(
                f"{self._drop_ins} holds {len(names)} files; {_MOST_FILES} are read, so nothing is lent"
            )
        return [self._drop_ins / name for name in names]

    def _read(self, drop_ins: Iterable[Path]) -> Policy:
        rules: list[Rule] = []
        for path in drop_ins:  # first: they are about one job's devices
            try:
                rules += self._rules(path)
            except FileNotFoundError:  # its job has just ended
                continue
        try:
            rules += self._rules(self._path)
        except FileNotFoundError:
            if self._must_be_there:
                raise PolicyRefused(f"there is no policy {self._path}; nothing is lent until there is") from None
            return Policy(rules=tuple(rules))
        self._must_be_there = True  # a moment without it, as while an editor replaces it, must not open everything
        return Policy(rules=tuple(rules), closed=True)

    def _rules(self, path: Path) -> list[Rule]:
        """Raises PolicyRefused, and FileNotFoundError."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                self._require_safe(path, os.fstat(fd), stat.S_ISREG)
                data = os.read(fd, _MOST_BYTES + 1)
            finally:
                os.close(fd)
            if len(data) > _MOST_BYTES:
                raise ValueError(f"it is longer than {_MOST_BYTES} bytes")
            return rules_in(tomllib.loads(data.decode()), path.name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise PolicyRefused(f"the policy {path} cannot be read: {error.strerror}; nothing is lent") from error
        except (ValueError, RecursionError) as error:  # of which tomllib's errors are some
            raise PolicyRefused(f"the policy {path} is refused: {error}; nothing is lent until it is mended") from error

    def _require_safe(self, path: Path, status: os.stat_result, is_kind: Callable[[int], bool]) -> None:
        who = None
        if not is_kind(status.st_mode):
            who = "it is a link, or of another kind than it should be"
        elif status.st_uid not in (0, self._uid):
            who = f"it belongs to user {status.st_uid}"
        elif status.st_mode & 0o022:
            who = f"others can write it (mode {stat.S_IMODE(status.st_mode):04o})"
        elif self._uid == 0:
            who = writable(str(path))
        if who is not None:
            raise PolicyRefused(
                f"the policy {path} is not to be trusted: {who}; nothing is lent until it is root's alone"
            )


def rules_in(document: Mapping[str, object], source: str) -> list[Rule]:
    """The rules of a document, as TOML gives it. Raises ValueError for whatever is not exactly a policy."""
    if type(document.get("version")) is not int or document["version"] != 1:
        raise ValueError("it has no `version = 1`")
    unknown = sorted(set(document) - {"version", "rule"})
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no key of a policy; there are version and [[rule]]")
    tables = document.get("rule", [])
    if not isinstance(tables, list) or len(tables) > _MOST_RULES or not all(isinstance(one, dict) for one in tables):
        raise ValueError(f"rule is no list of at most {_MOST_RULES} tables; write [[rule]]")
    return [_rule(table, f"rule {number}", source) for number, table in enumerate(tables, 1)]


def _rule(table: Mapping[str, object], which: str, source: str) -> Rule:
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no key of {which}; there are {', '.join(sorted(_KEYS))}")
    min_w, max_w = _number(table, "min_w", _MOST_W, which), _number(table, "max_w", _MOST_W, which)
    if min_w is not None and max_w is not None and min_w > max_w:
        raise ValueError(f"min_w {min_w:g} of {which} is above its max_w {max_w:g}")
    users, groups = _ids(table, "users", _uid, which), _ids(table, "groups", _gid, which)
    return Rule(
        users=users,
        groups=groups,
        devices=frozenset(map(plain_address, _devices(table, which))),
        min_w=min_w,
        max_w=max_w,
        sets_per_s=_number(table, "sets_per_s", _MOST_PER_S, which),
        shared=_flag(table, "shared", which),
        given=_flag(table, "given", which),
        source=source,
    )


def _number(table: Mapping[str, object], key: str, most: float, which: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < most:
        raise ValueError(f"{key} of {which} is no number above 0 and below {most:g}")
    return float(value)


def _flag(table: Mapping[str, object], key: str, which: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key} of {which} is neither true nor false")
    return value


def _devices(table: Mapping[str, object], which: str) -> list[str]:
    names = _list(table.get("devices", ["*"]), "devices", which)
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError(f'devices of {which} are no UUIDs or PCI addresses, nor ["*"]')
    return [str(name) for name in names]


def _ids(table: Mapping[str, object], key: str, number_of: Callable[[str], int], which: str) -> frozenset[int] | None:
    if key not in table:
        return None
    found = set()
    for name in _list(table[key], key, which):
        if type(name) is int and 0 <= name < 2**32 - 1:
            found.add(name)
            continue
        try:
            found.add(number_of(name if isinstance(name, str) else ""))
        except (KeyError, ValueError):
            raise ValueError(f"{name!r} in {key} of {which} is not known here, nor a number") from None
    return frozenset(found)


def _list(value: object, key: str, which: str) -> list[object]:
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_NAMES:
        raise ValueError(f"{key} of {which} is no list of 1 to {_MOST_NAMES} names")
    return value


def _uid(name: str) -> int:
    return pwd.getpwnam(name).pw_uid


def _gid(name: str) -> int:
    return grp.getgrnam(name).gr_gid


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_mode)
