"""Where the values of a target come from: the file that `autocap.report` writes to, and, for a pattern, a relay process
that reads the job's output on its way."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Protocol, Self

from autocap.clock import Clock, RunClock
from autocap.progress.counting import Counting
from autocap.progress.regex import Relay
from autocap.progress.values import ReportedValue, ValueFile
from autocap.session.place import Place

_STDOUT = 1


class Values(Protocol):
    """Values that the job has reported. fault: why there are no more, `None` while all is well."""

    @property
    def fault(self) -> str | None: ...

    def read(self) -> list[ReportedValue]:
        """Since the last call, oldest first, on the run's clock."""


class TargetPlace(Place):
    """This machine, with the target's values read; a context manager. pattern: what finds a value in the output, ""
    where the job reports it by itself."""

    def __init__(self, pattern: str, clock: RunClock) -> None:
        super().__init__()
        self._pattern, self._clock = pattern, clock
        self._stack = ExitStack()
        self._file: ValueFile | None = None
        self._relay: Relay | None = None

    def __enter__(self) -> Self:
        self._file = self._stack.enter_context(ValueFile.create())
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def fault(self) -> str | None:
        """As Values has it."""
        return None if self._relay is None else self._relay.fault

    def read(self) -> list[ReportedValue]:
        """As Values has it."""
        if self._relay is not None:
            self._relay.read(self._clock.origin_s)  # which reaps its process
        return [] if self._file is None else self._file.read(self._clock.origin_s)

    def counting(self, kind: str, *, ours: bool, step_map_fd: int | None) -> Counting:
        """As Place has it."""
        return TargetCounting(super().counting(kind, ours=ours, step_map_fd=step_map_fd), self)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The child's environment."""
        return dict(base) if self._file is None else self._file.environment(base)

    @contextmanager
    def child_stdout(self, sink: int | None) -> Iterator[int | None]:
        """The child's standard output while it is started. sink: where it would go without us, `None` for our own."""
        if not self._pattern or self._file is None:
            yield sink
            return
        relay = Relay.start(self._pattern, sink=_STDOUT if sink is None else sink, values=self._file.path)
        self._relay = self._stack.enter_context(relay)
        with relay.child_stdout() as descriptor:
            yield descriptor

    def drain(self) -> None:
        """Wait a moment for the child's last output."""
        if self._relay is not None:
            self._relay.drain(self._clock)


class TargetCounting(Counting):
    """Counts iterations as another does, and has the target's values read beside it."""

    def __init__(self, beneath: Counting, source: TargetPlace) -> None:
        super().__init__(beneath)
        self._source = source

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """As Counting has it."""
        return self._source.environment(super().environment(base))

    @contextmanager
    def child_stdout(self) -> Iterator[int | None]:
        """As Counting has it."""
        with super().child_stdout() as beneath, self._source.child_stdout(beneath) as descriptor:
            yield descriptor

    def drain(self, clock: Clock) -> None:
        """As Counting has it."""
        self._source.drain()
        super().drain(clock)
