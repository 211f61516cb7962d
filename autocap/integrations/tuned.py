"""`autocap.tune`: a training script that has itself tuned.

A process of its own does it, as under `autocap attach`: a thread would wait for the interpreter's lock when it has to
beat, and would die with the script before it has put a limit back. The process is no descendant of the script (the
emulated device stops the whole job), and ends with it.

`TunedTraining` is what the callbacks of all frameworks have in common: a tuned block that a training begins and ends.
"""

import argparse
import inspect
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from functools import wraps
from multiprocessing import parent_process
from threading import Event, RLock, Thread, get_ident
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec, TypeVar, Unpack

from autocap.cli.run import checked
from autocap.config import RunConfig
from autocap.config.option import RENAMED, CommandOption, options_of
from autocap.config.values import Percentage
from autocap.errors import AutocapError, ResultUnavailable, UsageError
from autocap.integrations.options import TuneOptions
from autocap.job.attached import AttachedJob
from autocap.job.processes import import_path
from autocap.progress.steps.map import StepMap, are_counted, counted
from autocap.runlog.directory import default_directory
from autocap.session.roles import trackers
from autocap.text import did_you_mean, printable

if TYPE_CHECKING:  # a summary needs what would make the script wait when the block begins
    from autocap.integrations.result import Result


P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger(__name__)
# How torchrun and Lightning, mpirun and srun number the ranks of a machine, and say how many there are.
_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_JOB_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")  # the same of all machines of the job
_COUNTS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE")
# A shell starts it, prints its PID and ends, which makes it an orphan. In a session of its own no ^C reaches it. What
# it prints is why it could not begin.
_DETACHED = '"$@" >/proc/self/fd/{} & echo $!'
_LONGEST_END_S = 10.0  # limits are back within 1 s; the report may take a moment
_LOG_TO = "--log-to"
_LOOK_EVERY_S = 0.02
_LONGEST_REFUSAL = 4096  # bytes


