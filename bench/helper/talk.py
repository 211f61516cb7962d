"""One who talks to a helper in its own words: standard library only, and nothing of autocap's, so that it shares no
mistake with it and starts at once."""

import json
import os
import select
import socket
import time
from contextlib import suppress
from typing import Any  # what JSON holds

_ANSWER_BYTES = 65536


class Lost(Exception):
    """The helper has ended the connection, or has not answered in time."""


class Refused(Exception):
    """The helper did not do what it was asked. error: as it was said."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error.get("text"))
        self.error = error
        self.code = error.get("code")


class Talk:
    """Raises Lost where nobody listens. within_s: for each answer."""

    def __init__(self, path: str, within_s: float = 5.0) -> None:
        self._within_s, self._id, self._held = within_s, 0, b""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect(path)
        except OSError as error:
            self.socket.close()
            raise Lost(str(error)) from error

    def ask(self, op: str, **own: object) -> dict[str, Any]:
        """The answer. Raises Lost, Refused."""
        self._id += 1
        body = {"v": 1, "id": self._id, "op": op, **own}
        with suppress(OSError):  # why it has closed its end may still be there to be read
            self.socket.sendall(json.dumps(body).encode() + b"\n")
        answer = json.loads(self.line())
        if not answer["ok"]:
            raise Refused(answer["error"])
        if answer["id"] != self._id:
            raise Lost(f"it answered {answer['id']} instead of {self._id}")
        return dict(answer)

    def line(self) -> bytes:
        """The next line. Raises Lost."""
        deadline_s = time.monotonic() + self._within_s
        while b"\n" not in self._held:
            ready, _, _ = select.select([self.socket], [], [], max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise Lost(f"no answer within {self._within_s:g} s")
            try:
                data = self.socket.recv(_ANSWER_BYTES)
            except OSError as error:
                raise Lost(str(error)) from error
            if not data:
                raise Lost("it has ended the connection")
            self._held += data
        line, _, self._held = self._held.partition(b"\n")
        return line

    def close(self) -> None:
        self.socket.close()


def lend(path: str, devices: list[str], within_s: float = 10.0) -> Talk:
    """A connection with a lease, as soon as the helper gives one. Raises Lost, Refused."""
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            talk = Talk(path)
            try:
                talk.ask("lend", devices=devices)
                return talk
            except BaseException:
                talk.close()
                raise
        except (Lost, Refused) as error:
            patient = isinstance(error, Lost) or error.code in ("in_use", "too_fast")
            if not patient or time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)


def main() -> None:
    """`python talk.py SOCKET DEVICES CAPS EVERY [heir]`: a lease of these devices, on which one cap (milliwatts) after
    the other is set, over and over, every so many seconds; a word on stdout for each thing done. It beats, as a session
    does, and asks anew where the helper was lost. SIGTERM ends it without a word. heir: a child of it has the
    connection as well."""
    import sys

    path, devices = sys.argv[1], sys.argv[2].split(",")
    caps_w = [int(cap) / 1000 for cap in sys.argv[3].split(",")]
    every_s = float(sys.argv[4])
    done = -1
    while True:
        try:
            talk = lend(path, devices)
            print("lent", flush=True)
            if len(sys.argv) > 5 and os.fork() == 0:  # who keeps the connection open, and says nothing
                time.sleep(60)
                os._exit(0)
            while True:
                done += 1
                cap_w = caps_w[done % len(caps_w)]
                try:
                    talk.ask("set", watts=[cap_w] * len(devices))
                    print(f"set {cap_w:g}", flush=True)
                except Refused as error:
                    print(f"refused {error.code}", flush=True)
                    if error.code in ("no_lease", "not_allowed"):
                        raise
                deadline_s = time.monotonic() + every_s
                while time.monotonic() < deadline_s:
                    time.sleep(min(0.4, every_s))
                    if talk.ask("beat")["put_back"]:
                        print("put back", flush=True)
        except (Lost, Refused) as error:
            print(f"lost: {error}", flush=True)
            time.sleep(0.02)
            if os.getppid() == 1:
                return


if __name__ == "__main__":
    main()
