"""What sources say, as a session hears it: a look takes no longer than there is something to read."""

from autocap.config.sources import Sources
from autocap.events.quote import CARBON, PRICE
from autocap.session.prices.watching import Said
from autocap.wire.codec import decode
from autocap.wire.json_lines import parse
from autocap.wire.line_process import MOST_BYTES, LineProcess


class Feed:
    """Reads sources in a process beside us, which ends with us. Raises OSError where none can be started.

    sources: as given, by kind.
    """

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources
        self._reader = LineProcess(
            "autocap.session.prices.watching", [word for pair in self.sources.items() for word in pair]
        )
        self._over = False

    def news(self) -> list[Said]:
        """What has been said since the last time."""
        if self._over:
            return []
        found = [decode(Said, parse(line, MOST_BYTES)) for line in self._reader.take()]
        if self._reader.ended and not found:
            self._over = True
            found += [Said(kind=kind, trouble="the process that reads prices has ended") for kind in self.sources]
        return found

    def close(self) -> None:
        """End it with all that it started."""
        self._reader.close()


def by_kind(sources: Sources) -> dict[str, str]:
    """Those that there are."""
    given = {PRICE: sources.energy_price, CARBON: sources.carbon}
    return {kind: source for kind, source in given.items() if source is not None}
