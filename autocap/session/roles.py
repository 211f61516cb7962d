"""Who takes part in the loop that tunes a job, and who logs a run to experiment trackers: what is needed of each, as
protocols."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

from autocap.controller.context import Action
from autocap.controller.known_curve import KnownCurve
from autocap.events import Event, State
from autocap.events.quote import Quote
from autocap.job import registry
from autocap.limits.guard import LimitSetter
from autocap.records import GpuInfo, Sample
from autocap.reports.live.terminal import Reporter

Among = Callable[[Sequence[float]], tuple[float, ...]]  # what becomes of caps, watts


class Job(Protocol):
    """What is being tuned."""

    def poll(self) -> int | None:
        """Its exit status; `None` while it runs."""


class Decider(Protocol):
    """Decides: `autocap.controller.Controller`, or whatever else holds caps while a job runs.

    settings: the limits that should hold now, watts, one per device. ended_because: why it decides nothing more.
    max_slowdown: that is allowed, as a share. curve: what is known of the job, `None` while that is nothing.
    """

    @property
    def settings(self) -> tuple[float, ...]: ...

    @property
    def ended_because(self) -> str | None: ...

    @property
    def state(self) -> State:
        return State.HOLDING

    @property
    def max_slowdown(self) -> float | None:
        return None

    @property
    def curve(self) -> KnownCurve | None:
        return None

    def feed(self, sample: Sample) -> list[Action]: ...

    def interrupted(self, t_s: float) -> list[Action]:
        """The limits were put back for a while."""

    def retune(self, t_s: float) -> list[Action]:
        """Somebody asks for it."""
        return []

    def grant(self, t_s: float, ceiling_w: float | None) -> list[Action]:
        """From now on no device may hold more than so many watts, `None` for no such ceiling."""
        return []

    def quote(self, t_s: float, kind: str, quote: Quote | None) -> list[Action]:
        """From now on so much is known of what energy costs or emits, "price" or "carbon"; `None` for nothing."""
        return []

    def stepped(self, t_s: float, on_steps: Among, why: str) -> list[Action] | None:
        """The devices take limits in steps. why: in a sentence. `None` where no other caps will do."""
        return None

    def withhold(self, t_s: float) -> list[Action] | None:
        """No limit may be set for a while, and those found on arrival hold. `None` where that is not waited for."""
        return None

    def lent_again(self, t_s: float) -> list[Action]:
        """Limits may be set again."""
        return []

    def stop(self, t_s: float, why: str) -> list[Action]:
        """Caps are set no more; the job goes on."""
        return []

    def close(self, t_s: float) -> list[Action]:
        """The job has ended."""
        return []


class Budget(Protocol):
    """Lends a session its devices. ceiling_w: the highest cap for now, watts; heard at beats."""

    ceiling_w: float | None

    def publish(self, curve: KnownCurve, *, searching: bool, max_slowdown: float | None) -> None:
        """Let the manager know what is known of the job, where that has changed. searching: its own cap is still
        searched for. max_slowdown: its bound, as a share. Raises GuardError."""


class Sampler(Protocol):
    """Reads the devices of a job: those of this machine, or what others have read on several."""

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """The devices, in the order of the readings."""

    def samples(self) -> Iterable[Sample]:
        """What there is since the last time, oldest first, taken one by one: between two of them caps may be set.

        Raises DeviceError when a device is lost.
        """

    def notes(self) -> tuple[str, ...]:
        """Sentences for the run log on what the user should know of what is read; each is returned once."""


class Sink(Protocol):
    """Takes what happens: the run directory, the terminal."""

    def event(self, event: Event) -> None: ...

    def sample(self, sample: Sample) -> None: ...

    def reason(self, error: Exception) -> str:
        """What a warning says of an error; the traceback of an internal fault is kept."""


class Order(Enum):
    """What a signal asks of the loop, once it has been passed on."""

    NOTHING = auto()
    STOP_TUNING = auto()  # the caps were put back
    RETUNE = auto()
    RESUME = auto()  # the caps were put back for a while: set them again


class Inbox(Protocol):
    """Deals with signals; may end the job when the user has lost patience.

    setter: what puts the caps back before a signal that asks for an end is passed on, `None` while nothing is set.
    """

    setter: LimitSetter | None

    def receive(self, signum: int, t_s: float) -> Order: ...

    def due(self, t_s: float) -> Order:
        """Called every round, for what was to happen at a certain time; what that asks of the loop."""


class NoInbox:
    """For clocks that bring no signals."""

    setter: LimitSetter | None = None

    def receive(self, signum: int, t_s: float) -> Order:
        return Order.NOTHING

    def due(self, t_s: float) -> Order:
        return Order.NOTHING


class Follower(Protocol):
    """Follows a run from its job's start to its end, beside the tuning, and may ask that its job is ended.

    reporter: sees all that is recorded. ended_because: why it asked for the end, `None` while it has not.
    """

    @property
    def reporter(self) -> Reporter: ...

    @property
    def ended_because(self) -> str | None: ...

    def begin(self, sink: Sink, t_s: float, run_dir: Path) -> None:
        """The job was started just now."""

    def wants_end(self, t_s: float) -> bool:
        """Asked every round; true once, where the job is to be ended as a signal would."""

    def finish(self, t_s: float, exit_status: int, *, signalled: bool) -> None:
        """The job ended at `t_s`, and its output has gone through.

        signalled: a signal that was sent to us was passed on to it and asked for the end.
        """


class OpenRun(Protocol):
    """A run that the training script itself has open in a tracker, and that is logged to from a thread of it."""

    tracker: str

    def start(self) -> None: ...

    def end(self) -> None: ...


class Trackers(Protocol):
    """PATIENCE_S: with all of them together, at the end of a run."""

    PATIENCE_S: float

    def require(self, names: Iterable[str]) -> None:
        """Raises TrackerUnavailable where one of them lacks something here."""

    def start(self, name: str, run_dir: Path) -> Reporter:
        """A process that logs a run to one of them. Raises TrackerUnavailable where it cannot be started."""

    def join(self, names: Iterable[str], run_dir: Path) -> Sequence[OpenRun]:
        """Those that have a run open in this very process."""

    def await_end(self, started: Sequence[Reporter]) -> Iterable[str]:
        """Wait until all have logged the end of a run, for a bounded time; sentences on what went wrong."""


def trackers(names: Sequence[str]) -> Trackers | None:
    """Who logs to these, all of which can be used; `None` for no names. Raises TrackerUnavailable and
    UsageError."""
    if not names:
        return None
    found: Trackers = registry.of_plugin("logs", "trackers", f"--log-to {names[0]}")
    found.require(names)
    return found
