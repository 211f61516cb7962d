"""A stand-in for zeusd that answers as its protocol is described: HTTP over a socket, parameters in the query alone."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

_SET = "/gpu/set_power_limit"


@dataclass
class ZeusdStand:
    """pci: its GPUs' addresses by its own numbers. set_mw: what setting a limit does. token: asked for, where there is
    one. errors: by GPU, instead of setting it. mute: it ends the connection instead of answering a set. asked: every
    request so far, with the names of its parameters."""

    pci: dict[int, str]
    set_mw: Callable[[int, int], object]
    groups: tuple[str, ...] = ("gpu-control", "gpu-read", "cpu-read")
    token: str | None = None
    errors: dict[int, str] = field(default_factory=dict)
    mute: bool = False
    discovered: object = None
    address: str = ""
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def answer(self, method: str, path: str, given: list[tuple[str, str]], bearer: str | None) -> tuple[int, object]:
        """A status, and what is answered; nothing for `None`."""
        parameters = dict(given)
        self.asked.append((method, path, parameters))
        if (method, path) == ("GET", "/discover"):
            gpus = [{"id": id, "name": "GPU", "pci_address": at} for id, at in self.pci.items()]
            found = {"gpus": gpus, "cpus": [], "enabled_api_groups": list(self.groups)}
            return 200, self.discovered or {**found, "auth_required": self.token is not None}
        if (method, path) != ("POST", _SET) or "gpu-control" not in self.groups:
            return 404, "no such group"
        if self.token is not None and bearer != f"Bearer {self.token}":
            return (401, "no token") if bearer is None else (403, "not yours")
        if set(parameters) != {"gpu_ids", "power_limit_mw", "block"} or len(given) != len(parameters):
            return 400, "unknown parameter"
        assert parameters["block"] == "true"
        errors = {}
        for id in map(int, parameters["gpu_ids"].split(",")):
            if id in self.errors:
                errors[str(id)] = self.errors[id]
            else:
                self.set_mw(id, int(parameters["power_limit_mw"]))
        return (500, {"errors": errors}) if errors else (200, None)


@contextmanager
def serving(stand: ZeusdStand, path: Path | None = None) -> Iterator[ZeusdStand]:
    """Serve at a Unix socket, or at a port of this machine. Its address is in it from then on."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            url = urlsplit(self.path)
            if stand.mute and url.path == _SET:
                self.close_connection = True
                return
            given = parse_qsl(url.query, strict_parsing=bool(url.query))
            status, body = stand.answer(self.command, url.path, given, self.headers["Authorization"])
            data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if data:
                self.wfile.write(data)

        def address_string(self) -> str:
            return "client"

        def log_message(self, format: str, *args: object) -> None:
            return

    made = socketserver.ThreadingTCPServer if path is None else socketserver.ThreadingUnixStreamServer
    server = made(("127.0.0.1", 0) if path is None else str(path), Handler)  # type: ignore[arg-type]
    stand.address = f"127.0.0.1:{server.server_address[1]}" if path is None else str(path)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield stand
    finally:
        server.shutdown()
        server.server_close()
