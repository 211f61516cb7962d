"""Where the values of a target come from: the file that `autocap.report` writes to, and, for a pattern, a relay process
that reads the job's output on its way."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Protocol, Self

from autocap.clock import RunClock
from autocap.job.processes import ProcessId
from autocap.progress import Progress
from autocap.progress.regex import Relay
from autocap.progress.values import ReportedValue, ValueFile
from autocap.records import SensorInfo, StepReading
from autocap.session.place import Counting, Place

_STDOUT = 1


class Values(Protocol):
    """Values that the job has reported. fault: why there are no more, `None` while all is well."""

    @property
    def fault(self) -> str | None: ...

    def read(self) -> list[ReportedValue]:
        """Since the last call, oldest first, on the run's clock."""


class TargetSource:
    """A context manager. pattern: what finds a value in the output, "" where the job reports it by itself."""

    def __init__(self, pattern: str, clock: RunClock) -> None:
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


class TargetCounting:
    """Counts iterations as another does, and has the target's values read beside it."""

    def __init__(self, counting: Counting, source: TargetSource) -> None:
        self._counting, self._source = counting, source

    def __enter__(self) -> Self:
        self._counting.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._counting.__exit__(*error)

    @property
    def fault(self) -> str | None:
        """As Counting has it."""
        return self._counting.fault

    @property
    def remarks(self) -> tuple[str, ...]:
        """As Counting has it."""
        return self._counting.remarks

    def follow(self, job: ProcessId | None) -> None:
        """As Counting has it."""
        self._counting.follow(job)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """As Counting has it."""
        return self._source.environment(self._counting.environment(base))

    @contextmanager
    def child_stdout(self) -> Iterator[int | None]:
        """As Counting has it."""
        with self._counting.child_stdout() as beneath, self._source.child_stdout(beneath) as descriptor:
            yield descriptor

    def drain(self, clock: RunClock) -> None:
        """As Counting has it."""
        self._source.drain()
        self._counting.drain(clock)

    def read(self, origin_s: float, *, needed: bool = True) -> StepReading | None:
        """As Counting has it."""
        return self._counting.read(origin_s, needed=needed)

    def progress(self, sensor: SensorInfo) -> Progress:
        """As Counting has it."""
        return self._counting.progress(sensor)


class TargetPlace(Place):
    """This machine, with the target's values read."""

    def __init__(self, source: TargetSource) -> None:
        super().__init__()
        self._source = source

    def counting(self, kind: str, *, ours: bool, step_map_fd: int | None) -> Counting:
        """As Place has it."""
        return TargetCounting(super().counting(kind, ours=ours, step_map_fd=step_map_fd), self._source)
