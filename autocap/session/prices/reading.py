"""What a source says now, whichever kind it is of; when it is read again, and what there is to say of it then.

`main` is the process that reads sources for a session, so that nothing a file system, command or server does delays its
loop. It is told its sources as words, KIND SOURCE each, and prints a line of JSON whenever there is something to say.
"""

import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autocap.config import Sources
from autocap.config.values import shown
from autocap.errors import UsageError
from autocap.events.quote import CARBON, PRICE
from autocap.job import registry
from autocap.job.supervised import CommandFailed, output_of
from autocap.runlog.input_file import InputRefused, read_input
from autocap.session.prices.series import MOST_BYTES, WANTED, Series, SourceRefused, parse
from autocap.text import did_you_mean, printable_json
from autocap.wire import json_lines, line_process
from autocap.wire.codec import decode, encode
from autocap.wire.line_process import LineProcess, write_whole

FILE, COMMAND = "file:", "command:"
_KINDS = {PRICE: "prices", CARBON: "carbon"}  # where services of each are registered
_COMMAND_S = 30.0
_ZONE = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
UNITS = {PRICE: "money per kWh", CARBON: "grams of CO2 per kWh"}


class Service(Protocol):
    """A service that is asked over the network: a module, registered by the name that sources begin with. ZONED: a zone
    follows that name, `NAME:ZONE`."""

    ZONED: bool

    def missing(self) -> str | None:
        """What has to be there before it can be asked, as a sentence; `None` where nothing lacks."""

    def read(self, zone: str, wall_s: float) -> Series:
        """What is known of a zone, "" for a service that has none, from a time on, seconds since 1970. Raises
        SourceRefused."""


def read_source(source: str, kind: str, wall_s: float) -> Series:
    """The values of a kind that a source, as it was given, says at a time, seconds since 1970. Raises SourceRefused."""
    if source.startswith(FILE):
        return read_file(Path(source.removeprefix(FILE)), kind)
    if source.startswith(COMMAND):
        try:
            said = output_of(source.removeprefix(COMMAND), within_s=_COMMAND_S, most_bytes=MOST_BYTES)
        except CommandFailed as error:
            raise SourceRefused(f"{error}; {WANTED[kind]}") from error
        return parse(said, f"the output of {shown(source)}", kind)
    service = _service(source, kind)  # what speaks to servers takes longer to import than anything else here
    assert service is not None
    return service.read(source.partition(":")[2], wall_s)


def read_file(path: Path, kind: str) -> Series:
    """The values in a file. Raises SourceRefused."""
    try:
        return parse(read_input(path, MOST_BYTES), str(path), kind)
    except OSError as error:
        raise SourceRefused(f"{path} cannot be read: {error.strerror}; {WANTED[kind]}") from error
    except InputRefused as error:
        raise SourceRefused(str(error)) from error


def require(source: str, kind: str) -> None:
    """Before there is a job: raises SourceRefused for a file that cannot be used, and for a service that lacks
    something here. What has to be asked first is not asked."""
    if source.startswith(FILE):
        read_file(Path(source.removeprefix(FILE)), kind)
    service = _service(source, kind)
    why_not = None if service is None else service.missing()
    if why_not is not None:
        raise SourceRefused(why_not)


def check(source: str, kind: str) -> None:
    """Before anything is read: raises UsageError for a source that nobody knows, or that names no zone of a service
    which has zones."""
    name, colon, zone = source.partition(":")
    known = ("file", "command", *registry.ours(_KINDS[kind]), *registry.plugged_in(_KINDS[kind]))
    service = _service(source, kind) if name in known else None
    if name not in known or (service is None and not colon) or (service is not None and bool(colon) != service.ZONED):
        meant = did_you_mean(name, known)
        services = ((one, registry.load(_KINDS[kind], one)) for one in sorted(registry.ours(_KINDS[kind])))
        forms = ", ".join(("file:PATH", "command:CMD", *(f"{one}{':ZONE' * its.ZONED}" for one, its in services)))
        raise UsageError(f"unknown source {shown(source)}{meant}; give a number, in {UNITS[kind]}, or {forms}")
    if service is not None and zone and not _ZONE.fullmatch(zone):
        raise UsageError(f"{shown(zone)} is no zone; give one such as DE_LU, FR or US-CAL-CISO")


