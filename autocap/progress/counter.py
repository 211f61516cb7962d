"""What is put in place to count a job's iterations before the job starts, and the Progress that comes of it."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from autocap.clock import Clock
from autocap.config import CALLS_WITHIN_SECONDS, PERIOD_WITHIN_SECONDS, STEPS_WITHIN_SECONDS
from autocap.job.processes import Roots
from autocap.progress import BestProgress, Progress, SpeedProgress, StepProgress
from autocap.progress.calls.counter import CallCounter
from autocap.progress.calls.target import KIND as CALLS
from autocap.progress.calls.target import CallsUnavailable, CallTarget, call_target
from autocap.progress.counting import Counting
from autocap.progress.regex import Relay
from autocap.progress.steps.map import StepMap
from autocap.progress.witness import CallWitness, HostTime, WitnessedPeriod
from autocap.records import SensorInfo, StepReading

_REGEX = "regex:"
_CALLS_BEFORE_S = 5.0  # that `auto` makes do without steps it begins to count calls
_LOOK_S, _LOOKS = 5.0, 12  # how often it is looked whether a job that runs already counts by itself


class IterationCounter(Counting):
    """The counter of one run: the step hook's map, a relay for the output, the kernel's count of a function's calls, or
    nothing in the child at all.

    kind: as --progress has it. ours: the job is our child; nothing can be put into one that is not. step_map_fd: of the
    map in which a job that asked to be tuned counts its steps. step_map: the map, where it is not to be a new one; ours
    to close. new_calls: makes the counter of calls. now: the system's
    monotonic clock. Entering raises
    AutocapError when the map or the relay cannot be set up, or calls that were asked for cannot be counted.
    """

    def __init__(
        self,
        kind: str,
        *,
        ours: bool = True,
        step_map_fd: int | None = None,
        step_map: StepMap | None = None,
        new_calls: Callable[[CallTarget], CallCounter] = CallCounter,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._kind = kind if ours or kind != "auto" else "outside"
        self._ours, self._given, self._named = ours, step_map_fd, step_map
        self._stack = ExitStack()
        self._map: StepMap | None = None
        self._relay: Relay | None = None
        self._calls: CallCounter | None = None
        self._new_calls, self._now = new_calls, now
        self._witness: CallWitness | None = None  # of a period that was asked for
        self._host = HostTime()
        self._job: Roots | None = None
        self._attached: Roots | None = None  # where it may count by itself
        self._looks, self._look_s = 0, 0.0
        self._first_read_s: float | None = None

    def __enter__(self) -> "IterationCounter":
        given = None if self._given is None else self._stack.enter_context(StepMap.adopt(self._given))
        if self._kind in ("auto", "steps"):
            self._map = given or self._stack.enter_context(self._named or StepMap.create())
        elif self._kind.startswith(_REGEX):
            self._relay = self._stack.enter_context(Relay.start(self._kind.removeprefix(_REGEX)))
        elif self._by_calls:
            self._calls = self._stack.enter_context(self._new_calls(self._target))
            self._calls.rehearse()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def follow(self, job: Roots | None) -> None:
        """The job is there: this process and its descendants. Raises CallsUnavailable where it was not started by us,
        and the calls that were asked for cannot be counted in it."""
        self._job = job
        self._host.follow(job)
        if self._ours:
            return
        if self._kind == "outside":
            self._attached = job
            self._look_for_steps()
        if self._kind == "period":
            self._witness = CallWitness(self._target.what)
        if self._by_calls or self._kind == "period" or (self._kind == "outside" and self._map is None):
            self._watch_calls()
        if self._by_calls and self._calls is not None and self._calls.trouble is not None:
            raise CallsUnavailable(f"{self._calls.trouble}; choose another --progress, or the process that computes")

    @property
    def _by_calls(self) -> bool:
        return self._kind == CALLS or self._kind.startswith(f"{CALLS}:")

    @property
    def _target(self) -> CallTarget:
        return call_target(self._kind if self._by_calls else CALLS)

    def _watch_calls(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            self._calls = self._calls or self._stack.enter_context(self._new_calls(self._target))
            self._calls.watch(job)

    @property
    def fault(self) -> str | None:
        """Why counting stopped, or the kernel counts no calls; `None` while it goes on. A witness that is missing is no
        fault."""
        if self._relay is not None:
            return self._relay.fault
        if self._calls is None or self._calls.trouble is None or self._witness is not None:
            return None
        then = ", so iterations are looked for in the power"
        if self._calls.has_counted:
            return f"calls are counted no more: {self._calls.trouble}{then}" if self._calls.hopeless else None
        if self._kind == "outside" or (self._by_calls and self._calls.hopeless):
            return f"calls are not counted: {self._calls.trouble}{then}"
        return None

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

    @property
    def step_map(self) -> Path | None:
        """The file in which the child's processes count their steps; `None` where there is none that we made."""
        return None if self._map is None or self._given is not None else self._map.path

    @property
    def remarks(self) -> tuple[str, ...]:
        """How calls are counted, where the user is to know it."""
        if self._witness is not None:
            return () if self._witness.remark is None else (self._witness.remark,)
        return () if self._calls is None else self._calls.remarks

    def read(self, origin_s: float, *, needed: bool = True) -> StepReading | None:
        """The count, its time on a clock whose zero is `origin_s` on the system's monotonic one. needed: whether
        something is measured by it now."""
        if self._calls is not None:
            self._calls.need(needed=needed)
        if self._witness is not None:
            self._host.read(self._now() - origin_s)
            self._testify(self._witness, origin_s)
            return None
        if self._by_calls:
            self._watch_calls()
        self._look_for_steps()
        found = None
        if self._relay is not None:
            found = self._relay.read(origin_s)
        elif self._map is not None:
            found = self._map.read(origin_s)
            self._do_without(found is not None)
        if found is None and self._calls is not None:
            found = self._calls.read(origin_s)
        if found is None:
            self._host.read(self._now() - origin_s)
        return found

    def _look_for_steps(self) -> None:
        """A job that calls autocap.step() counts by itself, from its first call on."""
        now_s = self._now()
        if self._attached is None or self._map is not None or self._looks >= _LOOKS or now_s < self._look_s:
            return
        self._looks, self._look_s = self._looks + 1, now_s + _LOOK_S
        found = StepMap.of_job(self._attached)
        self._map = None if found is None else self._stack.enter_context(found)

    def _testify(self, witness: CallWitness, origin_s: float) -> None:
        """Let the witness know of calls, until it has seen enough."""
        if self._calls is not None and witness.remark is None:
            witness.called(self._calls.read(origin_s))
        elif self._calls is not None:
            self._calls.close()
            self._calls = None

    def _do_without(self, has_steps: bool) -> None:
        """Count calls for as long as no step was seen where one is long expected."""
        if self._kind != "auto" or self._given is not None:
            return
        now_s = self._now()
        self._first_read_s = now_s if self._first_read_s is None else self._first_read_s
        if has_steps and self._calls is not None:
            self._calls.close()
        elif not has_steps and now_s - self._first_read_s > STEPS_WITHIN_SECONDS - _CALLS_BEFORE_S:
            self._watch_calls()

    def drain(self, clock: Clock) -> None:
        """Wait a moment for the child's last output to have gone through, so that ours comes after it."""
        if self._relay is not None:
            self._relay.drain(clock)

    def progress(self, sensor: SensorInfo) -> Progress:
        """What turns samples into marks."""
        period = WitnessedPeriod(sensor, self._host)
        match self._kind:
            case "auto" if self._given is not None:
                return BestProgress(StepProgress(), period, STEPS_WITHIN_SECONDS, late=True)
            case "auto":
                rest = BestProgress(self._call_progress(), period, STEPS_WITHIN_SECONDS, late=True)
                return BestProgress(StepProgress(), rest, STEPS_WITHIN_SECONDS, late=True)
            case "outside":
                rest = BestProgress(period, SpeedProgress(), PERIOD_WITHIN_SECONDS, late=True)
                if self._calls is not None and not self._calls.hopeless:
                    within_s = CALLS_WITHIN_SECONDS if self._calls.is_watching else 0.0
                    rest = BestProgress(self._call_progress(), rest, within_s, late=True)
                within_s = 0.0 if self._map is None else STEPS_WITHIN_SECONDS
                return BestProgress(StepProgress(), rest, within_s, late=True)
            case "steps":
                return StepProgress()
            case "period":
                period.witness = self._witness
                return period
            case "speed":
                return SpeedProgress()
        if self._by_calls:  # what was asked for is waited for, unless it turns out to be impossible
            return BestProgress(self._call_progress(), period, math.inf)
        return StepProgress("regex", "matching line of output")

    def _call_progress(self) -> Progress:
        return StepProgress(
            CALLS,
            self._target.what,
            is_over=lambda: self._calls is not None and self._calls.hopeless,
            doubt=lambda: None if self._calls is None else self._calls.doubt,
        )
