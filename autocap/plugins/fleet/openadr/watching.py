"""When a VTN is asked, and what there is to say of it then: in a process of its own, so that nothing that a server or a
name service does delays the manager of a budget, to whom a look takes no longer than there is something to read."""

import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from autocap.plugins.fleet.openadr.events import Context, Span, read_events
from autocap.plugins.fleet.openadr.source import CredentialsRefused, VtnSource, find_credentials
from autocap.plugins.fleet.openadr.vtn import Answer, Vtn
from autocap.session.prices.series import SourceRefused
from autocap.text import printable_json
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import parse
from autocap.wire.line_process import MOST_BYTES, LineProcess, write_whole

_MOST_NOTES = 50
_MOST_BYTES = 1 << 16
_LOOK_S = 0.5
SILENT_S = 30.0  # of the process that asks: then another one does


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is known of a VTN, as it goes from one process to the other. spans: of its events, from now on; `None` where
    nothing is known of them. trouble: why it could not be asked, a sentence, "" where it could. notes: on events that
    cannot be followed."""

    spans: tuple[Span, ...] | None = None
    trouble: str = ""
    notes: tuple[str, ...] = ()


class Watched:
    """ask: raises SourceRefused, or CredentialsRefused. seed: who draws random starts."""

    def __init__(self, source: VtnSource, ask: Callable[[], Answer], seed: str) -> None:
        self._source, self._ask, self._seed = source, ask, seed
        self._due_s = -math.inf
        self._answer: Answer | None = None
        self._noted: set[str] = set()

    def look(self, wall_s: float, now_s: float) -> Said | None:
        """What is known at a time, seconds since 1970; `None` where it is too early to ask again. now_s: on a clock
        that is never set. Takes as long as asking does. What a VTN has said counts until it says something else."""
        if now_s < self._due_s:
            return None
        self._due_s = now_s + self._source.every_s
        return self._said(wall_s)

    def _said(self, wall_s: float) -> Said:
        trouble = ""
        try:
            self._answer = self._ask()
        except (SourceRefused, CredentialsRefused) as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - said in a sentence without its words, which may hold a secret
            trouble = f"{self._source.server} cannot be asked ({type(error).__name__})"
        if self._answer is None:
            return Said(trouble=trouble)
        targets = frozenset(self._source.targets)
        context = Context(wall_s=wall_s, seed=self._seed, targets=targets, programs=self._answer.programs)
        read = read_events(self._answer.events, context)
        notes = (*read.refused, *([self._more] if self._answer.more else []))
        return Said(spans=read.spans, trouble=trouble, notes=tuple(self._new(notes)))

    @property
    def _more(self) -> str:
        return f"{self._source.server} has more events than are read; name a program with --openadr-program"

    def _new(self, notes: tuple[str, ...]) -> list[str]:
        """Those that were not told yet, and not too many in all."""
        found = [note for note in notes if note not in self._noted]
        room = max(0, _MOST_NOTES - len(self._noted))
        told = found[:room]
        if room and len(found) >= room:
            told[-1] = "other events cannot be followed either, and are not named any more"
        self._noted |= set(found[:room])
        return told


def main(words: Sequence[str]) -> None:
    """The process, until it is ended. It is told whom to ask as JSON, and prints a line of JSON whenever there is
    something to say, and an empty one at least once a second while it is not waiting for an answer."""
    source = decode(VtnSource, parse(words[0].encode(), _MOST_BYTES))
    vtn = Vtn(source, lambda: find_credentials(source.credentials))
    watched = Watched(source, vtn.ask, f"{socket.gethostname()} {source.url}")
    before: Said | None = None
    while True:
        said = watched.look(time.time(), time.monotonic())
        is_news = said is not None and said != before
        write_whole(sys.stdout.fileno(), f"{printable_json(encode(said)) if is_news else ''}\n".encode())
        before = said or before
        time.sleep(_LOOK_S)


class Feed:
    """Asks a VTN in a process beside us, which ends with us, and which is replaced where it ends or hangs. Raises
    OSError where none can be started at first."""

    def __init__(self, source: VtnSource, now: Callable[[], float] = time.monotonic) -> None:
        self.source, self._now = source, now
        self._began_s = self._heard_s = now()
        self._reader: LineProcess | None = self._started()

    def news(self) -> list[Said]:
        """What has been said since the last time."""
        lines, now_s = [] if self._reader is None else self._reader.take(), self._now()
        if lines:
            self._heard_s = now_s
        found = [decode(Said, parse(line, MOST_BYTES)) for line in lines if line]
        ended = self._reader is None or self._reader.ended
        silent = not ended and now_s - self._heard_s >= SILENT_S
        if silent or (ended and now_s - self._began_s >= SILENT_S):
            server = self.source.server
            if silent:
                trouble = f"the process that asks {server} was silent for {SILENT_S:g} s, and is started again"
            else:
                trouble = f"the process that asks {server} has ended, and is started again"
            found.append(Said(trouble=trouble))
            self._replace(now_s)
        return found

    def close(self) -> None:
        """End the process that asks."""
        if self._reader is not None:
            self._reader.close()

    def _replace(self, now_s: float) -> None:
        if self._reader is not None:  # which may take as long as a process hangs
            threading.Thread(target=self._reader.close, daemon=True).start()
        self._reader, self._began_s, self._heard_s = None, now_s, now_s
        with suppress(OSError):  # tried again after as long
            self._reader = self._started()

    def _started(self) -> LineProcess:
        return LineProcess("autocap.plugins.fleet.openadr.watching", [printable_json(encode(self.source))])
