"""One whole tuned job in this process and in virtual time, with a fault in it.

Everything is the product's own, down to the emulated library under pynvml: device, tuning, runner, guardian, journal,
recorder. Only the watchdog is missing, which would be a process that lives in another time: the faults that need one
are injected into real processes.
"""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType

from autocap.clock import VirtualClock
from autocap.config import RunConfig, TuneConfig
from autocap.devices.base import DeviceSource, Tunable
from autocap.devices.nvml.device import NvmlDevice
from autocap.devices.nvml.library import Library, open_library
from autocap.errors import AutocapError
from autocap.events import Decided, Event
from autocap.job.processes import ProcessId, Roots, own_identity
from autocap.limits import UNSETTLED, Guardian, settle
from autocap.limits.asking import Waiting
from autocap.limits.heartbeat import Pulse
from autocap.limits.journal import Entry
from autocap.metrics import Metric
from autocap.progress.counting import Counting
from autocap.records import StepReading
from autocap.reports.live.terminal import Reporter
from autocap.runlog.directory import RunDirectory
from autocap.session.recorder import Recorder
from autocap.session.roles import NoInbox
from autocap.session.tuning import SearchPlan, Tuning
from autocap.strategies import registry
from autocap.testing.nvml import Fault, Machine, MemoryBoard, emulated, machine, times
from autocap.testing.nvml.board import requested, requested_mw
from autocap.testing.nvml.library import EmulatedLibrary
from bench.faults.outcome import difference
from bench.simulation.clock import EventClock

ARRIVALS_MW = (287_123, 291_007)
_VIRTUAL_LIMIT_S = 100_000.0


class Hang(BaseException):
    """Not an Exception: nothing that catches those may keep it from ending the injection."""


class Script(EventClock):
    """A virtual clock that is not waited on for ever."""

    def step(self, seconds: float) -> None:
        """Jump, as when nobody let this process run for so long."""
        VirtualClock.wait_until(self, self.now() + seconds)

    def wait_until(self, t_s: float) -> int | None:
        if t_s > _VIRTUAL_LIMIT_S:
            raise Hang(f"still waiting at {t_s:.0f} s")
        return super().wait_until(t_s)


@dataclass
class Stage:
    """Where a fault is injected.

    expected_mw: the limits that should stand there in the end. wall_step_s: by how much our wall clock was set. syncs:
    how many times the journal's disk takes something, `None` for always. synced: how many times it has. late: which
    limits were not back when they should have been.
    """

    board: MemoryBoard
    clock: Script
    library: EmulatedLibrary
    state_dir: Path
    expected_mw: list[int]
    wall_step_s: float = 0.0
    syncs: int | None = None
    synced: int = 0
    late: str | None = None
    held_up_s: float = 0.0
    _turned_s: float | None = None

    def begin(self) -> None:
        """The devices are open: what it took until then was no turn."""
        self._turned_s, self.held_up_s = None, 0.0

    def turn(self) -> None:
        """The loop looks whether the job lives, as once a turn."""
        now_s = self.clock.now()
        if self._turned_s is not None:
            self.held_up_s = max(self.held_up_s, now_s - self._turned_s)
        self._turned_s = now_s

    def card(self, gpu: int, **changes: object) -> None:
        """Let a card be another from now on."""
        made = self.board.read().machine
        card = replace(made.cards[gpu], **changes)  # type: ignore[arg-type]  # checked by the dataclass, at run time
        self.board.update(lambda state: replace(state, machine=made.with_card(gpu, card)))

    def fail(self, fault: Fault) -> None:
        """From now on the library fails so."""
        self._fails((fault,))

    def fail_also(self, fault: Fault) -> None:
        """The same, beside how it fails already."""
        self._fails((*self.board.read().machine.faults, fault))

    def answer(self) -> None:
        """From now on the library does not fail."""
        self._fails(())

    def _fails(self, faults: tuple[Fault, ...]) -> None:
        self.board.update(lambda state: replace(state, machine=replace(state.machine, faults=faults)))

    def demand(self, when: str) -> None:
        """The limits should be back by now."""
        wrong = difference(self.expected_mw, self.limits_mw())
        if wrong is not None:
            self.late = f"{wrong}, {when}"

    def limits_mw(self) -> list[int]:
        state = self.board.read()
        return [requested_mw(state, gpu, self.clock.now()) for gpu in range(len(state.machine.cards))]

    def heal(self, well: Machine) -> None:
        """The fault is over."""
        self.board.update(lambda state: replace(state, machine=well))
        self.syncs = None

    def sync(self, fd: int) -> None:
        """In place of fsync: on a full disk."""
        if self.syncs is not None and self.synced >= self.syncs:
            raise OSError(28, "No space left on device")
        self.synced += 1

    def write_as_other(self, gpu: int, limit_mw: int) -> None:
        """Another tool sets a limit, which is to stay."""
        self.board.update(lambda state: requested(state, gpu, limit_mw, self.clock.now()))
        self.expected_mw[gpu] = limit_mw


