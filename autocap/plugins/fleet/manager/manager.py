"""The loop of a budget's manager: hear clients, read devices, see who computes, carry out what the ledger orders."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autocap.errors import UsageError
from autocap.limits.times import BEAT_APART_S
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.words import Standing
from autocap.plugins.fleet.manager.finding import jobs_of
from autocap.plugins.fleet.manager.loop import Loop
from autocap.plugins.fleet.manager.standing import standing
from autocap.plugins.fleet.manager.steward import Steward
from autocap.records import Sample

_SAMPLE_S, _LOOK_S = 0.2, 0.5


@dataclass(kw_only=True, eq=False)
class Manager(Loop):
    """steward: with all devices free. listings: the PIDs that compute on each device, by UUID."""

    steward: Steward
    listings: Callable[[], Mapping[str, Sequence[int]]]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._next_sample_s = self._next_beat_s = self._next_look_s = self.clock.now()

    def pass_time(self) -> None:
        """Do what is due by now. Raises as `run`."""
        super().pass_time()
        now_s = self.clock.now()
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + BEAT_APART_S
            self.steward.beat(now_s)
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_S
            found = jobs_of(self.listings())
            self.steward.look(now_s, found)
            self.steward.act(self.clock.now())  # before a reading of all devices takes its time
        if now_s >= self._next_sample_s:
            self._next_sample_s = max(self._next_sample_s + _SAMPLE_S, now_s)
            self.steward.sample(now_s)
            if now_s >= self._next_record_s:
                readings, rest = self.steward.readings, self.steward.rest
                self._record(now_s, Sample(t_s=now_s, readings=readings, node=rest.reading))
        self.steward.act(self.clock.now())

    def weigh(self, pid: int, weight: float, why: str) -> None:
        """Raises UsageError where the process belongs to no job."""
        steward = self.steward
        same = steward.weights.put(pid, weight, (one.pid for one in steward.tenants.values()))
        if not same:
            raise UsageError(f"process {pid} belongs to no job under the budget; `autocap budget status` names them")
        for tenant in (one for one in steward.tenants.values() if one.pid in same):
            steward.ledger.weigh(tenant.name, weight)
            self.recorder.event(budget.JobWeighed(t_s=self.clock.now(), name=tenant.name, weight=weight, why=why))
        self._keep()
        steward.act(self.clock.now())

    def standing(self) -> Standing:
        return standing(self.steward, policy=self.policy, record=self.directory, follows=self.course.follows)

    def _due_s(self) -> float:
        return min(self._next_sample_s, self._next_beat_s, self._next_look_s)

    def _carry_out(self) -> None:
        self.steward.act(self.clock.now())

    def _weights(self) -> tuple[tuple[int, float], ...]:
        return self.steward.weights.known
