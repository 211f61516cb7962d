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
from autocap.limits.guard import LimitGuard
from autocap.limits.times import BEAT_APART_S
from autocap.limits.together import done_aside
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.budget.shares import JobCurve, prior
from autocap.plugins.fleet.manager.finding import Claim, FoundJob, Presence, Weights
from autocap.plugins.fleet.manager.tenant import OFF_HZ, Clocks, Lowering, Tenant, Unbound, believed, doubt
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
        self.tenants: dict[str, Tenant] = {}
        self.weights = Weights()
        self._lowering: dict[str, Lowering] = {}

    def begin(self, t_s: float) -> None:
        """All GPUs are free, for all that is known yet."""
        for place in range(len(self._found_w)):
            self._free(t_s, place)

    def look(self, t_s: float, found: Sequence[FoundJob]) -> None:
        """The jobs that compute now. Those whose GPUs a tuner has are its, as long as they are its job's."""
        for tenant in [one for one in self.tenants.values() if one.tuned]:
            self._look_at_tuned(t_s, tenant)
        tuned = {gpu for tenant in self.tenants.values() if tenant.tuned for gpu in tenant.gpus}
        there: dict[tuple[int, ...], FoundJob] = {}
        for job in found:
            places = (self._places[uuid] for uuid in job.uuids if uuid in self._places)
            gpus = tuple(gpu for gpu in places if self.caps.has(gpu))
            if gpus and not set(gpus) & tuned:
                there[gpus] = job
        for tenant in [one for one in self.tenants.values() if not one.tuned and not one.free]:
            job_there = there.get(tenant.gpus)
            if job_there is not None and self._goes_on(t_s, tenant, job_there):
                del there[tenant.gpus]
                continue
            tenant.missed += 1
            if job_there is not None:
                self._leave(t_s, tenant, "another job computes there")
            elif tenant.missed >= _LOOKS or any(set(gpus) & set(tenant.gpus) for gpus in there):
                self._leave(t_s, tenant, "it computes no more")
        for gpus, job in there.items():
            if all(self._free_name(gpu) in self.tenants for gpu in gpus):
                self._join(t_s, Tenant(name=self._unused(job.name), gpus=gpus, pid=job.pid, groups=job.groups))

    def _take(self, t_s: float, job: FoundJob, claim: Claim | None) -> Tenant:
        """A tuner has come for a job. Raises as `Steward.lend`."""
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
        for tenant in self._at(gpus):
            if tenant.tuned:
                self._look_at_tuned(t_s, tenant)
        for tenant in self._at(gpus):
            if tenant.tuned and not (tenant.waits and computing):
                raise DeviceLocked(f"a tuner has {tenant.name} under this budget already; wait for it to end")
        unbound, clocks = Unbound(since_s=t_s), Clocks()
        for tenant in self._at(gpus):
            if tenant.gpus == gpus and tenant.unbound is not None:
                unbound, clocks = tenant.unbound, tenant.clocks  # what was read stays, however often tuners come and go
            self._leave(t_s, tenant, budget.TUNER_CAME)
        pid = job.pid if claim is None or claim.root is not None else min(there[0].pids)
        tenant = Tenant(
            name=self._unused(FoundJob(pid=pid, uuids=job.uuids).name), gpus=gpus, pid=pid, tuned=True, claim=claim,
            waits=not computing, unbound=unbound, clocks=clocks,
        )  # fmt: skip
        self._join(t_s, tenant)
        if not tenant.waits:
            self._believe(t_s, tenant)
        return tenant

    def is_here(self, tenant: Tenant) -> bool:
        """Whether it has its devices still; one whose device has failed has not."""
        return self.tenants.get(tenant.name) is tenant

    def uuids(self, tenant: Tenant) -> tuple[str, ...]:
        """Of its devices."""
        return tuple(self._device.gpus[gpu].uuid for gpu in tenant.gpus)

    def _believe(self, t_s: float, tenant: Tenant) -> None:
        """Follow what its tuner says of a job, or what we read, where that says otherwise."""
        worst, unbound = self._prior(tenant), tenant.unbound
        assert unbound is not None
        drawn_w, before = unbound.most_w(t_s), tenant.doubt
        tenant.doubt = None if tenant.said is None else doubt(tenant.said, worst, drawn_w)
        if tenant.doubt is not None and before is None:
            tenant.believed = None
            self.ledger.curve(tenant.name, self._worst(tenant), measured=False)
            self._say(events.Warned(t_s=t_s, text=f"{tenant.name}: {tenant.doubt}"))
        if tenant.said is None or tenant.doubt is not None:
            if drawn_w is not None:
                self.ledger.drew(tenant.name, drawn_w)
        elif tenant.said is not tenant.believed:
            tenant.believed = tenant.said
            curve = believed(tenant.said, self._worst(tenant, OFF_HZ))
            self.ledger.curve(tenant.name, self._bounded(tenant, curve))
            self.ledger.drew(tenant.name, np.inf)  # of a tuned job it says nothing of what it asks for

    def _follow_clocks(self, tenant: Tenant) -> None:
        """They have been seen for longer, or at another cap: what nobody says of a job goes by them, and what its tuner
        says as far as they allow."""
        if tenant.waits:
            return
        if tenant.said is not None and tenant.doubt is None:
            tenant.believed = None
            return
        before, curve = self.ledger[tenant.name].curve, self._worst(tenant)
        if np.abs(np.interp(curve.caps_w, before.caps_w, before.slowdown) - curve.slowdown).max() > _MOVED:
            self.ledger.curve(tenant.name, curve, measured=False)

    def _worst(self, tenant: Tenant, off_hz: float = 0.0) -> JobCurve:
        """Of a job that computes all the time: by its clocks, where these have been seen. off_hz: by which these may be
        off, so that what a tuner has measured is not cut to steps of them: who is measured would be given less than who
        is not."""
        worst, most_hz = self._prior(tenant), [self._device.most_hz[gpu] for gpu in tenant.gpus]
        known = [hz for hz in most_hz if hz is not None]
        return tenant.clocks.curve(worst, min(known) if len(known) == len(most_hz) else None, off_hz=off_hz) or worst

    def _bounded(self, tenant: Tenant, curve: JobCurve) -> JobCurve:
        """The limit on its slowdown counts of who may change the budget: of others it would take watts from the rest,
        as a weight would."""
        trusted = tenant.claim is None or tenant.claim.trusted
        return curve if trusted else replace(curve, most_slowdown=np.inf)

    # Whether they are who they were.

    def _look_at_tuned(self, t_s: float, tenant: Tenant) -> None:
        if tenant.claim is None:
            return
        there = self._presences(tenant.claim, self.uuids(tenant))
        tenant.groups = frozenset(tenant.claim.groups)
        others, count = self._others(tenant.gpus, there), sum(bool(one.pids) for one in there)
        if others is not None:
            self._lose(t_s, tenant, others)
        elif count == len(there):
            tenant.missed, tenant.some_s = 0, None
            if tenant.waits:
                tenant.waits = False
                self.ledger.curve(tenant.name, self._worst(tenant), measured=False)
                tenant.believed = None
                self._believe(t_s, tenant)
            self._follow(t_s, tenant, min(pid for one in there for pid in one.pids))
        elif tenant.waits:
            tenant.some_s = None if not count else t_s if tenant.some_s is None else tenant.some_s
            if tenant.some_s is not None and t_s >= tenant.some_s + _SOME_S:
                self._lose(t_s, tenant, f"its job computes on {count} of the {len(there)} GPUs alone that were named")
        else:
            tenant.missed += 1
            if tenant.missed >= _LOOKS and count:
                self._lose(t_s, tenant, f"its job computes on {count} of its {len(there)} GPUs alone")
            elif tenant.missed >= _LOOKS:
                tenant.waits = True
                self.ledger.curve(tenant.name, self._least(tenant), measured=False)

    def _presences(self, claim: Claim | None, uuids: Sequence[str]) -> list[Presence]:
        if claim is None or self.presence is None:
            return [Presence(pids=(1,)) for _ in uuids]
        return [self.presence(claim, uuid) for uuid in uuids]

    def _others(self, gpus: Sequence[int], there: Sequence[Presence]) -> str | None:
        """Who is in the way, a clause."""
        said = zip(gpus, there, strict=True)
        return next((f"{self._device.gpus[gpu].where}: {one.other}" for gpu, one in said if one.other), None)

    def _goes_on(self, t_s: float, tenant: Tenant, job: FoundJob) -> bool:
        """Whether a job that is found is the one that was there."""
        if not (job.has(tenant.pid) or job.groups & tenant.groups):
            return False
        tenant.missed, tenant.groups = 0, job.groups
        if not job.has(tenant.pid):
            self._follow(t_s, tenant, job.pid)
        return True

    def _follow(self, t_s: float, tenant: Tenant, pid: int | None) -> None:
        """Have a job go by another process of it, where the one that it goes by has ended."""
        process = None if tenant.pid is None else identify(tenant.pid)
        if process is not None and process.is_alive():
            return
        before, tenant.pid = tenant.name, pid
        name = self._unused(FoundJob(pid=pid, uuids=self.uuids(tenant)).name)
        self.ledger.rename(before, name)
        tenant.name = name
        self.tenants = {one.name: one for one in self.tenants.values()}
        self._lowering.pop(before, None)  # it is ordered again
        self._say(budget.JobLeft(t_s=t_s, name=before, why=f"it goes on as {name}"))
        self._say_joined(t_s, tenant)

    def _lose(self, t_s: float, tenant: Tenant, why: str) -> None:
        """Its tuner may have it no more."""
        tenant.ended = why
        self._leave(t_s, tenant, f"its tuner has it no more: {why}")

    # Coming and going.

    def _at(self, gpus: Sequence[int]) -> list[Tenant]:
        return [one for one in self.tenants.values() if set(one.gpus) & set(gpus) and not one.free]

    def _join(self, t_s: float, tenant: Tenant) -> None:
        for gpu in tenant.gpus:
            free = self._free_name(gpu)
            self.ledger.leave(t_s, free)
            del self.tenants[free]
        curve = self._least(tenant) if tenant.waits else self._worst(tenant)
        tenant.unbound = tenant.unbound or Unbound(since_s=t_s)
        self.tenants[tenant.name] = tenant
        self.ledger.join(
            t_s, tenant.name, curve, max(self.caps.in_force_w[gpu] for gpu in tenant.gpus), " ".join(self.uuids(tenant))
        )
        self.ledger.weigh(tenant.name, self.weights.of(tenant.pid))
        self._say_joined(t_s, tenant)

    def _leave(self, t_s: float, tenant: Tenant, why: str) -> None:
        self.ledger.leave(t_s, tenant.name)
        del self.tenants[tenant.name]
        self._lowering.pop(tenant.name, None)
        if not tenant.free:
            self._say(budget.JobLeft(t_s=t_s, name=tenant.name, why=why))
        for gpu in tenant.gpus:
            if self.caps.has(gpu):
                self._free(t_s, gpu)

    def _free(self, t_s: float, gpu: int) -> None:
        name = self._free_name(gpu)
        self.tenants[name] = Tenant(name=name, gpus=(gpu,), free=True)
        self.ledger.join(t_s, name, self._least(self.tenants[name]), self.caps.in_force_w[gpu])

    def _prior(self, tenant: Tenant) -> JobCurve:
        """Of a job of which nothing is known."""
        least_w, most_w = (max(limits[gpu] for gpu in tenant.gpus) for limits in (self._least_w, self._found_w))
        return prior(least_w, max(most_w, least_w), devices=len(tenant.gpus))

    def _least(self, tenant: Tenant) -> JobCurve:
        """Of devices on which nobody computes."""
        least_w = max(self._least_w[gpu] for gpu in tenant.gpus)
        return JobCurve(
            caps_w=np.array([least_w]), slowdown=np.zeros(1), energy=np.ones(1), devices=len(tenant.gpus)
        )  # fmt: skip

    def _free_name(self, gpu: int) -> str:
        return f"free {self._device.gpus[gpu].where}"

    def _unused(self, name: str) -> str:
        taken = (f"{name} ({number})" for number in range(2, len(self.tenants) + 3))
        return name if name not in self.tenants else next(one for one in taken if one not in self.tenants)

    def _say_joined(self, t_s: float, tenant: Tenant) -> None:
        uuids = self.uuids(tenant)
        self._say(budget.JobJoined(t_s=t_s, name=tenant.name, uuids=uuids, pid=tenant.pid, tuned=tenant.tuned))
