"""The process that asks a VTN, so that nothing that a server or a name service does delays the manager of a budget.

It is told whom to ask as JSON, and prints a line of JSON whenever there is something to say, and an empty one at least
once a second while it is not waiting for an answer.
"""

import socket
import sys
import time
from collections.abc import Sequence

from autocap.plugins.fleet.openadr.credentials import find_credentials
from autocap.plugins.fleet.openadr.source import VtnSource
from autocap.plugins.fleet.openadr.vtn import Vtn
from autocap.plugins.fleet.openadr.watching import Said, Watched
from autocap.text import printable_json
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import parse
from autocap.wire.line_process import write_whole

_MOST_BYTES = 1 << 16
_LOOK_S = 0.5


def main(words: Sequence[str]) -> None:
    """Until it is ended."""
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
