"""How many watts there are: what a user has asked for, or a schedule, which may be read again at any time, as far as
the events of a VTN allow them: an event may lower them, and never raises them."""

import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from autocap import __version__
from autocap.errors import AutocapError, UsageError
from autocap.plugins.fleet.budget.schedule import LEAST_W, MOST_W, Schedule, ScheduleRefused, read_schedule
from autocap.plugins.fleet.config import BudgetConfig, Policy
from autocap.plugins.fleet.events import BudgetStarted
from autocap.plugins.fleet.manager.supervising import STATE, BudgetState, load
from autocap.plugins.fleet.openadr.events import Span, coming, holding
from autocap.plugins.fleet.openadr.source import find_credentials
from autocap.plugins.fleet.openadr.vtn import Feed

NO_SCHEDULE = "SIGHUP has a schedule read again, and there is none; start with --schedule"
_MOST_KEPT = 48  # spans of events, for another manager


class Demand:
    """feed: hears the VTN. spans: those that an earlier manager knew. warn: takes a sentence."""

    def __init__(self, feed: Feed, spans: tuple[Span, ...], warn: Callable[[str], None]) -> None:
        self._feed, self.spans, self._warn = feed, spans, warn
        self._server = feed.source.server
        self._trouble = ""

    def hear(self) -> bool:
        """Whether other spans are known from now on. What was known before counts while the VTN cannot be asked."""
        before = self.spans
        for said in self._feed.news():
            self.spans = self.spans if said.spans is None else said.spans
            for note in said.notes:
                self._warn(note)
            if said.trouble and not self._trouble:
                self._warn(
                    f"{said.trouble}; the events that are known of {self._server} count for their time, then the "
                    "budget that was asked for"
                )
            if self._trouble and not said.trouble:
                self._warn(f"{self._server} answers again")
            self._trouble = said.trouble
        return self.spans != before

    def lowered(self, watts: float, wall_s: float) -> tuple[float, str]:
        """What is left of so many watts at a time, seconds since 1970, and why that is less, "" where it is not."""
        span = holding(self.spans, wall_s)
        if span is None or span.watts >= watts:
            return watts, ""
        return span.watts, f"{span.label} of {self._server} allows {span.watts:g} W"

    @property
    def over(self) -> str:
        """Why there are more watts again."""
        return f"no event of {self._server} lowers it any more"

    def sentences(self, watts: float, wall_s: float) -> tuple[str, ...]:
        """How things stand with so many watts asked for, at a time."""
        now, next = holding(self.spans, wall_s), coming(self.spans, wall_s)
        holds = f"no event of {self._server} counts now"
        if now is not None:
            until = "" if math.isinf(now.to_s) else f" until {_date(now.to_s)}"
            holds = f"{now.label} of {self._server} allows {now.watts:g} W{until}"
        found = [f"{watts:g} W are asked for; {holds}"]
        if next is not None:
            found.append(f"{next.label} allows {next.watts:g} W from {_date(next.from_s)} on")
        if self._trouble:
            found.append(f"what is known of {self._server} may be old: {self._trouble}")
        return tuple(found)


def _date(wall_s: float) -> str:
    """In local time, with its zone."""
    return datetime.fromtimestamp(wall_s).astimezone().isoformat(timespec="seconds")