def _service(source: str, kind: str) -> Service | None:
    """The service that a source names; `None` for a file or a command. Raises SourceRefused for what nobody knows."""
    name = source.partition(":")[0]
    if f"{name}:" in (FILE, COMMAND):
        return None
    try:
        found: Service = registry.load(_KINDS[kind], name)
    except KeyError:
        raise SourceRefused(f"{shown(source)} is no source of {kind}") from None
    return found


LOOK_S = 1.0  # between two looks
_ASK_S, _RETRY_S = 300.0, 60.0  # between two questions to a program or service; after one that failed
_AGAIN_S = 3600.0  # a file that has not changed: what is passed on of it ends some day
Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a source says, as it goes from one process to the other: a series, or what is wrong with it, a sentence."""

    kind: str
    trouble: str = ""
    series: Series | None = None


class Watched:
    """One source. read: says what it says at a time, or raises SourceRefused. stamp: of a file, another one once it has
    changed, `None` where it cannot be told."""

    def __init__(
        self,
        kind: str,
        source: str,
        read: Callable[[str, str, float], Series] = read_source,
        stamp: Callable[[str], Stamp | None] | None = None,
    ) -> None:
        self.kind, self._source, self._read = kind, source, read
        self._stamp = stamp or _stamp
        self._is_file = source.startswith(FILE)
        self._due_s = -math.inf
        self._seen: Stamp | None = None  # of what was read last
        self._last: Stamp | None = None  # at the last look
        self._said: Said | None = None

    def look(self, wall_s: float) -> Said | None:
        """What is new at a time, seconds since 1970; `None` for nothing. It may take as long as reading does."""
        if not (self._has_changed() or wall_s >= self._due_s):
            return None
        try:
            series = self._read(self._source, self.kind, wall_s).from_now(wall_s)
            said, after_s = Said(kind=self.kind, series=series), _ASK_S
        except SourceRefused as error:
            said, after_s = Said(kind=self.kind, trouble=str(error)), _RETRY_S
        except Exception as error:  # noqa: BLE001 - said in a sentence, and tried again
            said, after_s = Said(kind=self.kind, trouble=f"{self._source}: {type(error).__name__}: {error}"), _RETRY_S
        self._due_s = wall_s + (_AGAIN_S if self._is_file and not said.trouble else after_s)
        if said == self._said:
            return None
        self._said = said
        return said

    def _has_changed(self) -> bool:
        """Whether a file is another one, and has been so for a look: it may be being written."""
        if not self._is_file:
            return False
        now, before = self._stamp(self._source.removeprefix(FILE)), self._last
        self._last = now
        if now == self._seen or now != before:
            return False
        self._seen = now
        return True


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def main(words: Sequence[str]) -> None:
    """Until it is ended."""
    pairs = zip(words[::2], words[1::2], strict=True)
    threads = [threading.Thread(target=_watch, args=(Watched(kind, source),)) for kind, source in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


_printing = threading.Lock()


def _watch(watched: Watched) -> None:
    while True:
        said = watched.look(time.time())
        if said is not None:
            line = f"{printable_json(encode(said))}\n".encode()
            with _printing:
                write_whole(sys.stdout.fileno(), line)
        time.sleep(LOOK_S)


class Feed:
    """Reads sources in a process beside us, which ends with us. Raises OSError where none can be started.

    sources: as given, by kind.
    """

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources
        self._reader = LineProcess(
            "autocap.session.prices.reading", [word for pair in self.sources.items() for word in pair]
        )
        self._over = False

    def news(self) -> list[Said]:
        """What has been said since the last time."""
        if self._over:
            return []
        found = [decode(Said, json_lines.parse(line, line_process.MOST_BYTES)) for line in self._reader.take()]
        if self._reader.ended and not found:
            self._over = True
            found += [Said(kind=kind, trouble="the process that reads prices has ended") for kind in self.sources]
        return found

    def close(self) -> None:
        """End it with all that it started."""
        self._reader.close()


def by_kind(sources: Sources) -> dict[str, str]:
    """Those that there are."""
    given = {PRICE: sources.energy_price, CARBON: sources.carbon}
    return {kind: source for kind, source in given.items() if source is not None}
