"""One count out of the calls of a job's processes, those that appear later included, at a cost that is known: always
where that is next to nothing, else while they are needed, and now and then.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from autocap.errors import AutocapError
from autocap.job.processes import ProcessId, Roots
from autocap.progress.calls.host import Host
from autocap.progress.calls.iterations import CallIterations, CallStamps
from autocap.progress.calls.process import ProcessCalls
from autocap.progress.calls.target import CallsUnavailable, CallTarget, ProcessHidden
from autocap.progress.ranks import JobSteps, ProcessSteps
from autocap.records import StepReading

_TOLERATED = 2.0  # times what calls may cost, once they are counted: a rate wavers
_AT_A_GLANCE = 10.0
_GLIMPSE_S = 0.02  # of how often the function is called, before it is counted for longer
_LOOK_S, _LOOK_LATER_S, _NEW_S = 1.0, 5.0, 30.0  # how often processes are looked for, and until when more often
_MOST_PATIENT_S = 60.0  # between two looks for the library in a process
# Threads without a call that are watched at a time, of the job and of a process: ending an event takes the kernel a
# tenth of a second.
_MOST_THREADS, _MOST_OF_PROCESS = 32, 4
_QUIET_S, _QUIET_INTERVALS = 10.0, 20  # without a call: other threads may make them now


@dataclass(slots=True)
class _Seen:
    """A process of the job. again_s, patience_s: when to look for the library in it, and how much later once more.
    hidden: why that cannot be seen."""

    again_s: float
    patience_s: float = _LOOK_S
    hidden: str | None = None
    calls: ProcessCalls | None = None
    cost_s: float = 0.0
    before: tuple[float, int] = (0.0, 0)  # when the rate was last looked at, and the calls by then


class CallCounter:
    """Counts the calls of a function in the processes of a job: the slowest rank's count, as of its newest call.

    Where several calls make an iteration, it counts these. trouble: why nothing is counted at present; `None` while
    calls are awaited or counted. hopeless: that it stays so. now, pause: the system's monotonic clock, and waiting on
    it.
    """

    def __init__(
        self,
        target: CallTarget,
        machine: Host | None = None,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._target = target
        self._machine = machine or Host(target)
        self._now, self._pause = now, pause
        self._root: Roots | None = None
        self._seen: dict[ProcessId, _Seen] = {}
        self._iterations = None if target.is_iteration else CallIterations(target)
        self._duty, self._needed = Duty(target), True
        self._job = JobSteps()
        self._reading: StepReading | None = None
        self._begun: tuple[StepReading, int] | None = None  # since counting went on: the first reading, and ours then
        self._went_on_s = 0.0
        self._looks_s = self._next_s = 0.0
        self._is_rated = False
        self._turned_s = 0.0  # when other threads were last taken in the place of silent ones
        self.trouble: str | None = None
        self.hopeless = False

    def rehearse(self) -> None:
        """Raises CallsUnavailable where this machine lets no calls be counted."""
        self._machine.rehearse()

    def watch(self, root: Roots) -> None:
        """Count in these processes and their descendants from now on. What keeps us from it is `trouble`."""
        self._root, self._next_s = root, self._now()
        self._looks_s = self._turned_s = self._next_s
        self._update()

    @property
    def is_watching(self) -> bool:
        """Whether there are threads whose calls are counted."""
        return bool(self._watched)

    @property
    def has_counted(self) -> bool:
        """Whether there was a count to read."""
        return self._reading is not None

    def read(self, origin_s: float) -> StepReading | None:
        """The job's calls so far, and when the last of them began, on the clock that was zero at `origin_s` of the
        system's monotonic one; `None` before the first."""
        if self._root is not None and not self.hopeless:
            self._update()
        found = self._reading
        if found is None:
            return None
        return StepReading(
            count=found.count,
            t_s=found.t_s - origin_s,
            of_calls=True,
            suspended=not self._duty.is_on and not self.hopeless,
        )

    def need(self, *, needed: bool) -> None:
        """Whether something is measured by the count. Else it may be suspended, where counting costs too much."""
        self._needed = needed

    @property
    def doubt(self) -> str | None:
        """What is not known of the calls yet, so that they are no iterations; `None` where nothing is."""
        return None if self._iterations is None else self._iterations.doubt

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the user is to know of how calls are counted."""
        found = (None if self._iterations is None else self._iterations.remark, self._duty.remark)
        return tuple(remark for remark in found if remark is not None)

    def close(self) -> None:
        """Count no more."""
        self._root = None
        for one in self._seen.values():
            if one.calls is not None:
                one.calls.close()
        self._seen = {}
        self._machine.close()

    def __enter__(self) -> "CallCounter":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _update(self) -> None:
        now_s = self._now()
        try:
            if not self._turn(now_s):
                return
            if now_s >= self._next_s:
                self._look(now_s)
                self._next_s = now_s + (_LOOK_S if now_s - self._looks_s < _NEW_S else _LOOK_LATER_S)
            found = [steps for one in self._watched if (steps := self._counted(one)) is not None]
        except AutocapError as error:
            self.close()
            self.trouble, self.hopeless = str(error), True
            return
        except OSError:  # no file can be opened for now
            return
        if self._is_rated:
            self._publish(found)

    def _turn(self, now_s: float) -> bool:
        """Suspend the count, or go on; whether there is one now."""
        was_on = self._duty.is_on
        is_on = self._duty.turn(now_s, self._interval_s, needed=self._needed)
        if was_on and not is_on:
            for one in self._watched:
                one.suspend()
        elif is_on and not was_on:
            self._turned_s = self._went_on_s = now_s
            self._next_s = now_s + _LOOK_S
            self._job, self._begun = JobSteps(), None
            for seen in self._seen.values():
                if seen.calls is not None:
                    seen.calls.resume()
                    seen.before = (now_s, seen.calls.count)
            if self._iterations is not None:
                self._iterations.restart()
        return is_on

    def _counted(self, calls: ProcessCalls) -> ProcessSteps | None:
        """What a process has done, in iterations."""
        steps = calls.read()
        if steps is None or self._iterations is None or calls.stamps is None:
            return steps
        if self._is_rated:
            self._iterations.learn(calls.process, calls.stamps, self._now())
        return self._iterations.of(steps, calls.stamps)

    def _publish(self, found: list[ProcessSteps]) -> None:
        """What was done while nothing was counted is not known: the count goes on where it stood, from the newest call
        on."""
        reading = self._job.update(found)
        if reading is None or reading.t_s < self._went_on_s:
            return
        before = 0 if self._reading is None else self._reading.count
        if self._begun is None:
            self._begun = (reading, before if before else reading.count)
        first, ours = self._begun
        self._reading = StepReading(count=ours + reading.count - first.count, t_s=reading.t_s)

    @property
    def _interval_s(self) -> float:
        """Of an iteration, since counting went on; 0 before two of them."""
        if self._begun is None or self._reading is None:
            return 0.0
        first, ours = self._begun
        return (self._reading.t_s - first.t_s) / max(1, self._reading.count - ours)

    @property
    def _watched(self) -> list[ProcessCalls]:
        return [one.calls for one in self._seen.values() if one.calls is not None]

    def _look(self, now_s: float) -> None:
        assert self._root is not None
        alive = self._machine.processes(self._root)
        for process in self._seen.keys() - set(alive):
            gone = self._seen.pop(process).calls
            if gone is not None:
                gone.close()
        shares = []
        for process in alive:
            one = self._seen.setdefault(process, _Seen(again_s=now_s))
            if one.calls is None and now_s >= one.again_s:
                one.patience_s = min(2 * one.patience_s, _MOST_PATIENT_S)
                one.again_s = now_s + one.patience_s
                self._find(process, one, now_s)
            elif one.calls is not None:
                shares += self._rate(one, now_s)
        if shares:
            self._duty.heed(max(shares))
            self._is_rated = True
        self._look_at_threads(now_s)
        hidden = next((one.hidden for one in self._seen.values() if one.hidden is not None), None)
        none_has = hidden or f"no process of the job has loaded {self._target.library}"
        self.trouble = None if self.is_watching else none_has

    def _look_at_threads(self, now_s: float) -> None:
        watched = self._watched
        steps = [found for one in watched if (found := one.read()) is not None]
        newest = max(steps, key=lambda one: one.last_s, default=None)
        since_s = now_s - max(self._turned_s, 0.0 if newest is None else newest.last_s)
        is_quiet = since_s > max(_QUIET_S, 0.0 if newest is None else _QUIET_INTERVALS * newest.interval_s)
        self._turned_s = now_s if is_quiet else self._turned_s
        job_calls = max((one.count for one in watched), default=0)
        most = max(1, min(_MOST_OF_PROCESS, _MOST_THREADS // max(1, len(watched))))
        for one in watched[:_MOST_THREADS]:
            one.look(job_calls, most, is_quiet=is_quiet)

    def _find(self, process: ProcessId, one: _Seen, now_s: float) -> None:
        """Begin to count in a process that has loaded the library."""
        try:
            function, one.hidden = self._machine.function(process.pid), None
        except ProcessHidden as error:
            function, one.hidden = None, str(error)
        if function is None:
            return
        pid = process.pid
        first = not self.is_watching
        one.cost_s, one.before = function.cost_s, (now_s, 0)
        one.calls = ProcessCalls(
            process,
            self._machine.rank(pid),
            lambda: self._machine.threads(pid),
            lambda tid: self._machine.is_there(pid, tid),
            lambda tid: self._machine.open(tid, function),
            None if self._iterations is None else CallStamps(),
        )
        if first:  # a function that is called all the time must not be counted for a second to know that
            one.calls.look(0, _MOST_OF_PROCESS, is_quiet=False)
            self._pause(_GLIMPSE_S)
            one.calls.read()
            self._duty.require_affordable(one.calls.count / _GLIMPSE_S, one.cost_s, times=_AT_A_GLANCE)

    def _rate(self, one: _Seen, now_s: float) -> list[float]:
        """The share of its time that counting takes, once that is known."""
        assert one.calls is not None
        one.calls.read()
        (before_s, before), count = one.before, one.calls.count
        if now_s - before_s < _LOOK_S:
            return []
        one.before = (now_s, count)
        rate_hz = (count - before) / (now_s - before_s)
        self._duty.require_affordable(rate_hz, one.cost_s, times=_TOLERATED if self._is_rated else 1.0)
        return [rate_hz * one.cost_s]


MOST_OF_TIME = 0.001  # of a thread's time may go into having its calls counted all the time,
MOST_WHILE_NEEDED = 0.005  # and so much while something is measured
_CHEAP = 0.5  # times the first, below which calls are counted all the time again
_ON_S, _ON_INTERVALS = 5.0, 6  # at a time, where they are not needed: what a change would show in


class Duty:
    """is_on: whether calls are counted now. remark: that they are not always, with what it costs, as first seen.

    An event that is only switched off would still stop the thread at the breakpoint, at half the cost, so it is closed.
    """

    def __init__(self, target: CallTarget) -> None:
        self._target = target
        self.is_on = True
        self._share = 0.0  # of a thread's time, that counting takes
        self.is_sparing = False  # it costs too much to go on all the time
        self.remark: str | None = None  # what the user is to know
        self._turned_s: float | None = None  # since when what is not needed is counted, or not

    def require_affordable(self, rate_hz: float, cost_s: float, *, times: float) -> None:
        """Raises CallsUnavailable where calls at that rate, of which each takes so much longer, cost more than they
        may, so many times over."""
        if rate_hz * cost_s > times * MOST_WHILE_NEEDED:
            raise CallsUnavailable(
                f"{self._target.symbol} is called {rate_hz:.0f} times a second, which to count would take "
                f"{rate_hz * cost_s:.2%} of the job's time at {cost_s * 1e6:.2g} us a call, more than "
                f"{MOST_WHILE_NEEDED:.1%}; choose a function that is called less often"
            )

    def heed(self, share: float) -> None:
        """What counting takes of the time of the thread whose calls cost most."""
        if share > MOST_OF_TIME:
            self._share, self.is_sparing = share, True
            self.remark = self.remark or (
                f"counting the calls of {self._target.symbol} takes {share:.2%} of the job's time, so while a cap is "
                f"held they are counted for {MOST_OF_TIME / share:.0%} of the time"
            )
        elif share < _CHEAP * MOST_OF_TIME:
            self.is_sparing = False

    def turn(self, now_s: float, interval_s: float, *, needed: bool) -> bool:
        """Whether calls are to be counted from now on. interval_s: of an iteration, 0 while that is unknown. needed:
        whether something is being measured by them."""
        if needed or not self.is_sparing:
            self.is_on, self._turned_s = True, None
            return True
        if self._turned_s is None:
            self.is_on, self._turned_s = False, now_s
            return False
        on_s = max(_ON_S, _ON_INTERVALS * interval_s)
        lasts_s = on_s if self.is_on else on_s * (self._share / MOST_OF_TIME - 1)
        if now_s - self._turned_s >= lasts_s:
            self.is_on, self._turned_s = not self.is_on, now_s
        return self.is_on
