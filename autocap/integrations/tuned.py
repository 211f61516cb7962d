"""`autocap.tune`: a training script that has itself tuned.

A process of its own does it, as under `autocap attach`: a thread would wait for the interpreter's lock when it has to
beat, and would die with the script before it has put a limit back. The process is no descendant of the script (the
emulated device stops the whole job), and ends with it.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from multiprocessing import parent_process
from pathlib import Path

from autocap.cli.run import checked
from autocap.config import RunConfig
from autocap.config.option import CommandOption, options_of
from autocap.errors import AutocapError, RunDirectoryError, UsageError
from autocap.job.attached import AttachedJob
from autocap.job.processes import import_path
from autocap.printable import printable
from autocap.progress.steps.map import StepMap, are_counted, counted
from autocap.reports.summary.record import Summary
from autocap.runlog.directory import default_directory
from autocap.runlog.event_log import read_events
from autocap.spelling import did_you_mean

log = logging.getLogger(__name__)
# How torchrun and Lightning, mpirun and srun number the ranks of a machine, and say how many there are.
_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_COUNTS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE")
# A shell starts it, prints its PID and ends, which makes it an orphan. In a session of its own no ^C reaches it.
_DETACHED = '"$@" >/dev/null & echo $!'
_LONGEST_END_S = 10.0  # limits are back within 1 s; the report may take a moment
_LOOK_EVERY_S = 0.02

OptionValue = None | bool | str | int | float | Path | Iterable[object] | Mapping[str, object]


class Tuned:
    """A block of a training script, tuned while it runs.

    directory: the run directory. result: what came of it, once the block has ended; `None` where nothing was tuned.
    """

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        """Raises UsageError for options that are wrong by themselves."""
        words = _words(options)
        config = checked(words)
        self.directory = (config.out or default_directory(datetime.now().astimezone())).absolute()  # scripts move about
        self.result: Summary | None = None
        self._words = [*words, f"--out={self.directory}"]  # the last one counts
        self._stack = ExitStack()
        self._owner: int | None = None  # the process that is tuned: a fork of it leaves the block too, and ends nothing
        self._job = 0

    def __enter__(self) -> "Tuned":
        if _is_another_rank():
            return self
        if are_counted():
            log.warning("autocap: this block is not tuned: the job is being tuned already")
            return self
        with ExitStack() as stack:
            try:
                self._job = _job()
                step_map = stack.enter_context(StepMap.create())
                tuner = stack.enter_context(AttachedJob(_start(self._job, step_map.fd, self._words)))
                stack.callback(_end, tuner)
                stack.enter_context(counted(step_map))
            except (AutocapError, OSError, ValueError, subprocess.SubprocessError) as error:
                log.warning("autocap: the job runs untuned: %s", printable(str(error)))
                return self
            self._stack = stack.pop_all()
        self._owner = os.getpid()
        return self

    def __exit__(self, *error: object) -> None:
        if os.getpid() != self._owner:
            return
        self._owner = None
        self._stack.close()
        # Only here: what a summary needs would make the script wait when the block begins.
        from autocap.reports.summary.summarise import summarise

        with suppress(RunDirectoryError):  # it never began
            summary = summarise(read_events(self.directory))
            if summary.device is not None and summary.pid == self._job:  # not an older run that was in the way
                self.result = summary


def _words(options: Mapping[str, OptionValue]) -> list[str]:
    """Keywords as words of `attach`'s command line, whose options they are: metric="eds" is --metric=eds. Raises
    UsageError for a keyword that is none of them, or has a value of another kind."""
    known = {option.keyword: option for option in options_of(RunConfig, "attach")}
    words: list[str] = []
    for name, value in options.items():
        if name == "json":
            raise UsageError("autocap.tune has no option json; read `run.result` after `with autocap.tune(…) as run:`")
        if name not in known:
            meant = did_you_mean(name, known)
            raise UsageError(f"autocap.tune has no option {name}{meant}; choose {', '.join(sorted(known))}")
        words += _words_of(known[name], value)
    return words


def _words_of(option: CommandOption, value: OptionValue) -> list[str]:
    if value is None or value is False:
        return []
    if option.read is None:
        if value is not True:
            raise UsageError(f"{option.keyword} is True or False, not {value!r}")
        return [option.flag]
    match value:
        case True:
            raise UsageError(f"{option.keyword} takes a value, as {option.usage} does")
        case str() | int() | float() | Path():
            values = [str(value)]
        case Mapping():
            values = [f"{key}={of_key}" for key, of_key in value.items()]
        case _:
            values = list(map(str, value))
    return [f"{option.flag}={text}" for text in (values if option.repeated else [",".join(values)])]


def _is_another_rank() -> bool:
    """Whether this is a rank of a job whose first rank (of this machine, where that is known) has it tuned."""
    rank = _variable(_RANKS)
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


def _start(job: int, map_fd: int, words: Sequence[str]) -> int:
    """Start the process that tunes, and hand the step map down to it; its PID."""
    tuner = [sys.executable, "-P", "-m", "autocap", "inside", f"--pid={job}", f"--step-map-fd={map_fd}", *words]
    done = subprocess.run(
        ["/bin/sh", "-c", _DETACHED, "sh", *tuner],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(import_path())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        pass_fds=(map_fd,),
        start_new_session=True,
        check=True,
    )
    return int(done.stdout)


def _end(tuner: AttachedJob) -> None:
    """Have the limits put back and the report written."""
    if tuner.poll() is None:
        with suppress(ProcessLookupError):
            os.kill(tuner.pid, signal.SIGTERM)
    deadline_s = time.monotonic() + _LONGEST_END_S
    while tuner.poll() is None:
        if time.monotonic() > deadline_s:
            log.warning("autocap: process %d, which tunes, has not ended within %g s", tuner.pid, _LONGEST_END_S)
            return
        time.sleep(_LOOK_EVERY_S)
