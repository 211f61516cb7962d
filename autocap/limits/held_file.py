"""A file of the state directory that is replaced again and again without opening anything.

Two files take turns, both open all the time: the one that has the name, and a spare beside it. A write fills the
spare, makes it durable, and has the two change names:

    spare filled and synced;  link NAME -> NAME.old;  rename NAME.tmp -> NAME;  rename NAME.old -> NAME.tmp;  sync

NAME stands for a whole file at every moment. Killed in between, a process leaves NAME.tmp, NAME.old or both, which
nobody reads and `Journal.sweep` removes.
"""

import os

from autocap.limits.state_dir import ASIDE, TEMPORARY, StateDir


class HeldFile:
    """name: of a file that is there. Raises OSError or GuardError where the two cannot be opened."""

    def __init__(self, state: StateDir, name: str) -> None:
        self._state, self._name = state, name
        self._current = state.open(name, os.O_RDWR)
        try:
            self._spare = state.create(name + TEMPORARY)
        except BaseException:
            os.close(self._current)
            raise

    def is_in_place(self) -> bool:
        """Whether the two names stand for our two files; not once somebody has removed or replaced one."""
        still = self._state.is_still
        return still(self._name, self._current) and still(self._name + TEMPORARY, self._spare)

    def write(self, data: bytes) -> None:
        """Replace the file as a whole; it is durable on return. Raises OSError where it is not, as on a file system
        that has no links; a whole file stands there even then."""
        temporary, aside = self._name + TEMPORARY, self._name + ASIDE
        self._state.fill(self._spare, data)
        self._state.unlink(aside)
        self._state.link(self._name, aside)
        self._state.rename(temporary, self._name)
        self._current, self._spare = self._spare, self._current
        self._state.rename(aside, temporary)
        self._state.sync()

    def close(self) -> None:
        """Leave the file, without the spare."""
        try:
            if self._state.is_still(self._name + TEMPORARY, self._spare):
                self._state.unlink(self._name + TEMPORARY)
            self._state.unlink(self._name + ASIDE)
        finally:
            os.close(self._spare)
            os.close(self._current)
