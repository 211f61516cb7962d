"""Who has the GPUs of a budget: jobs that are found, jobs whose tuners come and go, and nobody; and the caps of all
GPUs.

A GPU on which nobody computes is held at its lowest cap, so that a job that begins there is within the budget from its
first watt on. A tuner has a job as long as that computes on all that its tuner names. A GPU that fails is outside from
then on: the limit found there is put back, and counted in full; the others go on."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from autocap import events
from autocap.devices.base import require_inside
from autocap.devices.inventory import HoldableDevice
from autocap.errors import DeviceError, DeviceLocked, GuardError, LimitRefused
from autocap.events import Event
from autocap.job.processes import identify
from autocap.limits.background_call import done_aside
from autocap.limits.guard import LimitGuard
from autocap.limits.times import BEAT_APART_S
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.budget.shares import JobCurve, prior
from autocap.plugins.fleet.manager.allocation import OFF_HZ, Allocation, Clocks, Lowering, Unbound, believed, doubt
from autocap.plugins.fleet.manager.finding import Claim, FoundJob, Presence, Weights
from autocap.records import GpuInfo

_LOOKS = 2  # in a row from which a job is missing that has ended
_MOVED = 0.002  # of a slowdown by the clocks, from which on it is shared by anew
_SOME_S = 30.0  # in which a job that computes on one of the GPUs that its tuner names does so on all of them


class Caps:
    """gpus: in the order of all caps. guard: entered. found_w: the limits found. in_force_w: the caps now. counted_w:
    what each that has failed may draw, by its place; sentences: on these. Watts.

    Raises GuardError where the limit of a GPU is not known, so that none could be put back.
    """

    def __init__(self, gpus: Sequence[GpuInfo], guard: LimitGuard) -> None:
        unknown = [gpu for gpu, w in zip(gpus, guard.original_w, strict=True) if w is None]
        if unknown:
            raise GuardError(
                f"the limit of {unknown[0].where} cannot be read, so it could not be put back; pass --gpus"
            )
        self._gpus, self._guard = gpus, guard
        self.found_w = tuple(w for w in guard.original_w if w is not None)
        self.in_force_w = list(self.found_w)
        self.counted_w: dict[int, float] = {}
        self.sentences: tuple[str, ...] = ()
        self._news: list[tuple[int, str]] = []
        self._put_back = False  # limits were, while caps were being set

    def has(self, gpu: int) -> bool:
        """Whether it has not failed."""
        return gpu not in self.counted_w

    def require(self, gpus: Sequence[int], caps_w: Sequence[float]) -> None:
        """Raises LimitRefused for caps that some GPUs, by their places, do not take."""
        if len(caps_w) != len(gpus):
            raise LimitRefused(f"these are {len(caps_w)} caps for {len(gpus)} devices; give each one")
        for gpu, cap_w in zip(gpus, caps_w, strict=True):
            one = self._gpus[gpu]
            require_inside(cap_w, one.cap_range.min_w, one.cap_range.max_w, one.where)

    def set(self, caps_w: Mapping[int, float]) -> set[int]:
        """Have some caps set, by their places; which of them are others than before. Raises as `LimitGuard.set_caps`,
        but DeviceError only where no GPU is left."""
        changed = {gpu: w for gpu, w in caps_w.items() if w != self.in_force_w[gpu] and self.has(gpu)}
        if changed:
            wanted_w = [changed.get(gpu, w) for gpu, w in enumerate(self.in_force_w)]
            self._request(wanted_w)
            self.in_force_w = [self.counted_w.get(gpu, w) for gpu, w in enumerate(wanted_w)]
        return set(changed)

    def beat(self) -> bool:
        """Say that we are alive; whether all were set again, as they were put back because we seemed not to be. Raises
        as `LimitGuard.beat` and `set`."""
        put_back, self._put_back = self._guard.beat() or self._put_back, False
        if not put_back:
            return False
        self._request(self.in_force_w)
        return True

    def fails(self, gpu: int, error: DeviceError) -> None:
        """A GPU has failed. Raises the error where it was the last one, and GuardError."""
        if not self.has(gpu):
            return
        if len(self.counted_w) + 1 == len(self._gpus):
            raise error
        one, found_w = self._gpus[gpu], self.found_w[gpu]
        if self._guard.leave_out(gpu).restored:
            counted_w, fate = found_w, f"its limit of {found_w:g} W is back"
        else:  # whatever it takes for its own when it comes back
            counted_w, fate = max(found_w, one.cap_range.default_w), "its limit could not be put back"
        sentence = f"{one.where} is outside the budget now: {error}; {fate}, and {counted_w:g} W are counted for it"
        self.counted_w[gpu] = self.in_force_w[gpu] = counted_w
        self.sentences = (*self.sentences, sentence)
        self._news.append((gpu, sentence))

    def news(self) -> list[tuple[int, str]]:
        """Those that have failed since the last time, each with a sentence."""
        found, self._news = self._news, []
        return found

    def _request(self, caps_w: Sequence[float]) -> None:
        while True:
            try:
                done_aside(lambda: self._guard.set_caps(caps_w), self._stay, BEAT_APART_S)
            except DeviceError as error:
                if self._guard.failed is None:
                    raise
                self.fails(self._guard.failed, error)
            else:
                return

    def _stay(self) -> None:
        """A driver takes its time: the limits of the others hold."""
        with suppress(GuardError):  # which the set meets as well
            self._put_back = self._guard.beat() or self._put_back


class Occupancy:
    """device: the GPUs, in the order of all caps. least_w: what the budget may lower each to. say: takes what happens.
    presence: what computes on a device of somebody's claim; by itself everybody is believed."""

    def __init__(
        self,
        *,
        device: HoldableDevice,
        caps: Caps,
        ledger: Ledger,
        least_w: Sequence[float],
        say: Callable[[Event], None],
    ) -> None:
        self._device, self.caps, self.ledger, self._say = device, caps, ledger, say
        self._found_w = caps.found_w
        self._least_w = tuple(min(low, high) for low, high in zip(least_w, self._found_w, strict=True))
        self._places = {gpu.uuid: place for place, gpu in enumerate(device.gpus)}
        self.presence: Callable[[Claim, str], Presence] | None = None
        self.allocations: dict[str, Allocation] = {}
        self.weights = Weights()
        self._lowering: dict[str, Lowering] = {}

    def begin(self, t_s: float) -> None:
        """All GPUs are free, for all that is known yet."""
        for place in range(len(self._found_w)):
            self._free(t_s, place)

    def look(self, t_s: float, found: Sequence[FoundJob]) -> None:
        """The jobs that compute now. Those whose GPUs a tuner has are its, as long as they are its job's."""
        for allocation in [one for one in self.allocations.values() if one.tuned]:
            self._look_at_tuned(t_s, allocation)
        tuned = {gpu for allocation in self.allocations.values() if allocation.tuned for gpu in allocation.gpus}
        there: dict[tuple[int, ...], FoundJob] = {}
        for job in found:
            places = (self._places[uuid] for uuid in job.uuids if uuid in self._places)
            gpus = tuple(gpu for gpu in places if self.caps.has(gpu))
            if gpus and not set(gpus) & tuned:
                there[gpus] = job
        for allocation in [one for one in self.allocations.values() if not one.tuned and not one.free]:
            job_there = there.get(allocation.gpus)
            if job_there is not None and self._goes_on(t_s, allocation, job_there):
                del there[allocation.gpus]
                continue
            allocation.missed += 1
            if job_there is not None:
                self._leave(t_s, allocation, "another job computes there")
            elif allocation.missed >= _LOOKS or any(set(gpus) & set(allocation.gpus) for gpus in there):
                self._leave(t_s, allocation, "it computes no more")
        for gpus, job in there.items():
            if all(self._free_name(gpu) in self.allocations for gpu in gpus):
                self._join(t_s, Allocation(name=self._unused(job.name), gpus=gpus, pid=job.pid, groups=job.groups))

    def _take(self, t_s: float, job: FoundJob, claim: Claim | None) -> Allocation:
        """A tuner has come for a job. Raises as `BudgetEnforcer.lend`."""
        unknown = [uuid for uuid in job.uuids if uuid not in self._places]
        if unknown:
            raise LimitRefused(f"the budget does not have {unknown[0]}; add it to --gpus of `autocap budget`")
        gpus = tuple(self._places[uuid] for uuid in job.uuids)
        if not all(map(self.caps.has, gpus)):
            raise LimitRefused("a GPU of this job has failed, and is outside the budget now")
        there = self._presences(claim, job.uuids)
        others = self._others(gpus, there)
        if others is not None:
            raise LimitRefused(f"the budget does not lend {others}")
        computing = all(one.pids for one in there)
        for allocation in self._at(gpus):
            if allocation.tuned:
                self._look_at_tuned(t_s, allocation)
        for allocation in self._at(gpus):
            if allocation.tuned and not (allocation.waits and computing):
                raise DeviceLocked(f"a tuner has {allocation.name} under this budget already; wait for it to end")
        unbound, clocks = Unbound(since_s=t_s), Clocks()
        for allocation in self._at(gpus):
            if allocation.gpus == gpus and allocation.unbound is not None:
                unbound, clocks = (
                    allocation.unbound,
                    allocation.clocks,
                )  # what was read stays, however often tuners come and go
            self._leave(t_s, allocation, budget.TUNER_CAME)
        pid = job.pid if claim is None or claim.root is not None else min(there[0].pids)
        allocation = Allocation(
            name=self._unused(FoundJob(pid=pid, uuids=job.uuids).name), gpus=gpus, pid=pid, tuned=True, claim=claim,
            waits=not computing, unbound=unbound, clocks=clocks,
        )  # fmt: skip
        self._join(t_s, allocation)
        if not allocation.waits:
            self._believe(t_s, allocation)
        return allocation

    def is_here(self, allocation: Allocation) -> bool:
        """Whether it has its devices still; one whose device has failed has not."""
        return self.allocations.get(allocation.name) is allocation

    def uuids(self, allocation: Allocation) -> tuple[str, ...]:
        """Of its devices."""
        return tuple(self._device.gpus[gpu].uuid for gpu in allocation.gpus)

    def _believe(self, t_s: float, allocation: Allocation) -> None:
        """Follow what its tuner says of a job, or what we read, where that says otherwise."""
        worst, unbound = self._prior(allocation), allocation.unbound
        assert unbound is not None
        drawn_w, before = unbound.most_w(t_s), allocation.doubt
        allocation.doubt = None if allocation.said is None else doubt(allocation.said, worst, drawn_w)
        if allocation.doubt is not None and before is None:
            allocation.believed = None
            self.ledger.curve(allocation.name, self._worst(allocation), measured=False)
            self._say(events.Warned(t_s=t_s, text=f"{allocation.name}: {allocation.doubt}"))
        if allocation.said is None or allocation.doubt is not None:
            if drawn_w is not None:
                self.ledger.drew(allocation.name, drawn_w)
        elif allocation.said is not allocation.believed:
            allocation.believed = allocation.said
            curve = believed(allocation.said, self._worst(allocation, OFF_HZ))
            self.ledger.curve(allocation.name, self._bounded(allocation, curve))
            self.ledger.drew(allocation.name, np.inf)  # of a tuned job it says nothing of what it asks for

    def _follow_clocks(self, allocation: Allocation) -> None:
        """They have been seen for longer, or at another cap: what nobody says of a job goes by them, and what its tuner
        says as far as they allow."""
        if allocation.waits:
            return
        if allocation.said is not None and allocation.doubt is None:
            allocation.believed = None
            return
        before, curve = self.ledger[allocation.name].curve, self._worst(allocation)
        if np.abs(np.interp(curve.caps_w, before.caps_w, before.slowdown) - curve.slowdown).max() > _MOVED:
            self.ledger.curve(allocation.name, curve, measured=False)

    def _worst(self, allocation: Allocation, off_hz: float = 0.0) -> JobCurve:
        """Of a job that computes all the time: by its clocks, where these have been seen. off_hz: by which these may be
        off, so that what a tuner has measured is not cut to steps of them: who is measured would be given less than who
        is not."""
        worst, most_hz = self._prior(allocation), [self._device.most_hz[gpu] for gpu in allocation.gpus]
        known = [hz for hz in most_hz if hz is not None]
        return (
            allocation.clocks.curve(worst, min(known) if len(known) == len(most_hz) else None, off_hz=off_hz) or worst
        )

    def _bounded(self, allocation: Allocation, curve: JobCurve) -> JobCurve:
        """The limit on its slowdown counts of who may change the budget: of others it would take watts from the rest,
        as a weight would."""
        trusted = allocation.claim is None or allocation.claim.trusted
        return curve if trusted else replace(curve, most_slowdown=np.inf)

    # Whether they are who they were.

    def _look_at_tuned(self, t_s: float, allocation: Allocation) -> None:
        if allocation.claim is None:
            return
        there = self._presences(allocation.claim, self.uuids(allocation))
        allocation.groups = frozenset(allocation.claim.groups)
        others, count = self._others(allocation.gpus, there), sum(bool(one.pids) for one in there)
        if others is not None:
            self._lose(t_s, allocation, others)
        elif count == len(there):
            allocation.missed, allocation.some_s = 0, None
            if allocation.waits:
                allocation.waits = False
                self.ledger.curve(allocation.name, self._worst(allocation), measured=False)
                allocation.believed = None
                self._believe(t_s, allocation)
            self._follow(t_s, allocation, min(pid for one in there for pid in one.pids))
        elif allocation.waits:
            allocation.some_s = None if not count else t_s if allocation.some_s is None else allocation.some_s
            if allocation.some_s is not None and t_s >= allocation.some_s + _SOME_S:
                self._lose(
                    t_s, allocation, f"its job computes on {count} of the {len(there)} GPUs alone that were named"
                )
        else:
            allocation.missed += 1
            if allocation.missed >= _LOOKS and count:
                self._lose(t_s, allocation, f"its job computes on {count} of its {len(there)} GPUs alone")
            elif allocation.missed >= _LOOKS:
                allocation.waits = True
                self.ledger.curve(allocation.name, self._least(allocation), measured=False)

    def _presences(self, claim: Claim | None, uuids: Sequence[str]) -> list[Presence]:
        if claim is None or self.presence is None:
            return [Presence(pids=(1,)) for _ in uuids]
        return [self.presence(claim, uuid) for uuid in uuids]

    def _others(self, gpus: Sequence[int], there: Sequence[Presence]) -> str | None:
        """Who is in the way, a clause."""
        said = zip(gpus, there, strict=True)
        return next((f"{self._device.gpus[gpu].where}: {one.other}" for gpu, one in said if one.other), None)

    def _goes_on(self, t_s: float, allocation: Allocation, job: FoundJob) -> bool:
        """Whether a job that is found is the one that was there."""
        if not (job.has(allocation.pid) or job.groups & allocation.groups):
            return False
        allocation.missed, allocation.groups = 0, job.groups
        if not job.has(allocation.pid):
            self._follow(t_s, allocation, job.pid)
        return True

    def _follow(self, t_s: float, allocation: Allocation, pid: int | None) -> None:
        """Have a job go by another process of it, where the one that it goes by has ended."""
        process = None if allocation.pid is None else identify(allocation.pid)
        if process is not None and process.is_alive():
            return
        before, allocation.pid = allocation.name, pid
        name = self._unused(FoundJob(pid=pid, uuids=self.uuids(allocation)).name)
        self.ledger.rename(before, name)
        allocation.name = name
        self.allocations = {one.name: one for one in self.allocations.values()}
        self._lowering.pop(before, None)  # it is ordered again
        self._say(budget.JobLeft(t_s=t_s, name=before, why=f"it goes on as {name}"))
        self._say_joined(t_s, allocation)

    def _lose(self, t_s: float, allocation: Allocation, why: str) -> None:
        """Its tuner may have it no more."""
        allocation.ended = why
        self._leave(t_s, allocation, f"its tuner has it no more: {why}")

    # Coming and going.

    def _at(self, gpus: Sequence[int]) -> list[Allocation]:
        return [one for one in self.allocations.values() if set(one.gpus) & set(gpus) and not one.free]

    def _join(self, t_s: float, allocation: Allocation) -> None:
        for gpu in allocation.gpus:
            free = self._free_name(gpu)
            self.ledger.leave(t_s, free)
            del self.allocations[free]
        curve = self._least(allocation) if allocation.waits else self._worst(allocation)
        allocation.unbound = allocation.unbound or Unbound(since_s=t_s)
        self.allocations[allocation.name] = allocation
        self.ledger.join(
            t_s,
            allocation.name,
            curve,
            max(self.caps.in_force_w[gpu] for gpu in allocation.gpus),
            " ".join(self.uuids(allocation)),
        )
        self.ledger.weigh(allocation.name, self.weights.of(allocation.pid))
        self._say_joined(t_s, allocation)

    def _leave(self, t_s: float, allocation: Allocation, why: str) -> None:
        self.ledger.leave(t_s, allocation.name)
        del self.allocations[allocation.name]
        self._lowering.pop(allocation.name, None)
        if not allocation.free:
            self._say(budget.JobLeft(t_s=t_s, name=allocation.name, why=why))
        for gpu in allocation.gpus:
            if self.caps.has(gpu):
                self._free(t_s, gpu)

    def _free(self, t_s: float, gpu: int) -> None:
        name = self._free_name(gpu)
        self.allocations[name] = Allocation(name=name, gpus=(gpu,), free=True)
        self.ledger.join(t_s, name, self._least(self.allocations[name]), self.caps.in_force_w[gpu])

    def _prior(self, allocation: Allocation) -> JobCurve:
        """Of a job of which nothing is known."""
        least_w, most_w = (max(limits[gpu] for gpu in allocation.gpus) for limits in (self._least_w, self._found_w))
        return prior(least_w, max(most_w, least_w), devices=len(allocation.gpus))

    def _least(self, allocation: Allocation) -> JobCurve:
        """Of devices on which nobody computes."""
        least_w = max(self._least_w[gpu] for gpu in allocation.gpus)
        return JobCurve(
            caps_w=np.array([least_w]), slowdown=np.zeros(1), energy=np.ones(1), devices=len(allocation.gpus)
        )  # fmt: skip

    def _free_name(self, gpu: int) -> str:
        return f"free {self._device.gpus[gpu].where}"

    def _unused(self, name: str) -> str:
        taken = (f"{name} ({number})" for number in range(2, len(self.allocations) + 3))
        return name if name not in self.allocations else next(one for one in taken if one not in self.allocations)

    def _say_joined(self, t_s: float, allocation: Allocation) -> None:
        uuids = self.uuids(allocation)
        self._say(
            budget.JobJoined(t_s=t_s, name=allocation.name, uuids=uuids, pid=allocation.pid, tuned=allocation.tuned)
        )