class BudgetTarget:
    """asked_w: what a user has asked for; a schedule goes before it from its first row on. there_w: of both, what there
    is. demand: events that lower that. source: of the schedule. began_wall_s: when the budget began, seconds since
    1970. warn: takes a sentence."""

    def __init__(
        self,
        *,
        asked_w: float | None,
        there_w: float,
        began_wall_s: float,
        warn: Callable[[str], None],
        schedule: Schedule | None = None,
        source: str | None = None,
        demand: Demand | None = None,
    ) -> None:
        self.asked_w, self.there_w, self._schedule, self._source = asked_w, there_w, schedule, source
        self._demand, self.began_wall_s, self._warn = demand, began_wall_s, warn
        self._reader: threading.Thread | None = None
        self._read: Schedule | ScheduleRefused | None = None

    @property
    def watts(self) -> float:
        """How many there are now."""
        return self._lowered()[0]

    @property
    def follows(self) -> tuple[str, ...]:
        """Sentences on events."""
        return () if self._demand is None else self._demand.sentences(self.there_w, time.time())

    @property
    def spans(self) -> tuple[Span, ...]:
        """Of events, as far as another manager is to know them."""
        return () if self._demand is None else self._demand.spans[:_MOST_KEPT]

    def ask(self, watts: float) -> None:
        """A user's word, which ends the schedule until it is read again."""
        self.asked_w, self.there_w, self._schedule = watts, watts, None

    def read_again(self) -> None:
        """Begin to; `follow` sees when it is done."""
        if self._source is None:
            self._warn(NO_SCHEDULE)
        elif self._reader is None:
            self._reader = threading.Thread(target=self._read_source, args=(self._source,), daemon=True)
            self._reader.start()

    def hear(self) -> bool:
        """Whether other events are known from now on."""
        return self._demand is not None and self._demand.hear()

    def follow(self, now_w: float) -> str | None:
        """Why there are other watts than now_w by a schedule or events; `None` where there are not."""
        why = self._of_schedule(now_w)
        lowered = self._demand is not None and self.watts != now_w
        return self.reasons(why) if why or lowered else None

    def reasons(self, why: str) -> str:
        """Why there are as many as there are. why: there are others before events lower them, or "" where not."""
        lowered = self._lowered()[1]
        if not why and not lowered and self._demand is not None:
            why = self._demand.over
        return "; ".join(filter(None, (why, lowered)))

    def _lowered(self) -> tuple[float, str]:
        return (self.there_w, "") if self._demand is None else self._demand.lowered(self.there_w, time.time())

    def _of_schedule(self, now_w: float) -> str:
        """Why there are other watts, before events lower them; "" where there are not."""
        if self._reader is not None and not self._reader.is_alive():
            self._reader, found = None, self._read
            if isinstance(found, ScheduleRefused):
                self._warn(f"{found}; the budget stays at {now_w:g} W")
            else:
                self._schedule = found
        step = None if self._schedule is None else self._schedule.at(time.time())
        if step is None or step.watts == self.there_w:
            return ""
        self.there_w = step.watts
        return f"{self._source} says so"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What there is when a manager begins. before: what an earlier one that was killed has left. began_wall_s: when the
    budget began, seconds since 1970. watts: there are, before events lower them."""

    plan: BudgetConfig
    before: BudgetState | None
    began_wall_s: float
    schedule: Schedule | None
    watts: float
    policy: Policy

    @classmethod
    def of(cls, plan: BudgetConfig, state_dir: Path, *, resumed: bool, state: str = STATE) -> "Beginning":
        """resumed: a killed one is followed. Raises AutocapError for a schedule, a state directory or credentials that
        cannot be used, and UsageError where neither the command line nor the schedule says how many watts there are."""
        before = load(state_dir, state) if resumed else None
        began_wall_s = time.time() if before is None else before.began_wall_s
        schedule = None if plan.schedule is None else read_schedule(plan.schedule, began_wall_s)
        if plan.openadr is not None and not resumed:
            find_credentials(plan.openadr.credentials)
        step = None if schedule is None else schedule.at(time.time())
        watts = plan.watts if before is None else before.watts
        if step is not None:
            watts = step.watts
        if watts is None:
            raise UsageError(f"{plan.schedule} says nothing of the time until its first row; add WATTS for until then")
        policy = plan.policy if before is None else before.policy
        return cls(
            plan=plan, before=before, began_wall_s=began_wall_s, schedule=schedule, watts=watts, policy=policy
        )  # fmt: skip

    def ends_s(self, now_s: float) -> float:
        """When the budget ends, on a clock that shows now_s."""
        return math.inf if self.plan.for_s is None else now_s + self.began_wall_s + self.plan.for_s - time.time()

    def started(self, t_s: float) -> BudgetStarted:
        """The first event of its record, but for its devices."""
        return BudgetStarted(
            t_s=t_s,
            autocap_version=__version__,
            started_at=datetime.now().astimezone().isoformat(timespec="seconds"),
            pid=os.getpid(),
            budget_w=self.watts,
            policy=self.policy,
            gpus=(),
            original_w=(),
            schedule=self.plan.schedule,
            resumed=self.before is not None,
        )

    def course(self, warn: Callable[[str], None], stack: ExitStack) -> BudgetTarget:
        """Its watts. Raises AutocapError where nobody can ask for events."""
        demand, vtn = None, self.plan.openadr
        if vtn is not None:
            try:
                feed = Feed(vtn)
            except OSError as error:
                raise AutocapError(f"no process can be started that asks {vtn.server}: {error.strerror}") from error
            stack.callback(feed.close)
            demand = Demand(feed, () if self.before is None else self.before.spans, warn)
        return BudgetTarget(
            asked_w=self.plan.watts if self.before is None else self.before.asked_w,
            there_w=self.watts,
            schedule=self.schedule,
            source=self.plan.schedule,
            demand=demand,
            began_wall_s=self.began_wall_s,
            warn=warn,
        )
