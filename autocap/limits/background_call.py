"""Work in threads of its own, as a driver may not answer for seconds, which is to hold up nobody else."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


class BackgroundCall(Generic[_R]):
    """Work that is done in one thread, one after the other. is_busy: one was begun, and is not taken."""

    def __init__(self) -> None:
        self._work: Callable[[], _R] | None = None
        self._thread: threading.Thread | None = None
        self._wanted, self._done = threading.Event(), threading.Event()
        self._found: list[_R] = []
        self._error: BaseException | None = None
        self.is_busy = False

    def begin(self, work: Callable[[], _R]) -> None:
        """Have it done; what was done last is to have been taken before. Where none can be had, it is done here."""
        self._work, self.is_busy = work, True
        self._done.clear()
        if self._thread is None:
            thread = threading.Thread(target=self._work_on, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._do(work)
                return
            self._thread = thread
        self._wanted.set()

    def is_done(self, within_s: float = 0.0) -> bool:
        return self._done.wait(within_s)

    def take(self) -> _R:
        """What it yields or raises, once it is done."""
        self.is_busy = False
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._found.pop()

    def finish(self, work: Callable[[], _R], meanwhile: Callable[[], object], every_s: float) -> _R:
        """Have it done; what it yields or raises. meanwhile: called whenever so many seconds have passed; what that
        raises leaves the work to itself."""
        self.begin(work)
        while not self.is_done(every_s):
            meanwhile()
        return self.take()

    def end(self) -> None:
        """There is nothing more to do."""
        self._work = None
        self._wanted.set()

    def _work_on(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()  # before it is looked at what is wanted: an end that comes meanwhile is not missed
            work = self._work
            if work is None:
                return
            self._do(work)

    def _do(self, work: Callable[[], _R]) -> None:
        try:
            self._found.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is taken
            self._error = error
        self._done.set()


def done_aside(work: Callable[[], _R], meanwhile: Callable[[], object], every_s: float) -> _R:
    """Some work, once, as `BackgroundCall.finish` has it done."""
    aside = BackgroundCall[_R]()
    try:
        return aside.finish(work, meanwhile, every_s)
    finally:
        aside.end()


def one_by_one(work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """What some work yields for each, in order."""
    return [work(item) for item in items]


def together(
    work: Callable[[_T], _R], items: Sequence[_T], within_s: float | None = None, late: Callable[[_T], _R] | None = None
) -> list[_R]:
    """The same, each in a thread of its own, or here where no more can be started. It ends once all have, or after some
    time: late yields what is returned for those that have not ended by then.

    Raises what the work on the first of them that failed has raised.
    """
    if len(items) < 2 and late is None:
        return one_by_one(work, items)
    found: list[_R | BaseException] = [RuntimeError("not done")] * len(items)

    def do(place: int) -> None:
        try:
            found[place] = work(items[place])
        except BaseException as error:  # noqa: BLE001 - it is raised where the others have ended
            found[place] = error

    threads, here = dict[int, threading.Thread](), []
    for place in range(len(items)):
        thread = threading.Thread(target=do, args=(place,), daemon=True)
        try:
            thread.start()
            threads[place] = thread
        except RuntimeError:  # a machine that takes no more threads
            here.append(place)
    for place in here:
        do(place)
    deadline_s = None if within_s is None else time.monotonic() + within_s
    results = list[_R]()
    for thread in threads.values():
        thread.join(None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))
    for place, item in enumerate(items):
        if late is not None and place in threads and threads[place].is_alive():
            results.append(late(item))
            continue
        one = found[place]
        if isinstance(one, BaseException):
            raise one
        results.append(one)
    return results
