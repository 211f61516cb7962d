"""What counts a job's iterations, as whoever runs the job knows it; a kind of progress of another package is one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from autocap.clock import Clock
from autocap.job.processes import Roots
from autocap.progress import Progress, StepProgress
from autocap.records import SensorInfo, StepReading


class Counting:
    """A context manager that has a job's iterations counted: as `beneath` does in whatever a subclass does not say
    otherwise. Without one nothing is put into the job, and a subclass says at least what `read` does.

    kind: as reports name it. what: it counts, one of them. Entering raises AutocapError where it cannot be set up.
    """

    kind, what = "steps", "step"

    def __init__(self, beneath: "Counting | None" = None) -> None:
        self._beneath = beneath

    def __enter__(self) -> Self:
        if self._beneath is not None:
            self._beneath.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._beneath is not None:
            self._beneath.__exit__(*error)

    @property
    def fault(self) -> str | None:
        """Why counting stopped; `None` while it goes on."""
        return None if self._beneath is None else self._beneath.fault

    @property
    def remarks(self) -> tuple[str, ...]:
        """How iterations are counted, where the user is to know it."""
        return () if self._beneath is None else self._beneath.remarks

    def follow(self, job: Roots | None) -> None:
        """The job is there: this process and its descendants. Raises AutocapError where what was asked for cannot be
        counted in it."""
        if self._beneath is not None:
            self._beneath.follow(job)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The child's environment."""
        return dict(base) if self._beneath is None else self._beneath.environment(base)

    @contextmanager
    def child_stdout(self) -> Iterator[int | None]:
        """The child's standard output while it is started; `None` is ours, inherited."""
        if self._beneath is None:
            yield None
        else:
            with self._beneath.child_stdout() as descriptor:
                yield descriptor

    def read(self, origin_s: float, *, needed: bool = True) -> StepReading | None:
        """The count, its time on a clock whose zero is `origin_s` on the system's monotonic one. needed: whether
        something is measured by it now."""
        return None if self._beneath is None else self._beneath.read(origin_s, needed=needed)

    def drain(self, clock: Clock) -> None:
        """Wait a moment for the child's last output to have gone through, so that ours comes after it."""
        if self._beneath is not None:
            self._beneath.drain(clock)

    def progress(self, sensor: SensorInfo) -> Progress:
        """What turns samples into marks."""
        return StepProgress(self.kind, self.what) if self._beneath is None else self._beneath.progress(sensor)
