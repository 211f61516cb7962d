"""A stand-in for a VTN of OpenADR 3: tokens, programs and events on this machine, and how such a server fails."""

import json
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

CLIENT_ID, CLIENT_SECRET = "ven-7", "swordfish-0451"
PROGRAM = {"id": "p-1", "objectType": "PROGRAM", "programName": "peaks"}
_HANGS_S = 60.0


def event(id: str, kilowatts: float, *, start: str, duration: str = "PT1H", **more: Any) -> dict[str, Any]:
    """One that limits what is drawn, as a VTN has it."""
    return {
        "id": id,
        "objectType": "EVENT",
        "createdDateTime": "2026-01-31T12:00:00Z",
        "modificationDateTime": "2026-01-31T12:00:00Z",
        "programID": PROGRAM["id"],
        "eventName": f"peak {id}",
        "payloadDescriptors": [{"payloadType": "IMPORT_CAPACITY_LIMIT", "units": "KW"}],
        "intervalPeriod": {"start": start, "duration": duration},
        "intervals": [{"id": 0, "payloads": [{"type": "IMPORT_CAPACITY_LIMIT", "values": [kilowatts]}]}],
    } | more


def in_seconds(seconds: float) -> str:
    """A date from now."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


class StandInVtn:
    """A context manager. events, programs: what it has, to be changed at any time. fault: "hang", "garbage", "error",
    or "" for none. lasts_s: a token. asked: the paths of what was asked, with their queries; tokens: those given.

    says_where: it names its own token endpoint, as from OpenADR 3.1 on.
    """

    def __init__(self, *, says_where: bool = True, port: int = 0) -> None:
        self.events: list[dict[str, Any]] = []
        self.programs: list[dict[str, Any]] = [dict(PROGRAM)]
        self.fault = ""
        self.lasts_s = 3600.0
        self.asked: list[str] = []
        self.tokens: list[str] = []
        self._valid: dict[str, float] = {}
        self._says_where = says_where
        self._released = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._get(self)

            def do_POST(self) -> None:
                outer._token(self)

            def log_message(self, *args: object) -> None:
                """Not to the terminal."""

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_port
        self.url = f"http://127.0.0.1:{self.port}/openadr3/3.1.0"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> "StandInVtn":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._released.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def revoke(self) -> None:
        """All tokens that were given."""
        self._valid.clear()

    def _get(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(handler.path)
        if self._fails(handler):
            return
        path, query = urlsplit(handler.path).path, parse_qs(urlsplit(handler.path).query)
        what = path.rpartition("/")[2]
        if what == "server":
            found = {"tokenURL": f"{self.url}/auth/token"} if self._says_where else None
            _answer(handler, 404 if found is None else 200, found)
        elif not self._is_known(handler):
            _answer(handler, 401, {"status": 401})
        elif what == "programs":
            _answer(handler, 200, _page(self.programs, query))
        elif what == "events":
            wanted = query.get("programID", [])
            found_events = [one for one in self.events if not wanted or one.get("programID") in wanted]
            _answer(handler, 200, _page(found_events, query))
        else:
            _answer(handler, 404, {"status": 404})

    def _token(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
        self.asked.append(handler.path)
        if self._fails(handler):
            return
        form = {name: values[0] for name, values in parse_qs(body).items()}
        good = {"grant_type": "client_credentials", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
        if form != good:
            _answer(handler, 400, {"error": "invalid_client"})
            return
        token = f"token-{len(self.tokens)}-shark"
        self.tokens.append(token)
        self._valid[token] = time.monotonic() + self.lasts_s
        _answer(handler, 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lasts_s})

    def _is_known(self, handler: BaseHTTPRequestHandler) -> bool:
        token = (handler.headers["Authorization"] or "").removeprefix("Bearer ")
        return time.monotonic() < self._valid.get(token, 0.0)

    def _fails(self, handler: BaseHTTPRequestHandler) -> bool:
        if self.fault == "hang":
            self._released.wait(_HANGS_S)
        elif self.fault == "garbage":
            with suppress(OSError):
                handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n[{\x1b[31m")
        elif self.fault == "error":
            _answer(handler, 503, {"status": 503})
        return bool(self.fault)


def _page(found: list[dict[str, Any]], query: dict[str, list[str]]) -> list[dict[str, Any]]:
    skip, limit = int(query.get("skip", ["0"])[0]), int(query.get("limit", ["50"])[0])
    return found[skip : skip + min(limit, 50)]


def _answer(handler: BaseHTTPRequestHandler, status: int, body: object) -> None:
    data = json.dumps(body).encode()
    with suppress(OSError):  # somebody who has not waited
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
