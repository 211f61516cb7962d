"""Descriptors kept for a moment at which the process has no other left, as when it holds a cap and is at its limit."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class SpareDescriptors:
    """As many descriptors as may be had, up to `count`; they stand for nothing until they are lent."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []
        self._take()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, so many more files can be opened; afterwards what is free is taken again."""
        self.close()
        try:
            yield
        finally:
            self._take()

    def close(self) -> None:
        """Give them up."""
        while self._held:
            os.close(self._held.pop())

    def _take(self) -> None:
        with suppress(OSError):  # those that others have taken meanwhile, until they are free again
            while len(self._held) < self._count:
                self._held.append(os.open("/dev/null", os.O_RDONLY))
