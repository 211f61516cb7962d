"""A VTN over HTTPS, as OpenADR 3.0 and 3.1 have it: a token by OAuth 2's client credentials, all its events, and when
it is asked: in a process of its own, so that nothing that a server or a name service does delays the manager of a
budget, to whom a look takes no longer than there is something to read.

autocap's own questions, and not those of the package openadr3 (0.5.0): its events cannot end in the year 9999 or later
and take a date without a zone for UTC, its client does not know when a token ends, bounds neither the size of an
answer nor the time that it takes, and sends the address of a network card with each question; and it brings 30
packages."""

import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlencode

from autocap.config.values import shown
from autocap.plugins.fleet.openadr.events import Context, Span, lacks_units, read_events
from autocap.plugins.fleet.openadr.source import (
    ID,
    SECRET,
    Credentials,
    CredentialsRefused,
    VtnSource,
    find_credentials,
    server_of,
    unsafe,
)
from autocap.session.prices.https import NotAnswered, get_json
from autocap.session.prices.series import SourceRefused
from autocap.text import printable, printable_json
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import Json, parse
from autocap.wire.line_process import MOST_BYTES, LineProcess, write_whole

_ONE_S, _ALL_S = 10.0, 20.0  # for an answer; for all of them
_PAGE, _MOST = 50, 1000  # records: of a page, as OpenADR bounds it; of all pages
_EARLY = 0.1  # of its time, before a token ends
_USUAL_S = 3600.0  # that a token lasts whose end is not known
_REFUSED_S = 60.0  # after which credentials that were refused are tried again
_REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_MOST_NOTES = 50
_MOST_BYTES = 1 << 16
_LOOK_S = 0.5
SILENT_S = 30.0  # of the process that asks: then another one does


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """events: as JSON has them. programs: by their IDs, where they were needed. more: whether there are more events."""

    events: list[Json]
    programs: Mapping[str, Json]
    more: bool = False


