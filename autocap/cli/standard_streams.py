"""The standard streams of a command, from its first moment to its last.

One that was closed is as /dev/null, so that nothing that is opened later takes its place. What is printed is safe for a
terminal. Of a session, what is said on standard error waits for nobody, and what goes to standard output is written
when the session is over: a reader that does not read keeps no signal from the job and no limit from being put back.
"""

import io
import os
import sys
from contextlib import suppress
from typing import TextIO, cast

from autocap.reports.live.queued import QueuedStream
from autocap.text import PrintableStream, note

_PATIENCE_S = 1.0  # with a reader of standard error, at the end


class StandardStreams:
    """Ours in place of Python's, inside `with`. out, err: they."""

    def __enter__(self) -> "StandardStreams":
        _open_the_closed()
        self._found = sys.stdin, sys.stdout, sys.stderr
        sys.stdin = sys.stdin or open(os.devnull)
        self.out, self.err = _printable(sys.stdout), _printable(sys.stderr)
        sys.stdout, sys.stderr = cast(TextIO, self.out), cast(TextIO, self.err)
        self._queue: QueuedStream | None = None
        self._patience_s = _PATIENCE_S
        self._held: io.StringIO | None = None
        self._out, self._err = self.out.beneath, self.err.beneath
        return self

    def __exit__(self, *error: object) -> None:
        if self._queue is not None:
            self._queue.end(self._patience_s)
        self.out.beneath, self.err.beneath = self._out, self._err
        sys.stdin, sys.stdout, sys.stderr = self._found
        for stream, fd in ((self.out, 1), (self.err, 2)):
            if stream.failure is not None:
                _silence(stream, fd)

    def wait_for_nobody(self) -> None:
        """A session begins: from here on no reader can hold it up. Before it holds signals back, and before its job."""
        self._held = io.StringIO()
        self.out.beneath = cast(TextIO, self._held)
        with suppress(OSError, RuntimeError):  # no descriptor, as in a test, or no thread to be had
            self._queue = QueuedStream(self._err.fileno(), self._err.encoding)
            self.err.beneath = cast(TextIO, self._queue)

    def write_out(self) -> bool:
        """Write what is left for standard output, now that signals end us; whether all of it was taken.

        Says why not, but for a reader who has gone, as in `autocap report … | head`.
        """
        if self._queue is not None:
            # What was said stands before it; who does not read it now is not waited for again.
            self._patience_s = _PATIENCE_S if self._queue.drain(_PATIENCE_S) else 0.0
        self.out.beneath = self._out
        try:
            if self._held is not None:
                self.out.write(self._held.getvalue())
            self.out.flush()
        except (OSError, ValueError) as error:
            self.out.failure = self.out.failure or OSError(str(error))
        failure = self.out.failure
        if failure is not None and not isinstance(failure, BrokenPipeError):
            note(f"standard output cannot be written: {failure.strerror or failure}; check where it goes")
        return failure is None

    def give_up(self) -> None:
        """Write no more to standard output."""
        self.out.failure = self.out.failure or OSError("given up")


def _open_the_closed() -> None:
    with suppress(OSError):
        while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:  # the lowest number that is free
            os.set_inheritable(opened, True)
        os.close(opened)


def _printable(stream: TextIO | None) -> PrintableStream:
    if stream is None:  # it was closed when Python started
        stream = open(os.devnull, "w")  # noqa: SIM115 - as long as Python's own
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # a dash is no reason to fail in the C locale
    return PrintableStream(stream)


def _silence(stream: PrintableStream, fd: int) -> None:
    """Let Python's last flush succeed, which would change the exit status."""
    with suppress(OSError, ValueError):
        if stream.fileno() == fd:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, fd)
            os.close(nowhere)
