"""Cuts a stream of bytes into lines. It is sent to Ray's workers by value, so it imports the standard library alone."""

import re

_ANY_END = re.compile(rb"[\r\n]+")


class Lines:
    """Lines of a stream that arrives in pieces.

    most_bytes: of a line, without its end. Of a longer one that many bytes and one more are kept, which shows it, and
    what follows up to its end is left out. returns: \\r ends a line too, as in progress bars; an empty line is then no
    line, or lies between two pieces of \\r\\n.
    """

    def __init__(self, most_bytes: int, *, returns: bool = False) -> None:
        self._kept, self._begun = most_bytes + 1, bytearray()
        self._returns = returns

    def feed(self, data: bytes) -> list[bytes]:
        """Those that end in the next piece, without their ends."""
        first, *more = _ANY_END.split(data) if self._returns else data.split(b"\n")
        self._begun += first[: self._kept - len(self._begun)]
        if not more:
            return []
        *whole, rest = more
        lines = [bytes(self._begun), *(line[: self._kept] for line in whole)]
        self._begun[:] = rest[: self._kept]
        return lines

    @property
    def is_too_long(self) -> bool:
        """Whether that holds of the line that has begun, whose end has not come."""
        return len(self._begun) == self._kept

    @property
    def held(self) -> int:
        """Bytes of the line that has begun."""
        return len(self._begun)

    def end(self) -> bytes:
        """What there is of the line that has begun, as at the end of the stream."""
        line = bytes(self._begun)
        self._begun.clear()
        return line
