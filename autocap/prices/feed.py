"""What sources say, as a session hears it: a look takes no longer than there is something to read."""

import sys

from autocap.config.sources import Sources
from autocap.job.processes import package_root
from autocap.job.supervised import Supervised
from autocap.prices.quote import CARBON, PRICE
from autocap.prices.watching import Said
from autocap.runlog.codec import decode
from autocap.runlog.json_text import parse

_MOST_BYTES = 4 << 20  # of a line
_END_S = 0.5
_LOOKS = 8  # at the pipe, at most, each of what it holds
_READER = "import sys; sys.path.insert(0, sys.argv.pop(1)); from autocap.prices.reader import main; main(sys.argv[1:])"


class Feed:
    """Reads sources in a process beside us, which ends with us. Raises OSError where none can be started.

    sources: as given, by kind.
    """

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources
        words = [word for pair in self.sources.items() for word in pair]
        self._child = Supervised((sys.executable, "-I", "-c", _READER, package_root(), *words), grace_s=_END_S)
        self._rest = b""
        self._over = False

    def news(self) -> list[Said]:
        """What has been said since the last time."""
        if self._over:
            return []
        ended, found = self._child.poll() is not None, list[Said]()
        self._child.errors()  # so that nobody waits for room in a pipe
        for _ in range(_LOOKS):
            piece = self._child.output()
            if not piece:
                break
            *lines, self._rest = (self._rest + piece).split(b"\n")
            found += [decode(Said, parse(line, _MOST_BYTES)) for line in lines]
        self._rest = self._rest[-_MOST_BYTES:]
        if ended and not found:
            self._over = True
            found += [Said(kind=kind, trouble="the process that reads prices has ended") for kind in self.sources]
        return found

    def close(self) -> None:
        """End it with all that it started."""
        self._child.close()


def by_kind(sources: Sources) -> dict[str, str]:
    """Those that there are."""
    given = {PRICE: sources.energy_price, CARBON: sources.carbon}
    return {kind: source for kind, source in given.items() if source is not None}
