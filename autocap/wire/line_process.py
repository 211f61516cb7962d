"""A process of ours beside us that prints lines: `write_whole` is its end, and `LineProcess` that of whoever started
it, where a look takes no longer than there is something to read."""

import os
import sys
from collections.abc import Sequence

from autocap.job.processes import import_path, package_root
from autocap.job.supervised import Supervised
from autocap.wire.lines import Lines

MOST_BYTES = 4 << 20  # of a line
_END_S = 0.5
_LOOKS = 8  # at the pipe, at most, each of what it holds
_RUN = "import sys; from importlib import import_module; sys.path.insert(0, sys.argv.pop(1)); "
_RUN += (
    "sys.path += [entry for entry in sys.argv.pop(1).split(':') if entry not in sys.path]; "  # other packages' parts
)
_RUN += "import_module(sys.argv.pop(1)).main(sys.argv[1:])"


class LineProcess:
    """Runs the `main` of a module, which is given words, until it is closed; it ends with us. Raises OSError where no
    process can be started."""

    def __init__(self, module: str, words: Sequence[str]) -> None:
        argv = (sys.executable, "-I", "-c", _RUN, package_root(), ":".join(import_path()), module, *words)
        self._child = Supervised(argv, grace_s=_END_S)
        self._lines = Lines(MOST_BYTES)
        self.ended = False

    def take(self) -> list[bytes]:
        """Those that it has printed since the last time; then, perhaps, `ended`."""
        self.ended, found = self._child.poll() is not None, list[bytes]()
        self._child.errors()  # so that nobody waits for room in a pipe
        for _ in range(_LOOKS):
            piece = self._child.output()
            if not piece:
                break
            found += self._lines.feed(piece)
        return found

    def close(self) -> None:
        """End it with all that it started."""
        self._child.close()


def write_whole(fd: int, data: bytes) -> None:
    """Write all of it, whatever the reader takes at once. Raises OSError."""
    while data:
        data = data[os.write(fd, data) :]
