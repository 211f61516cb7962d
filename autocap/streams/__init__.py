"""What is printed, and the streams that it goes to: whatever it holds, a terminal shows it and obeys nothing of it."""

import io
import sys
from contextlib import suppress
from typing import TextIO

from autocap.printable import printable, printable_json
from autocap.streams.terminal import encoding_of, spelled

PREFIX = "autocap: "


class PrintableStream(io.TextIOBase):
    """Text for another stream, with escapes for what a terminal would obey, other than the ends of lines, and other
    words for what its encoding lacks.

    beneath: the other stream, which takes everything: for what draws on a terminal on purpose. failure: the first error
    of a write, whether or not somebody has dealt with it.
    """

    def __init__(self, beneath: TextIO) -> None:
        self.beneath = beneath
        self.failure: OSError | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]  # an attribute there, which is not to be set
        return self.beneath.encoding

    def write(self, text: str) -> int:
        """Raises what the stream beneath does."""
        try:
            safe = "\n".join(map(printable, text.split("\n")))
            self.beneath.write(spelled(safe, encoding_of(self.beneath)))
        except OSError as error:
            self.failure = self.failure or error
            raise
        return len(text)

    def flush(self) -> None:
        """Raises what the stream beneath does."""
        try:
            self.beneath.flush()
        except OSError as error:
            self.failure = self.failure or error
            raise

    def close(self) -> None:
        """The stream beneath is not ours to close."""

    def fileno(self) -> int:
        return self.beneath.fileno()

    def isatty(self) -> bool:
        return self.beneath.isatty()

    def writable(self) -> bool:
        return True


def beneath(stream: TextIO) -> TextIO:
    """The stream that takes escape sequences, for what draws on a terminal on purpose."""
    return stream.beneath if isinstance(stream, PrintableStream) else stream


def put(*lines: str) -> None:
    """Print on standard output, each on one line whatever it holds. Raises OSError."""
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    sys.stdout.flush()


def put_json(value: object, *, shared: bool = False) -> None:
    """Print a value on standard output as a line of JSON. Raises OSError.

    shared: a job writes there too. It may have left its last line open, which nobody can see, so that a line end comes
    first; where it had ended its line, this is an empty one.
    """
    put(*([""] if shared else []), printable_json(value))


def note(*sentences: str) -> None:
    """Say something on standard error, each sentence on one line; a stream that is gone is no reason to stop."""
    with suppress(OSError, ValueError):
        sys.stderr.write("".join(f"{PREFIX}{printable(sentence)}\n" for sentence in sentences))
        sys.stderr.flush()
