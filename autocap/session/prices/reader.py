"""The process that reads sources for a session, so that nothing a file system, command or server does delays its loop.

It is told its sources as words, KIND SOURCE each, and prints a line of JSON whenever there is something to say.
"""

import sys
import threading
import time
from collections.abc import Sequence

from autocap.session.prices.watching import LOOK_S, Watched
from autocap.text import printable_json
from autocap.wire.codec import encode
from autocap.wire.line_process import write_whole


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
