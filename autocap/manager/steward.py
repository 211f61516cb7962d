"""Carries a ledger's orders out on the GPUs of one machine, and sees who computes there. Knows no socket: told the
time, from one thread.

A GPU on which nobody computes is held at its lowest cap, so that a job that begins there is within the budget from its
first watt on.
"""

from collections.abc import Callable, Sequence

import numpy as np

from autocap import events
from autocap.budget.curves import JobCurve, prior
from autocap.budget.ledger import Ledger
from autocap.devices.base import PowerSource
from autocap.devices.nvml import NvmlDevice
from autocap.errors import DeviceError, DeviceLocked, GuardError, LimitRefused
from autocap.events import Event
from autocap.manager.caps import Caps
from autocap.manager.finding import FoundJob
from autocap.manager.rest import Rest
from autocap.manager.tenant import Lowering, Tenant
from autocap.manager.weights import Weights
from autocap.records import CapRange, Reading
from autocap.session.limit_watch import LimitWatch
from autocap.session.roles import LimitGuard

_LOOKS = 2  # in a row from which a job is missing that has ended
_ROUNDING_W = 1e-6


class Steward:
    """device: the GPUs, in the order of all caps. guard: entered. least_w: what the budget may lower each GPU to. say:
    takes what happens. tell: is called with a tenant whose ceiling its tuner has
    to know. node: of the machine's power.

    Raises GuardError where the limit of a GPU is not known, so that none could be put back.
    """

    def __init__(
        self,
        *,
        device: NvmlDevice,
        guard: LimitGuard,
        ledger: Ledger,
        least_w: Sequence[float],
        say: Callable[[Event], None],
        node: PowerSource | None = None,
    ) -> None:
        self._device, self.ledger, self._say = device, ledger, say
        self.tell: Callable[[Tenant], None] = lambda tenant: None
        self.caps = Caps(device.gpus, guard)
        self._found_w = self.caps.found_w
        self._least_w = tuple(min(low, high) for low, high in zip(least_w, self._found_w, strict=True))
        self._places = {gpu.uuid: place for place, gpu in enumerate(device.gpus)}
        self.tenants: dict[str, Tenant] = {}
        self.readings: tuple[Reading, ...] = ()
        self.short_w = 0.0
        self.pause: tuple[str, ...] = ()
        self.rest, self.weights = Rest(node, len(device.gpus)), Weights()
        self._lowering: dict[str, Lowering] = {}
        self._watch = LimitWatch(device.gpus)
        self._reserve(0.0)

    def begin(self, t_s: float) -> None:
        """All GPUs are free, for all that is known yet."""
        for place in range(len(self._found_w)):
            self._free(t_s, place)

    # Who is there.

    def look(self, t_s: float, found: Sequence[FoundJob]) -> None:
        """The jobs that compute now. Those whose GPUs a tuner has are its."""
        tuned = {gpu for tenant in self.tenants.values() if tenant.tuned for gpu in tenant.gpus}
        there: dict[tuple[int, ...], FoundJob] = {}
        for job in found:
            places = (self._places[uuid] for uuid in job.uuids if uuid in self._places)
            gpus = tuple(gpu for gpu in places if self.caps.has(gpu))
            if gpus and not set(gpus) & tuned:
                there[gpus] = job
        for tenant in [one for one in self.tenants.values() if not one.tuned and not one.free]:
            if tenant.gpus in there:
                tenant.missed = 0
                del there[tenant.gpus]
                continue
            tenant.missed += 1
            if tenant.missed >= _LOOKS or any(set(gpus) & set(tenant.gpus) for gpus in there):
                self._leave(t_s, tenant, "it computes no more")
        for gpus, job in there.items():
            if all(self._free_name(gpu) in self.tenants for gpu in gpus):
                self._join(t_s, Tenant(name=self._unused(job.name), gpus=gpus, pid=job.pid))

    def lend(self, t_s: float, job: FoundJob) -> Tenant:
        """A tuner comes for a job. Raises LimitRefused for a device that the budget does not have, and DeviceLocked
        where another tuner has it."""
        unknown = [uuid for uuid in job.uuids if uuid not in self._places]
        if unknown:
            raise LimitRefused(f"the budget does not have {unknown[0]}; add it to --gpus of `autocap budget`")
        gpus = tuple(self._places[uuid] for uuid in job.uuids)
        if not all(map(self.caps.has, gpus)):
            raise LimitRefused("a GPU of this job has failed, and is outside the budget now")
        for tenant in list(self.tenants.values()):
            if set(tenant.gpus) & set(gpus) and tenant.tuned:
                raise DeviceLocked(f"a tuner has {tenant.name} under this budget already; wait for it to end")
        for tenant in [one for one in self.tenants.values() if set(one.gpus) & set(gpus) and not one.free]:
            self._leave(t_s, tenant, events.TUNER_CAME)
        tenant = Tenant(name=self._unused(job.name), gpus=gpus, pid=job.pid, tuned=True)
        self._join(t_s, tenant)
        self.act(t_s)
        return tenant

    def release(self, t_s: float, tenant: Tenant) -> None:
        """Its tuner has gone: the job is one that nobody tunes, with what is known of it, as long as it computes."""
        if self.is_here(tenant) and tenant.tuned:
            tenant.tuned = tenant.silent = False
            tenant.missed = 0
            self.ledger.unattended(tenant.name)
            self._say_joined(t_s, tenant)
            self._set(t_s, self._given(tenant, tenant.ceiling_w))

    def silent(self, t_s: float, tenant: Tenant) -> None:
        """Its tuner was not heard of for too long: the devices get what the budget gives them until it is."""
        if self.is_here(tenant) and not tenant.silent:
            tenant.silent = tenant.put_back = True
            self._set(t_s, self._given(tenant, tenant.ceiling_w))

    def is_here(self, tenant: Tenant) -> bool:
        """Whether it has its devices still; one whose device has failed has not."""
        return self.tenants.get(tenant.name) is tenant

    def set_caps(self, t_s: float, tenant: Tenant, watts: Sequence[float]) -> None:
        """A tuner's caps, as far as its ceiling allows. Raises as `LimitGuard.set_caps`."""
        wanted = {gpu: min(cap_w, tenant.ceiling_w) for gpu, cap_w in zip(tenant.gpus, watts, strict=True)}
        self._set(t_s, {gpu: min(cap_w, self._found_w[gpu]) for gpu, cap_w in wanted.items()})

    def learn(self, tenant: Tenant, curve: JobCurve) -> None:
        """What its tuner knows of a job. Where it knows nothing of the lowest caps, the highest slowdown that it knows
        holds there and below at least."""
        least_w = max(self._least_w[gpu] for gpu in tenant.gpus)
        self.ledger.curve(tenant.name, curve.down_to(least_w))

    def found(self, tenant: Tenant) -> tuple[tuple[float, ...], tuple[CapRange, ...]]:
        """Of its devices: the limits found, watts, and the caps that they take."""
        ranges = tuple(self._device.gpus[gpu].cap_range for gpu in tenant.gpus)
        return tuple(self._found_w[gpu] for gpu in tenant.gpus), ranges

    def sample(self, t_s: float) -> None:
        """Read all devices, and draw conclusions. Raises DeviceError where all have failed, and GuardError where
        somebody else has changed a limit."""
        found = self._device.read_each()
        for gpu, one in enumerate(found):
            if isinstance(one, DeviceError):
                self.caps.fails(gpu, one)
        self._bury(t_s)
        gap = Reading(t_s=t_s, power_w=None)
        self.readings = tuple(gap if isinstance(one, DeviceError) else one for one in found)
        ours = [gap if not self.caps.has(gpu) else one for gpu, one in enumerate(self.readings)]
        changed = self._watch.change(ours, self.caps.in_force_w)
        if changed is not None:
            raise GuardError(changed)
        for tenant in self.tenants.values():
            readings = [self.readings[gpu] for gpu in tenant.gpus]
            tenant.drew(t_s, readings)
            known_w = [reading.power_w for reading in readings if reading.power_w is not None]
            self._confirm(t_s, tenant, known_w)
            most_w = tenant.most_drawn_w(t_s)
            if most_w is not None and not tenant.free and not tenant.tuned:  # a tuner knows what it asks for
                self.ledger.drew(tenant.name, most_w)
        if self.rest.see(t_s, self.readings):
            self._reserve(t_s)

    def uuids(self, tenant: Tenant) -> tuple[str, ...]:
        """Of its devices."""
        return tuple(self._device.gpus[gpu].uuid for gpu in tenant.gpus)

    def expected(self, tenant: Tenant) -> tuple[float, float]:
        """Its slowdown at its ceiling, as believed, and the standard error."""
        curve = self.ledger[tenant.name].curve
        errors = np.broadcast_to(curve.slowdown_stderr, curve.caps_w.shape)
        at_w = tenant.ceiling_w
        return float(np.interp(at_w, curve.caps_w, curve.slowdown)), float(np.interp(at_w, curve.caps_w, errors))

    # What is done.

    def act(self, t_s: float) -> None:
        """Carry out what the ledger orders now. Raises as `LimitGuard.set_caps`."""
        self._bury(t_s)
        decision = self.ledger.decide(t_s)
        caps_w: dict[int, float] = {}
        for order in decision.orders:
            tenant = self.tenants[order.name]
            tenant.ceiling_w = order.cap_w
            if tenant.tuned:
                self.tell(tenant)  # first, so that it does not take what follows for somebody else's doing
            caps_w |= self._given(tenant, order.cap_w)
        self._set(t_s, caps_w)
        self._bury(t_s)
        for order in decision.orders:
            if order.name not in self.tenants:
                continue
            self._say(self._granted(t_s, self.tenants[order.name]))
            if self.ledger[order.name].standing_w <= order.cap_w:
                self.ledger.confirm(order.name, order.serial)
            else:
                before = self._lowering.get(order.name)
                given_s = before.given_s if before is not None and before.order == order else t_s
                self._lowering[order.name] = Lowering(order=order, given_s=given_s, set_s=t_s)
        if abs(decision.short_w - self.short_w) > _ROUNDING_W or decision.pause != self.pause:
            self.short_w, self.pause = decision.short_w, decision.pause
            self._say(events.BudgetShort(t_s=t_s, short_w=self.short_w, pause=self.pause))

    def beat(self, t_s: float) -> None:
        """Say that we are alive, and set all caps again where they were put back because we seemed not to be. Raises
        as `LimitGuard.beat`."""
        if self.caps.beat():
            for tenant in self.tenants.values():
                tenant.put_back = tenant.tuned

    def _given(self, tenant: Tenant, cap_w: float) -> dict[int, float]:
        """What a ceiling makes of the caps of its devices: a tuner's own stay where they are below it."""
        caps_w = {gpu: min(cap_w, self._found_w[gpu]) for gpu in tenant.gpus}
        if not tenant.tuned or tenant.silent:
            return caps_w
        return {gpu: w for gpu, w in caps_w.items() if self.caps.in_force_w[gpu] > w}

    def _set(self, t_s: float, caps_w: dict[int, float]) -> None:
        changed = self.caps.set(caps_w)
        for tenant in self.tenants.values():
            if set(tenant.gpus) & changed:
                tenant.reset(t_s)

    def _bury(self, t_s: float) -> None:
        """GPUs have failed: their jobs take nothing of the budget any more, but what they may draw does."""
        for gpu, sentence in self.caps.news():
            for tenant in [one for one in self.tenants.values() if gpu in one.gpus]:
                self._leave(t_s, tenant, f"{self._device.gpus[gpu].where} has failed")
            self._say(events.Warned(t_s=t_s, text=sentence))
            self._reserve(t_s)

    def _confirm(self, t_s: float, tenant: Tenant, draws_w: Sequence[float]) -> None:
        lowering = self._lowering.get(tenant.name)
        if lowering is not None and lowering.is_done(t_s, draws_w, len(tenant.gpus)):
            del self._lowering[tenant.name]
            self.ledger.confirm(tenant.name, lowering.order.serial)
            after_s = t_s - lowering.given_s
            self._say(events.CapLowered(t_s=t_s, name=tenant.name, cap_w=lowering.order.cap_w, after_s=after_s))

    def _reserve(self, t_s: float) -> None:
        self.ledger.reserve(self.rest.reserved_w + sum(self.caps.counted_w.values()))
        self._say(events.BudgetReserved(t_s=t_s, reserved_w=self.rest.reserved_w))

    # Coming and going.

    def _join(self, t_s: float, tenant: Tenant) -> None:
        for gpu in tenant.gpus:
            free = self._free_name(gpu)
            self.ledger.leave(t_s, free)
            del self.tenants[free]
        least_w, most_w = max(self._least_w[gpu] for gpu in tenant.gpus), max(self._found_w[gpu] for gpu in tenant.gpus)
        curve = prior(least_w, max(most_w, least_w), devices=len(tenant.gpus))
        self.tenants[tenant.name] = tenant
        self.ledger.join(t_s, tenant.name, curve, max(self.caps.in_force_w[gpu] for gpu in tenant.gpus))
        self.ledger.weigh(tenant.name, self.weights.of(tenant.pid))
        self._say_joined(t_s, tenant)

    def _leave(self, t_s: float, tenant: Tenant, why: str) -> None:
        self.ledger.leave(t_s, tenant.name)
        del self.tenants[tenant.name]
        self._lowering.pop(tenant.name, None)
        if not tenant.free:
            self._say(events.JobLeft(t_s=t_s, name=tenant.name, why=why))
        for gpu in tenant.gpus:
            if self.caps.has(gpu):
                self._free(t_s, gpu)

    def _free(self, t_s: float, gpu: int) -> None:
        least_w = self._least_w[gpu]
        curve = JobCurve(caps_w=np.array([least_w]), slowdown=np.zeros(1), energy=np.ones(1))
        name = self._free_name(gpu)
        self.tenants[name] = Tenant(name=name, gpus=(gpu,), free=True)
        self.ledger.join(t_s, name, curve, self.caps.in_force_w[gpu])

    def _free_name(self, gpu: int) -> str:
        return f"free {self._device.gpus[gpu].where}"

    def _unused(self, name: str) -> str:
        taken = (f"{name} ({number})" for number in range(2, len(self.tenants) + 3))
        return name if name not in self.tenants else next(one for one in taken if one not in self.tenants)

    def _say_joined(self, t_s: float, tenant: Tenant) -> None:
        uuids = self.uuids(tenant)
        self._say(events.JobJoined(t_s=t_s, name=tenant.name, uuids=uuids, pid=tenant.pid, tuned=tenant.tuned))

    def _granted(self, t_s: float, tenant: Tenant) -> Event:
        if tenant.free:
            return events.CapGranted(t_s=t_s, name=tenant.name, cap_w=tenant.ceiling_w)
        slowdown, stderr = self.expected(tenant)
        return events.CapGranted(
            t_s=t_s, name=tenant.name, cap_w=tenant.ceiling_w, slowdown=slowdown, slowdown_stderr=stderr
        )
