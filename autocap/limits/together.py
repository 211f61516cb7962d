"""The same work on several devices at once, so that one whose driver does not answer holds up none of the others."""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


class Each(Protocol):
    """`together`, or `one_by_one`."""

    def __call__(self, work: Callable[[_T], _R], items: Sequence[_T], /) -> list[_R]: ...


def one_by_one(work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """What some work yields for each, in order."""
    return [work(item) for item in items]


def together(work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """The same, each in a thread of its own, or here where no more can be started. It ends once all have.

    Raises what the work on the first of them that failed has raised.
    """
    if len(items) < 2:
        return one_by_one(work, items)
    found: list[_R | BaseException] = [RuntimeError("not done")] * len(items)

    def do(place: int) -> None:
        try:
            found[place] = work(items[place])
        except BaseException as error:  # noqa: BLE001 - it is raised where the others have ended
            found[place] = error

    threads, here = [], []
    for place in range(len(items)):
        thread = threading.Thread(target=do, args=(place,), daemon=True)
        try:
            thread.start()
            threads.append(thread)
        except RuntimeError:  # a machine that takes no more threads
            here.append(place)
    for place in here:
        do(place)
    for thread in threads:
        thread.join()
    results = list[_R]()
    for one in found:
        if isinstance(one, BaseException):
            raise one
        results.append(one)
    return results
