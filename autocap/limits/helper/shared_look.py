"""A look at something that many may want at once: one of them looks, for all who wait."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedLook(Generic[T]):
    """look: takes a while, and may raise. From any thread.

    What somebody is given was looked at after they asked: who comes while a look is under way waits for the next one.
    So it is as new as a look of their own, and however many ask there is one at a time.
    """

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._turn = threading.Condition()
        self._begun, self._is_busy = 0, False
        self._found: tuple[int, T] | None = None  # of which look, by its number

    def __call__(self) -> T:
        """Raises what the look does, to whom it was that looked; the others look again."""
        with self._turn:
            wanted = self._begun + 1
            while self._found is None or self._found[0] < wanted:
                if not self._is_busy:
                    break
                self._turn.wait()
            else:
                return self._found[1]
            self._begun, self._is_busy = self._begun + 1, True
            number = self._begun
        try:
            found = self._look()
            self._found = number, found
            return found
        finally:
            with self._turn:
                self._is_busy = False
                self._turn.notify_all()
