"""The calls of one process of the job: which of its threads make them, and how many they have made together."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autocap.job.processes import ProcessId
from autocap.progress.calls.iterations import CallStamps
from autocap.progress.calls.target import CallsUnavailable
from autocap.progress.calls.uprobe import ThreadCalls
from autocap.progress.ranks import ProcessSteps

_SETTLED = 8  # calls after which a thread without any takes no part
_FEW, _MOST_ENDED = 50, 8  # calls of a thread that has ended, and threads that ended after so few


@dataclass(slots=True)
class _Watched:
    calls: ThreadCalls
    since: int  # calls of the job's busiest process by then
    last: tuple[int, float] | None = None
    stamped: int = 0  # of its calls


class ProcessCalls:
    """Watches the first thread of a process and those that compute most, and keeps those that make calls.

    threads: the process's, in the order in which to try them. open_thread: count the calls of one; `None` where it has
    ended. stamps: takes the time of each call, `None` where the newest will do.
    """

    def __init__(
        self,
        process: ProcessId,
        rank: int | None,
        threads: Callable[[], Sequence[int]],
        is_there: Callable[[int], bool],
        open_thread: Callable[[int], ThreadCalls | None],
        stamps: CallStamps | None = None,
    ) -> None:
        self.process, self.stamps = process, stamps
        self._rank, self._threads, self._is_there, self._open = rank, threads, is_there, open_thread
        self._watched: dict[int, _Watched] = {}
        self._tried: set[int] = set()
        self._ended_calls = self._short_lived = 0
        self._first_s: float | None = None
        self._last_s = 0.0
        self._settled = False
        self._callers: list[int] = []

    @property
    def count(self) -> int:
        """Calls so far, by what was last read."""
        return self._ended_calls + sum(one.last[0] for one in self._watched.values() if one.last is not None)

    def read(self) -> ProcessSteps | None:
        """Its calls so far; `None` before the first."""
        before = None
        while before != (now := {tid: one.calls.last() for tid, one in self._watched.items()}):
            before = now  # until none falls between the reading of one thread and that of another
            for tid, last in now.items():
                self._watched[tid].last = last or self._watched[tid].last
            if sum(one.last is not None for one in self._watched.values()) < 2:
                break
        if self.stamps is not None:
            self.stamps.add(self._new(), self.count)
        stamps_s = [one.last[1] for one in self._watched.values() if one.last is not None]
        self._last_s = max([self._last_s, *stamps_s])
        if not self.count:
            return None
        self._first_s = self._last_s if self._first_s is None else self._first_s
        return ProcessSteps(
            process=self.process,
            rank=self._rank,
            explicit=False,
            first_s=self._first_s,
            last_s=self._last_s,
            count=self.count,
        )

    def _new(self) -> list[float] | None:
        """When the calls since the last time were; `None` where that is not known of all."""
        t_s: list[float] = []
        whole = True
        for one in self._watched.values():
            wanted = 0 if one.last is None else one.last[0] - one.stamped
            found = one.calls.after(one.stamped) if wanted else []
            whole = whole and found is not None and len(found) >= wanted
            t_s += (found or [])[:wanted]
            one.stamped += wanted
        return sorted(t_s) if whole else None

    def look(self, job_calls: int, most: int, *, is_quiet: bool) -> None:
        """Watch other threads where those that are watched make no calls, and no thread without need.

        job_calls: of the job's busiest process so far. most: threads without a call that may be watched at a time.
        is_quiet: none of the job's threads that are watched has made a call for long.

        Raises CallsUnavailable where that is not possible, and where threads that make calls come and go: those that
        they make before they are found are not counted.
        """
        self.read()
        is_quiet |= self._let_ended_go()
        silent = {tid: one for tid, one in self._watched.items() if one.last is None}
        if is_quiet:  # or a thread that made calls has ended
            others = [tid for tid in silent if tid != self.process.pid]
            self._tried.update(others)
            self._settled = False
        elif not self._settled:
            others = [tid for tid, one in silent.items() if job_calls - one.since >= _SETTLED]
            self._settled = bool(self._watched) and len(others) == len(silent) and job_calls >= _SETTLED
        else:
            others = []
        self._drop(others)
        if not self._settled and (is_quiet or not job_calls or not self._watched):
            self._watch_more(most - len(silent) + len(others), job_calls)

    def suspend(self) -> None:
        """Count nothing until `resume`."""
        self._ended_calls = self.count
        self._callers = [tid for tid, one in self._watched.items() if one.last is not None]
        self.close()

    def resume(self) -> None:
        """Go on in the threads that made calls."""
        if self.stamps is not None:
            self.stamps.add(None, self.count)
        self._settled = False
        for tid in self._callers:
            self._watch(tid, self.count)

    def close(self) -> None:
        """Count no more. The kernel ends the events while we go on."""
        self._drop(list(self._watched))

    def _watch_more(self, room: int, job_calls: int) -> None:
        candidates = [tid for tid in self._threads() if tid not in self._watched]
        self._tried.intersection_update(candidates)
        fresh = [tid for tid in candidates if tid not in self._tried]
        if not fresh:
            self._tried.clear()
        for tid in fresh[: max(0, room)]:
            self._watch(tid, job_calls)

    def _watch(self, tid: int, job_calls: int) -> None:
        calls = self._open(tid)
        if calls is not None:
            self._watched[tid] = _Watched(calls=calls, since=job_calls)

    def _let_ended_go(self) -> bool:
        """Whether threads that made calls have ended."""
        ended = [tid for tid in self._watched if not self._is_there(tid)]
        calls = [last[0] for tid in ended if (last := self._watched[tid].last) is not None]
        self._ended_calls += sum(calls)
        self._short_lived += sum(count < _FEW for count in calls)
        self._drop(ended)
        if self._short_lived > _MOST_ENDED:
            raise CallsUnavailable(
                f"process {self.process.pid} makes its calls in threads that come and go, so some would be missed"
            )
        return bool(calls)

    def _drop(self, tids: Sequence[int]) -> None:
        close_apart([self._watched.pop(tid).calls for tid in tids])


def close_apart(calls: Sequence[ThreadCalls]) -> None:
    """In a thread of its own: the loop that keeps the caps must not wait for it, and our end does not need to."""

    def close() -> None:
        for one in calls:
            one.close()

    if calls:
        threading.Thread(target=close, name="calls that are counted no more", daemon=True).start()
