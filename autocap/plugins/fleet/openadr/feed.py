"""What a VTN says, as the manager of a budget hears it: a look takes no longer than there is something to read."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from autocap.plugins.fleet.openadr.source import VtnSource
from autocap.plugins.fleet.openadr.watching import Said
from autocap.text import printable_json
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import parse
from autocap.wire.line_process import MOST_BYTES, LineProcess

SILENT_S = 30.0  # of the process that asks: then another one does


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
