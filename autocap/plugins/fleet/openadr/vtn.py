"""A VTN over HTTPS, as OpenADR 3.0 and 3.1 have it: a token by OAuth 2's client credentials, and all its events.

autocap's own questions, and not those of the package openadr3 (0.5.0): its events cannot end in the year 9999 or later
and take a date without a zone for UTC, its client does not know when a token ends, bounds neither the size of an answer
nor the time that it takes, and sends the address of a network card with each question; and it brings 30 packages.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlencode

from autocap.config.values import shown
from autocap.plugins.fleet.openadr.events import lacks_units
from autocap.plugins.fleet.openadr.source import ID, SECRET, Credentials, VtnSource, server_of, unsafe
from autocap.session.prices.https import NotAnswered, get_json
from autocap.session.prices.series import SourceRefused
from autocap.text import printable
from autocap.wire.json_lines import Json

_ONE_S, _ALL_S = 10.0, 20.0  # for an answer; for all of them
_PAGE, _MOST = 50, 1000  # records: of a page, as OpenADR bounds it; of all pages
_EARLY = 0.1  # of its time, before a token ends
_USUAL_S = 3600.0  # that a token lasts whose end is not known
_REFUSED_S = 60.0  # after which credentials that were refused are tried again
_REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


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