class Vtn:
    """credentials: looks up what there is now. now: seconds."""

    def __init__(
        self,
        source: VtnSource,
        credentials: Callable[[], Credentials | None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._credentials, self._now = source, credentials, now
        self._base = source.url.rstrip("/")
        self._token: str | None = None
        self._token_ends_s = self._not_before_s = self._until_s = 0.0
        self._refusal = ""

    def ask(self) -> Answer:
        """All that counts now. Raises SourceRefused where it cannot be had, and CredentialsRefused."""
        self._until_s = self._now() + _ALL_S
        had_token = self._token is not None and self._now() < self._token_ends_s
        try:
            return self._all()
        except NotAnswered as error:
            if error.status not in _REFUSALS:
                raise
            if self._token is None:
                raise SourceRefused(
                    f"{self._source.server} wants to know who asks (HTTP {error.status}); pass --openadr-credentials, "
                    f"or set {ID} and {SECRET}"
                ) from None
            if not had_token:
                raise
            self._token = None  # it may have been taken back
            return self._all()

    def _all(self) -> Answer:
        query: dict[str, object] = {}
        programs: dict[str, Json] = {}
        if self._source.program is not None:
            programs = self._programs()
            query["programID"] = self._named(programs)
        if self._source.targets:
            query["targets"] = self._source.targets
        events, more = self._pages("events", query)
        if not programs and lacks_units(events):
            try:
                programs = self._programs()
            except NotAnswered as error:
                if error.status not in (*_REFUSALS, HTTPStatus.NOT_FOUND):
                    raise
        return Answer(events=events, programs=programs, more=more)

    def _programs(self) -> dict[str, Json]:
        found, _ = self._pages("programs", {"targets": self._source.targets} if self._source.targets else {})
        return {str(one.get("id")): one for one in found if isinstance(one, dict)}

    def _named(self, programs: Mapping[str, Json]) -> str:
        names = {id: one.get("programName") for id, one in programs.items() if isinstance(one, dict)}
        for id, name in names.items():
            if name == self._source.program:
                return id
        there = ", ".join(shown(printable(name)) for name in list(names.values())[:5] if isinstance(name, str))
        wanted = shown(self._source.program or "")
        raise SourceRefused(f"{self._source.server} has no program {wanted} for us; it has {there or 'none'}")

    def _pages(self, what: str, query: Mapping[str, object]) -> tuple[list[Json], bool]:
        """All records of a kind, and whether there are more than are read. A server that knows no pages gives all of
        them again and again."""
        found: list[Json] = []
        known: set[str] = set()
        read = 0
        while len(found) < _MOST:
            words = urlencode({**query, "skip": read, "limit": _PAGE}, doseq=True)
            page = self._get(f"{self._base}/{what}?{words}")
            if not isinstance(page, list):
                raise SourceRefused(f"{self._source.server} answers with something else than {what}")
            read += len(page)
            ids = [str(one.get("id")) if isinstance(one, dict) else "" for one in page]
            new = [one for one, id in zip(page, ids, strict=True) if id not in known]
            known |= set(ids)
            found += new
            if not new or len(page) < _PAGE:
                return found, False
        return found[:_MOST], True

    def _get(self, url: str) -> Json:
        token = self._current()
        headers = {"Accept": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        return get_json(url, headers, self._left_s())

    def _current(self) -> str | None:
        """A token that has not ended; `None` where we have no credentials."""
        if self._token is not None and self._now() < self._token_ends_s:
            return self._token
        if self._now() < self._not_before_s:
            raise SourceRefused(self._refusal)
        credentials = self._credentials()
        if credentials is None:
            return None
        url = credentials.token_url or self._token_url()
        form = {"grant_type": "client_credentials", "client_id": credentials.client_id}
        form |= {"client_secret": credentials.client_secret}
        form |= {} if credentials.scope is None else {"scope": credentials.scope}
        try:
            answer = get_json(url, {"Accept": "application/json"}, self._left_s(), form)
        except NotAnswered as error:
            if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                self._refusal = f"{server_of(url)} gives us no token: HTTP {error.status}; see to the credentials"
                self._not_before_s = self._now() + _REFUSED_S
                raise SourceRefused(self._refusal) from None
            raise
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            raise SourceRefused(f"{server_of(url)} answers with something else than a token")
        lasts = answer.get("expires_in") if isinstance(answer, dict) else None
        known = isinstance(lasts, int | float) and not isinstance(lasts, bool) and 0 < lasts < 1e9
        lasts_s = float(lasts) if known and isinstance(lasts, int | float) else _USUAL_S
        self._token, self._token_ends_s = token, self._now() + (1 - _EARLY) * lasts_s
        return token

    def _token_url(self) -> str:
        """Where a token is had: as the VTN says, or, before 3.1, at its own address."""
        try:
            found = get_json(f"{self._base}/auth/server", {"Accept": "application/json"}, self._left_s())
        except NotAnswered as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            return f"{self._base}/auth/token"
        url = found.get("tokenURL") if isinstance(found, dict) else None
        why_not = unsafe(url) if isinstance(url, str) else "is not there"
        if why_not is not None:
            raise SourceRefused(f"the tokenURL that {self._source.server} names {why_not}; set token_url in a file")
        assert isinstance(url, str)
        return url

    def _left_s(self) -> float:
        left_s = min(_ONE_S, self._until_s - self._now())
        if left_s <= 0:
            raise SourceRefused(f"{self._source.server} has not answered within {_ALL_S:g} s")
        return left_s


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
        more = f"{self._source.server} has more events than are read; name a program with --openadr-program"
        notes = (*read.refused, *([more] if self._answer.more else []))
        return Said(spans=read.spans, trouble=trouble, notes=tuple(self._new(notes)))

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
        return LineProcess("autocap.plugins.fleet.openadr.vtn", [printable_json(encode(self.source))])
