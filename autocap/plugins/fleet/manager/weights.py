"""How much jobs count where a budget is shared, as a user has said. A job is known by its process group or launcher, so
that its weight stays when a tuner comes or goes, and when another manager takes up."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from autocap.plugins.fleet.manager.finding import group_of

Known = tuple[tuple[int, float], ...]


class Weights:
    """known: of earlier. group_of: what a process belongs to."""

    def __init__(self, known: Known = (), group_of: Callable[[int], int | None] = group_of) -> None:
        self._by_group, self._group_of = dict(known), group_of

    @property
    def known(self) -> Known:
        """By group; those of groups that are gone left out, as their numbers are given away again."""
        self._by_group = {group: weight for group, weight in self._by_group.items() if _is_there(group)}
        return tuple(self._by_group.items())

    def of(self, pid: int | None) -> float | None:
        """Of the job of a process; `None` where nobody has said one."""
        group = None if pid is None or not self._by_group else self._group_of(pid)
        return None if group is None else self._by_group.get(group)

    def put(self, pid: int, weight: float, pids: Iterable[int | None]) -> list[int]:
        """From now on the job of a process has that weight. pids: one process of each job; which of these are of it."""
        group = self._group_of(pid)
        same = [one for one in pids if one is not None and group is not None and self._group_of(one) == group]
        if same and group is not None:
            self._by_group[group] = weight
        return same


def _is_there(group: int) -> bool:
    if Path(f"/proc/{group}").exists():  # its leader, or a launcher, which may lead none
        return True
    with suppress(PermissionError):  # somebody else's, which is there
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
    return True
