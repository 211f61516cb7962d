"""Reading gzip files that break off, as a killed run's do: what comes before the break is good."""

import zlib
from collections.abc import Iterator

MAGIC = b"\x1f\x8b"
_WBITS = 16 + zlib.MAX_WBITS  # zlib's way to say: with gzip's header and trailer
_CHUNK = 1 << 12  # bytes taken at once: damage costs what was unpacked together with it


class Unzipped:
    """What a gzip file of one or more members holds, piece by piece, up to where it breaks off.

    cut_short: once all pieces were taken, whether it breaks off.
    """

    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)
        self.cut_short = False

    def __iter__(self) -> Iterator[bytes]:
        rest, member = self._rest, zlib.decompressobj(wbits=_WBITS)
        try:
            while rest:
                yield member.decompress(rest[:_CHUNK])
                rest = rest[min(_CHUNK, len(rest)) - len(member.unused_data) :]
                if member.eof and rest:
                    if bytes(rest[:2]) != MAGIC:
                        break  # padding behind the last member
                    member = zlib.decompressobj(wbits=_WBITS)
        except zlib.error:
            self.cut_short = True
        else:
            self.cut_short = not member.eof
