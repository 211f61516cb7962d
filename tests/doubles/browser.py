"""A headless Chromium, driven over a pipe by the DevTools protocol: what a page does, and what it looks like."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PATIENCE_S = 30


def found() -> str | None:
    """The browser of this machine, if it has one."""
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


class Browser:
    """One page. events: all that the browser reported since the page was opened, by method and parameters."""

    def __init__(self, to: int, fro: int) -> None:
        self._to, self._fro, self._rest = to, fro, b""
        self._number = 0
        self._session: str | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, *, width: int, dark: bool = False) -> None:
        """Show a file at that width, CSS pixels, until it is loaded."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self._call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in dict(self.events):
            self._next()
        self._call("Runtime.evaluate", expression="new Promise(requestAnimationFrame)", awaitPromise=True)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return self._call("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]

    def shoot(self, clip: dict[str, float] | None = None) -> bytes:
        """The whole page, or a part of it, as a PNG."""
        more = {} if clip is None else {"clip": {**clip, "scale": 1}}
        data = self._call("Page.captureScreenshot", captureBeyondViewport=True, **more)["data"]
        return base64.b64decode(data)

    def close(self) -> None:
        os.close(self._to)
        os.close(self._fro)

    def _call(self, method: str, **params: object) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        assert os.write(self._to, data) == len(data)
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._fro], [], [], _PATIENCE_S)
            assert ready, f"the browser said nothing for {_PATIENCE_S} s"
            data = os.read(self._fro, 1 << 16)
            assert data, "the browser has gone"
            self._rest += data
        whole, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(whole)
        if "method" in message:
            self.events.append((message["method"], message["params"]))
        return message


@contextmanager
def browser(path: str, profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, ended on the way out."""
    into, to = os.pipe()
    fro, out = os.pipe()

    def as_three_and_four() -> None:  # where Chromium looks for the pipe
        first, second = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (into, out))
        os.dup2(first, 3)
        os.dup2(second, 4)

    options = ["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--hide-scrollbars", "--no-first-run", f"--user-data-dir={profile}"]  # fmt: skip
    process = subprocess.Popen(
        [path, *options, "about:blank"],
        close_fds=False,
        preexec_fn=as_three_and_four,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(into)
    os.close(out)
    try:
        shown = Browser(to, fro)
        yield shown
        shown.close()
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
