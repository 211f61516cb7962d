"""Lines of a connection, one after the other."""

from autocap.wire.json_lines import NotALine


class Lines:
    """Cuts what arrives into lines. most_bytes: of one, with its newline."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._held = most_bytes, bytearray()

    def feed(self, data: bytes) -> None:
        self._held += data

    def take(self) -> bytes | None:
        """The next whole line, with its newline; `None` while there is none. Raises BadMessage for one that is too
        long, even before its end has come."""
        end = self._held.find(b"\n", 0, self._most_bytes)
        if end < 0:
            if len(self._held) >= self._most_bytes:
                raise NotALine(f"a line is longer than {self._most_bytes} bytes")
            return None
        line = bytes(self._held[: end + 1])
        del self._held[: end + 1]
        return line

    @property
    def held(self) -> int:
        """Bytes that wait."""
        return len(self._held)
