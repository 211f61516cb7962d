"""What is put in place to count a job's iterations before the job starts, and the Progress that comes of it."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from autocap.clock import Clock
from autocap.config import PERIOD_WITHIN_SECONDS, STEPS_WITHIN_SECONDS
from autocap.progress import BestProgress, Progress, SpeedProgress, StepProgress
from autocap.progress.period.progress import PeriodProgress
from autocap.progress.regex import Relay
from autocap.progress.steps.map import StepMap
from autocap.records import SensorInfo, StepReading

_REGEX = "regex:"


class IterationCounter:
    """The counter of one run: the step hook's map, a relay for the output, or nothing in the child at all.

    kind: as --progress has it. ours: the job is our child; nothing can be put into one that is not. step_map_fd: of the
    map in which a job that asked to be tuned counts its steps. Entering raises AutocapError when the map or the relay
    cannot be set up.
    """

    def __init__(self, kind: str, *, ours: bool = True, step_map_fd: int | None = None) -> None:
        self._kind = kind if ours or kind != "auto" else "outside"
        self._given = step_map_fd
        self._stack = ExitStack()
        self._map: StepMap | None = None
        self._relay: Relay | None = None

    def __enter__(self) -> "IterationCounter":
        given = None if self._given is None else self._stack.enter_context(StepMap.adopt(self._given))
        if self._kind in ("auto", "steps"):
            self._map = given or self._stack.enter_context(StepMap.create())
        elif self._kind.startswith(_REGEX):
            self._relay = self._stack.enter_context(Relay.start(self._kind.removeprefix(_REGEX)))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def fault(self) -> str | None:
        """Why counting stopped; `None` while it goes on."""
        return None if self._relay is None else self._relay.fault

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The child's environment."""
        return dict(base) if self._map is None else self._map.environment(base)

    @contextmanager
    def child_stdout(self) -> Iterator[int | None]:
        """The child's standard output while it is started; `None` is ours, inherited."""
        if self._relay is None:
            yield None
        else:
            with self._relay.child_stdout() as descriptor:
                yield descriptor

    def read(self, origin_s: float) -> StepReading | None:
        """The count, its time on a clock whose zero is `origin_s` on the system's monotonic one."""
        if self._map is not None:
            return self._map.read(origin_s)
        return None if self._relay is None else self._relay.read(origin_s)

    def drain(self, clock: Clock) -> None:
        """Wait a moment for the child's last output to have gone through, so that ours comes after it."""
        if self._relay is not None:
            self._relay.drain(clock)

    def progress(self, sensor: SensorInfo) -> Progress:
        """What turns samples into marks."""
        match self._kind:
            case "auto":
                return BestProgress(StepProgress(), PeriodProgress(sensor), STEPS_WITHIN_SECONDS, late=True)
            case "outside":
                return BestProgress(PeriodProgress(sensor), SpeedProgress(), PERIOD_WITHIN_SECONDS)
            case "steps":
                return StepProgress()
            case "period":
                return PeriodProgress(sensor)
            case "speed":
                return SpeedProgress()
        return StepProgress("regex", "matching line of output")
