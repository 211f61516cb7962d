"""How many watts there are: what a user has asked for, or a schedule, which may be read again at any time."""

import threading
import time
from collections.abc import Callable

from autocap.budget.schedule import LEAST_W, MOST_W, Schedule, ScheduleRefused, read_schedule
from autocap.budget.shares import Policy
from autocap.errors import AutocapError, UsageError

NO_SCHEDULE = "SIGHUP has a schedule read again, and there is none; start with --schedule"


class Course:
    """asked_w: what a user has asked for; a schedule goes before it from its first row on. source: of the schedule.
    began_wall_s: when the budget began, seconds since 1970. warn: takes a sentence."""

    def __init__(
        self,
        *,
        asked_w: float | None,
        schedule: Schedule | None,
        source: str | None,
        began_wall_s: float,
        warn: Callable[[str], None],
    ) -> None:
        self.asked_w, self._schedule, self.source, self.began_wall_s = asked_w, schedule, source, began_wall_s
        self._warn = warn
        self._reader: threading.Thread | None = None
        self._read: Schedule | ScheduleRefused | None = None

    def ask(self, watts: float) -> None:
        """A user's word, which ends the schedule until it is read again."""
        self.asked_w, self._schedule = watts, None

    def read_again(self) -> None:
        """Begin to; `watts` says when it is done."""
        if self.source is None:
            self._warn(NO_SCHEDULE)
        elif self._reader is None:
            self._reader = threading.Thread(target=self._read_source, args=(self.source,), daemon=True)
            self._reader.start()

    def watts(self, now_w: float) -> float | None:
        """What the schedule says; `None` where that is nothing yet. now_w: how many there are."""
        if self._reader is not None and not self._reader.is_alive():
            self._reader, found = None, self._read
            if isinstance(found, ScheduleRefused):
                self._warn(f"{found}; the budget stays at {now_w:g} W")
            else:
                self._schedule = found
        step = None if self._schedule is None else self._schedule.at(time.time())
        return None if step is None else step.watts

    def _read_source(self, source: str) -> None:
        """In a thread of its own: a command may take long."""
        try:
            self._read = read_schedule(source, self.began_wall_s)
        except AutocapError as error:
            self._read = ScheduleRefused(str(error))


def require_budget(watts: float | None, policy: str | None) -> None:
    """Raises UsageError for what is no budget, or no policy."""
    if watts is not None and not LEAST_W <= watts <= MOST_W:
        raise UsageError(f"a budget of {watts:g} W is none; give {LEAST_W:g} to {MOST_W:g} W")
    if policy is not None and policy not in tuple(Policy):
        raise UsageError(f"policy '{policy}' is none of {', '.join(Policy)}")