CAPS_W = (150.0, 185.0, 215.0, 250.0)
_ITERATIONS = 420
_REAL_LIMIT_S = 60.0  # of one injection; it takes about one
_IN_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a job went. status: `None` where tuning raised, which is in `raised`. said: warnings, and why it ended.
    kept_w: the cap that was kept last, `None` where none was. held_up_s: the longest turn of
    the loop."""

    status: int | None
    ended: bool
    raised: str | None
    hung: str | None
    said: tuple[str, ...]
    calls: int
    sets: tuple[tuple[float, int, int], ...]
    synced: int
    end_s: float
    limits_mw: tuple[int, ...]
    expected_mw: tuple[int, ...]
    restored_later: bool
    left_behind: tuple[str, ...]
    late: str | None
    kept_w: float | None
    events: tuple[Event, ...]
    held_up_s: float


def usual() -> Machine:
    """Two cards with limits of their own, and a job of some seconds on both."""
    made = machine("tesla-v100/alexnet", gpus=2, arrivals_mw=ARRIVALS_MW)
    return replace(made, sensor="v100", iterations=_ITERATIONS, start_s=0.0, job_pid=os.getpid())


QUICK = TuneConfig(metric=Metric(name="energy"), target_stderr=0.3, trial_s=4.0, caps_w=CAPS_W)


def play(
    made: Machine,
    inject: Callable[[Stage], None],
    refusals: Sequence[AutocapError] = (),
    *,
    tune: TuneConfig = QUICK,
    strategy: str = "linear",
    sample_hz: float | None = 20.0,
    within_s: float = _REAL_LIMIT_S,
) -> Report:
    """Tune the job of a machine to its end; where a limit cannot be put back because of a fault, once more after it.

    inject: called before the tuning begins. refusals: with which the devices are refused first.
    """
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as folder:
        config = RunConfig(command=("emulated",), tune=tune, sample_hz=sample_hz)
        with _deadline(within_s):
            return _play(made, inject, Path(folder), refusals, config, strategy)


def _play(
    made: Machine,
    inject: Callable[[Stage], None],
    folder: Path,
    refusals: Sequence[AutocapError],
    config: RunConfig,
    strategy: str,
) -> Report:
    clock, board = Script(), MemoryBoard(made)
    with emulated(board, clock) as library:
        stage = Stage(
            board=board,
            clock=clock,
            library=library,
            state_dir=folder / "state",
            expected_mw=[card.arrival_mw for card in made.cards],
        )
        well = board.read().machine
        inject(stage)
        run = RunDirectory.create(folder / "run", False, datetime.now(UTC))
        recorder = Recorder(run, Reporter())
        tuning = _tuning(stage, recorder, config, strategy)
        status, raised, hung = None, None, None
        try:
            status = tuning.tuned(_Found(stage, refusals))
        except Hang as error:
            hung = str(error)
        except Exception as error:  # noqa: BLE001 - the child's status would be lost
            raised = repr(error)
        run.__exit__(None, None, None)
        texts = [event.text for event in recorder.events if hasattr(event, "text")]
        restored_later = False
        if stage.limits_mw() != stage.expected_mw or _left_behind(stage):
            stage.heal(well)
            settled = settle(stage.state_dir)
            restored_later = bool(settled) and not any(one.outcome in UNSETTLED for one in settled)
        return Report(
            status=status,
            ended=library.physics().ended(),
            raised=raised,
            hung=hung,
            said=(*texts, tuning.ended_because),
            calls=library.calls,
            sets=tuple((one.t_s, one.gpu, one.limit_mw) for one in board.read().changes),
            end_s=clock.now(),
            limits_mw=tuple(stage.limits_mw()),
            expected_mw=tuple(stage.expected_mw),
            synced=stage.synced,
            restored_later=restored_later,
            left_behind=_left_behind(stage),
            late=stage.late,
            kept_w=next((one.setting for one in reversed(recorder.events) if isinstance(one, Decided)), None),
            events=tuple(recorder.events),
            held_up_s=stage.held_up_s,
        )


def _left_behind(stage: Stage) -> tuple[str, ...]:
    return tuple(os.listdir(stage.state_dir)) if stage.state_dir.is_dir() else ()


def _tuning(stage: Stage, recorder: Recorder, config: RunConfig, strategy: str) -> Tuning:
    factory = registry.find(strategy)
    return Tuning(
        config=config,
        clock=stage.clock,
        job=_Job(stage),
        inbox=NoInbox(),
        recorder=recorder,
        plan=SearchPlan(factory=factory, options=registry.option_values(factory, ())),
        counting=_Steps(stage),
        new_guardian=partial(
            Guardian,
            state_dir=stage.state_dir,
            sync=stage.sync,
            start_watch=Unwatched,
            clock=Waiting(now=stage.clock.now, pause=times(stage.clock)["pause"]),
        ),
    )


@contextmanager
def _deadline(within_s: float) -> Iterator[None]:
    """Raise Hang in whatever runs for too long, by the real clock."""

    def ring(signum: int, frame: FrameType | None) -> None:
        raise Hang(f"not done within {within_s:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, within_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class _Job:
    """The emulated job as a process: it ends with its last iteration."""

    stage: Stage
    pid: int = field(default_factory=os.getpid)
    identity: ProcessId | None = field(default_factory=own_identity)

    def poll(self) -> int | None:
        self.stage.turn()
        return 0 if self.stage.library.physics().ended() else None


class _Steps(Counting):
    """The job's own count."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    def read(self, origin_s: float, *, needed: bool = True) -> StepReading | None:
        return self._stage.library.physics().steps()