class Tuned:
    """A block of a training script, tuned while it runs; or a decorator, which has each call of a function tuned so.

    directory: the run directory.
    """

    def __init__(self, options: Mapping[str, object], *, first_rank: bool = True) -> None:
        """first_rank: whether this is not known to be a later rank of its machine. Raises UsageError for options that
        are wrong by themselves, TrackerUnavailable where `log_to` names one that is not installed."""
        words = _words(options)
        self._config = config = checked(words)
        self._logs = trackers(config.log_to)
        self.directory = (config.out or default_directory(datetime.now().astimezone())).absolute()  # scripts move about
        self._options = options
        self._result: Result | None = None
        self._first_rank = first_rank
        self._began, self._began_s = datetime.now().astimezone(), 0.0
        self._pid = 0  # that began the block: a fork of it leaves the block too, and ends nothing
        self._why_not: str | None = None  # nothing is tuned
        self._died = False  # the process that tunes, before the block ended
        self._words = [*words, f"--out={self.directory}"]  # the last one counts
        self._stack = ExitStack()
        self._job = 0

    def __enter__(self) -> "Tuned":
        self._began, self._began_s, self._pid = datetime.now().astimezone(), time.monotonic(), os.getpid()
        self._why_not = None
        if not self._first_rank or _is_another_rank(_RANKS if self._config.nodes is None else _JOB_RANKS):
            self._why_not = "another rank has the job tuned"
            return self
        if are_counted():
            self._why_not = "the job is being tuned already"
            log.warning("autocap: this block is not tuned: %s", self._why_not)
            return self
        with ExitStack() as stack:
            try:
                self._job = _job()
                step_map = stack.enter_context(StepMap.create())
                refusal_fd = os.memfd_create("autocap-refusal")
                stack.callback(os.close, refusal_fd)
                words = self._words_without(self._log_here(stack))
                tuner = stack.enter_context(AttachedJob(_start(self._job, step_map.fd, refusal_fd, words)))
                stack.callback(self._end, tuner, refusal_fd)
                stack.enter_context(counted(step_map))
            except (AutocapError, OSError, ValueError, subprocess.SubprocessError) as error:
                self._why_not = printable(str(error))
                log.warning("autocap: the job runs untuned: %s", self._why_not)
                return self
            self._stack = stack.pop_all()
        return self

    @property
    def result(self) -> "Result":
        """What came of the block, or of the last call that has ended. Where nothing was tuned it has no `chosen`, and
        `ended_because` says why.

        Raises:
            ResultUnavailable: Before the end.
        """
        if self._result is None:
            raise ResultUnavailable("the block has not ended, so there is no result yet; read it after the block")
        return self._result

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, each call of which is a tuned block.

        Raises:
            TypeError: For one whose work goes on after its call, such as a coroutine or a generator.
        """
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"{function.__name__} does its work after the call; use `with autocap.tune(…)` within it")

        @wraps(function)
        def tuned(*args: P.args, **kwargs: P.kwargs) -> R:
            block = Tuned(self._options)
            try:
                with block:
                    return function(*args, **kwargs)
            finally:
                self._result, self.directory = block.result, block.directory

        return tuned

    @property
    def is_tuned(self) -> bool:
        """Whether, of a block that has begun, a process was started that tunes it."""
        return self._why_not is None

    def __exit__(self, *error: object) -> None:
        if os.getpid() != self._pid:
            return
        seconds = time.monotonic() - self._began_s
        self._stack.close()
        from autocap.integrations.result import Block, outcome

        block = Block(config=self._config, pid=self._job or self._pid, began=self._began, seconds=seconds)
        self._result, unsaid = outcome(block, self.directory, self._why_not, died=self._died)
        if unsaid is not None and not self._config.quiet:
            log.warning("autocap: nothing was tuned: %s", unsaid)

    def _log_here(self, stack: ExitStack) -> set[str]:
        """Log to the trackers that have a run open in this script, until the stack closes; which they are. The process
        that tunes logs to the others."""
        found = () if self._logs is None else self._logs.join(dict.fromkeys(self._config.log_to), self.directory)
        for one in found:
            one.start()
            stack.callback(one.end)
        return {one.tracker for one in found}

    def _words_without(self, trackers: set[str]) -> list[str]:
        dropped = {f"{_LOG_TO}={name}" for name in trackers}
        return [word for word in self._words if word not in dropped]

    def _end(self, tuner: AttachedJob, refusal_fd: int) -> None:
        """End the process that tunes. refusal_fd: of the file in which it says why it could not begin."""
        self._died = tuner.poll() is not None
        _end(tuner, _LONGEST_END_S + (0.0 if self._logs is None else self._logs.PATIENCE_S))
        self._why_not = os.pread(refusal_fd, _LONGEST_REFUSAL, 0).decode(errors="replace").strip() or None


def _words(options: Mapping[str, object]) -> list[str]:
    """Keywords as words of `attach`'s command line, whose options they are: metric="eds" is --metric=eds. Raises
    UsageError for a keyword that is none of them, or has a value of another kind."""
    known = {option.keyword: option for option in options_of(RunConfig, "attach")}
    words: list[str] = []
    for name, value in options.items():
        if name == "json":
            raise UsageError("autocap.tune has no option json; read `run.result` after `with autocap.tune(…) as run:`")
        if name in RENAMED:
            raise UsageError(f"autocap.tune: {name} is called {RENAMED[name]} now; give that instead")
        if name not in known:
            meant = did_you_mean(name, known)
            raise UsageError(f"autocap.tune has no option {name}{meant}; choose {', '.join(sorted(known))}")
        words += _words_of(known[name], value)
    return words


def _words_of(option: CommandOption, value: object) -> list[str]:
    if option.read is None and value is not None:
        if not isinstance(value, bool):
            raise UsageError(f"{option.keyword} is True or False, not {value!r}")
        return [option.flag] if value is option.const else []
    if value is None or value is False:
        return []
    try:
        if isinstance(option.read, Percentage) and isinstance(value, int | float) and not isinstance(value, bool):
            value = option.read.text_of(value)
        return [f"{option.flag}={text}" for text in option.texts(value)]
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{option.keyword}: {error}") from None


def _is_another_rank(variables: Sequence[str]) -> bool:
    """Whether this is a rank of a job whose first one has it tuned. variables: that hold the rank, on this machine or
    in the whole job."""
    rank = _variable(variables)
    return (rank if rank is not None else _distributed()[0]) != 0


def _job() -> int:
    """The process that all ranks of the job on this machine descend from: our own, or the one that started them."""
    spawned = parent_process() is not None and _distributed()[1] > 1
    return os.getppid() if spawned or (_variable(_COUNTS) or 1) > 1 else os.getpid()


def _variable(names: Sequence[str]) -> int | None:
    """The number that the first of these variables begins with (srun writes `2(x3)`); `None` where none is set."""
    text = next((os.environ[name] for name in names if name in os.environ), "")
    number = re.match(r"\s*(\d+)", text)
    return int(number[1]) if number else None


def _distributed() -> tuple[int, int]:
    """Rank and number of ranks, by torch; 0 of 1 where it does not say."""
    torch = sys.modules.get("torch.distributed")
    if torch is None or not (torch.is_available() and torch.is_initialized()):
        return 0, 1
    return torch.get_rank(), torch.get_world_size()


def _start(job: int, map_fd: int, refusal_fd: int, words: Sequence[str]) -> int:
    """Start the process that tunes, and hand the step map down to it; its PID. refusal_fd: of the file in which it
    says why it cannot begin."""
    tuner = [sys.executable, "-P", "-m", "autocap", "inside", f"--pid={job}", f"--step-map-fd={map_fd}", *words]
    done = subprocess.run(
        ["/bin/sh", "-c", _DETACHED.format(refusal_fd), "sh", *tuner],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(import_path())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=(map_fd, refusal_fd),
        start_new_session=True,
        check=True,
    )
    return int(done.stdout)


def _end(tuner: AttachedJob, longest_s: float) -> None:
    """Have the limits put back and the report written, within so many seconds."""
    if tuner.poll() is None:
        with suppress(ProcessLookupError):
            os.kill(tuner.pid, signal.SIGTERM)
    deadline_s = time.monotonic() + longest_s
    while tuner.poll() is None:
        if time.monotonic() > deadline_s:
            log.warning("autocap: process %d, which tunes, has not ended within %g s", tuner.pid, longest_s)
            return
        time.sleep(_LOOK_EVERY_S)


_LOOKS = 2  # the stack may change under a look, which then misses the call


class CallWatch:
    """Watches the outermost call of a module that is under way on this thread; where there is none, nothing.

    A thread looks for it again and again, and calls `left` when it was returned from, or an exception has ended it. The
    call is kept from being forgotten until then: it must hold nothing large.
    """

    def __init__(self, module: str, left: Callable[[], object], look_every_s: float = 1.0) -> None:
        self._closed = Event()
        call = _outermost(module)
        if call is not None:
            args = call, get_ident(), left, look_every_s
            Thread(target=self._watch, args=args, name="autocap call watch", daemon=True).start()

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()

    def _watch(self, call: FrameType, thread: int, left: Callable[[], object], look_every_s: float) -> None:
        missed = 0
        while not self._closed.wait(look_every_s):
            missed = 0 if _is_under_way(call, thread) else missed + 1
            if missed == _LOOKS:
                left()
                return


def _outermost(module: str) -> FrameType | None:
    frame: FrameType | None = sys._getframe()
    found = None
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            found = frame
        frame = frame.f_back
    return found


def _is_under_way(call: FrameType, thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None and frame is not call:
        frame = frame.f_back
    return frame is call


_ending = RLock()  # not a callback's own: frameworks copy and pickle those


class TunedTraining:
    """Tunes from `_begin` to `_end`, as often as a training is begun. result: what came of the last one that ended,
    `None` before."""

    def __init__(self, **options: Unpack[TuneOptions]) -> None:
        """Raises UsageError for options that are wrong by themselves."""
        Tuned(options)  # now, rather than when the training begins
        self._options = options
        self._tuned: Tuned | None = None
        self._watch: CallWatch | None = None
        self.result: Result | None = None

    def _begin(self, *, first_rank: bool, silent_in: str | None = None) -> None:
        """A training begins; one that ended without a word ends now. first_rank: of this machine, by the framework.

        silent_in: the module whose outermost call under way is the training, where that may end without a word.
        """
        self._end()
        self._tuned = tuned = Tuned(self._options, first_rank=first_rank)
        tuned.__enter__()
        if silent_in is not None and tuned.is_tuned:
            self._watch = CallWatch(silent_in, lambda: self._end(tuned))

    def _end(self, only: Tuned | None = None) -> None:
        """The training has ended, or failed; nothing happens where none goes on, or another than `only`."""
        with _ending:
            tuned = self._tuned
            if tuned is None or (only is not None and only is not tuned):
                return
            self._tuned = None
            if self._watch is not None:
                self._watch.close()
                self._watch = None
            tuned.__exit__()
            self.result = tuned.result
