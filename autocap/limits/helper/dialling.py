"""Connects to a socket of ours where many others do at the same time."""

import os
import random
import socket
import time
from pathlib import Path

_PAUSES_S = (0.005, 0.05)  # between tries; by chance, so that those who wait do not all try at once


def dialled(path: Path, within_s: float) -> socket.socket:
    """A connection, whose calls wait for so many seconds at most. A queue that is full is tried again for as long: a
    flood of others fills it, and it is empty again in a moment. Raises OSError."""
    deadline_s = time.monotonic() + within_s
    while True:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(within_s)
            made.connect(os.fspath(path))
        except BlockingIOError:  # EAGAIN: a socket of a path is never connected later
            made.close()
            if time.monotonic() > deadline_s:
                raise
            time.sleep(random.uniform(*_PAUSES_S))
        except BaseException:
            made.close()
            raise
        else:
            return made