class _Found(DeviceSource):
    """Opens the GPUs as `NvmlSource` would, for the process that this is."""

    def __init__(self, stage: Stage, refusals: Sequence[AutocapError] = ()) -> None:
        self._stage, self._refusals = stage, list(refusals)
        self._library: Library | None = None

    def find(self, job: Roots, waited_s: float) -> Tunable | None:
        if self._refusals:
            raise self._refusals.pop(0)
        stage, lived = self._stage, times(self._stage.clock)
        wall_s = lived["wall_s"]
        library = open_library(pause=lived["pause"], wall_s=lambda: wall_s() + stage.wall_step_s)
        found = library.inventory()
        if library.unreadable:
            raise AutocapError("; ".join(library.unreadable))
        device = NvmlDevice(library, [gpu.uuid for gpu in found], stage.clock, observe=False)
        stage.begin()
        return device


class Unwatched:
    """No watchdog process, for a guardian in virtual time."""

    pid = 0

    def __init__(self, duty: object, **options: object) -> None:
        """Whatever it is, nobody does it."""

    def beat(self) -> Pulse:
        return Pulse.GUARDING

    def tell(self, entry: Entry) -> bool:
        return True

    def end(self, *, goodbye: bool) -> None: ...

    def kill(self) -> None: ...

    def forget(self) -> None: ...
