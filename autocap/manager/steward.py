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
from autocap.devices.base import Device, PowerSource, require_inside
from autocap.errors import DeviceLocked, GuardError, LimitRefused
from autocap.events import Event
from autocap.manager.finding import FoundJob
from autocap.manager.rest import Rest
from autocap.manager.tenant import Lowering, Tenant
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
        device: Device,
        guard: LimitGuard,
        ledger: Ledger,
        least_w: Sequence[float],
        say: Callable[[Event], None],
        node: PowerSource | None = None,
    ) -> None:
        self._device, self._guard, self.ledger = device, guard, ledger
        self._say = say
        self.tell: Callable[[Tenant], None] = lambda tenant: None
        unknown = [gpu for gpu, w in zip(device.gpus, guard.original_w, strict=True) if w is None]
        if unknown:
            raise GuardError(
                f"the limit of {unknown[0].where} cannot be read, so it could not be put back; pass --gpus"
            )
        self._found_w = tuple(w for w in guard.original_w if w is not None)
        self._least_w = tuple(min(low, high) for low, high in zip(least_w, self._found_w, strict=True))
        self._places = {gpu.uuid: place for place, gpu in enumerate(device.gpus)}
        self.caps_w = list(self._found_w)  # in force
        self.tenants: dict[str, Tenant] = {}
        self.readings: tuple[Reading, ...] = ()
        self.short_w = 0.0
        self.pause: tuple[str, ...] = ()
        self.rest = Rest(node, len(device.gpus))
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
            gpus = tuple(self._places[uuid] for uuid in job.uuids if uuid in self._places)
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
        for tenant in list(self.tenants.values()):
            if set(tenant.gpus) & set(gpus) and tenant.tuned:
                raise DeviceLocked(f"a tuner has {tenant.name} under this budget already; wait for it to end")
        for tenant in [one for one in self.tenants.values() if set(one.gpus) & set(gpus) and not one.free]:
            self._leave(t_s, tenant, "a tuner has come")
        tenant = Tenant(name=self._unused(job.name), gpus=gpus, pid=job.pid, tuned=True)
        self._join(t_s, tenant)
        self.act(t_s)
        return tenant

    def release(self, t_s: float, tenant: Tenant) -> None:
        """Its tuner has gone: the job is one that nobody tunes, with what is known of it, as long as it computes."""
        if tenant.name in self.tenants and tenant.tuned:
            tenant.tuned = tenant.silent = False
            tenant.missed = 0
            self.ledger.unattended(tenant.name)
            self._say_joined(t_s, tenant)
            self._set(t_s, self._given(tenant, tenant.ceiling_w))

    def silent(self, t_s: float, tenant: Tenant) -> None:
        """Its tuner was not heard of for too long: the devices get what the budget gives them until it is."""
        if not tenant.silent:
            tenant.silent = tenant.put_back = True
            self._set(t_s, self._given(tenant, tenant.ceiling_w))

    def require_caps(self, tenant: Tenant, watts: Sequence[float]) -> None:
        """Raises LimitRefused for caps that its devices do not take."""
        if len(watts) != len(tenant.gpus):
            raise LimitRefused(f"these are {len(watts)} caps for {len(tenant.gpus)} devices; give each one")
        for gpu, cap_w in zip(tenant.gpus, watts, strict=True):
            one = self._device.gpus[gpu]
            require_inside(cap_w, one.cap_range.min_w, one.cap_range.max_w, one.where)

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

    # What they draw.

    def sample(self, t_s: float) -> None:
        """Read all devices, and draw conclusions. Raises DeviceError, and GuardError where somebody else has changed a
        limit."""
        self.readings = self._device.read()
        changed = self._watch.change(self.readings, self.caps_w)
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

    @property
    def power_w(self) -> float | None:
        """What all draw, watts; of the whole machine where that is known."""
        known_w = [reading.power_w for reading in self.readings if reading.power_w is not None]
        if not known_w or len(known_w) < len(self.readings):
            return None
        return sum(known_w) + self.rest.drawn_w

    def draw_w(self, tenant: Tenant) -> float | None:
        """What all devices of one draw, watts."""
        draws_w = [self.readings[gpu].power_w for gpu in tenant.gpus] if self.readings else []
        known_w = [w for w in draws_w if w is not None]
        return sum(known_w) if known_w and len(known_w) == len(draws_w) else None

    def uuids(self, tenant: Tenant) -> tuple[str, ...]:
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
        decision = self.ledger.decide(t_s)
        caps_w: dict[int, float] = {}
        for order in decision.orders:
            tenant = self.tenants[order.name]
            tenant.ceiling_w = order.cap_w
            if tenant.tuned:
                self.tell(tenant)  # first, so that it does not take what follows for somebody else's doing
            caps_w |= self._given(tenant, order.cap_w)
        self._set(t_s, caps_w)
        for order in decision.orders:
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
        if self._guard.beat():
            self._guard.set_caps(self.caps_w)
            for tenant in self.tenants.values():
                tenant.put_back = tenant.tuned

    def _given(self, tenant: Tenant, cap_w: float) -> dict[int, float]:
        """What a ceiling makes of the caps of its devices: a tuner's own stay where they are below it."""
        caps_w = {gpu: min(cap_w, self._found_w[gpu]) for gpu in tenant.gpus}
        if not tenant.tuned or tenant.silent:
            return caps_w
        return {gpu: w for gpu, w in caps_w.items() if self.caps_w[gpu] > w}

    def _set(self, t_s: float, caps_w: dict[int, float]) -> None:
        changed = {gpu: w for gpu, w in caps_w.items() if w != self.caps_w[gpu]}
        if not changed:
            return
        wanted_w = [changed.get(gpu, w) for gpu, w in enumerate(self.caps_w)]
        self._guard.set_caps(wanted_w)
        self.caps_w = wanted_w
        for tenant in self.tenants.values():
            if set(tenant.gpus) & set(changed):
                tenant.reset(t_s)

    def _confirm(self, t_s: float, tenant: Tenant, draws_w: Sequence[float]) -> None:
        lowering = self._lowering.get(tenant.name)
        if lowering is not None and lowering.is_done(t_s, draws_w, len(tenant.gpus)):
            del self._lowering[tenant.name]
            self.ledger.confirm(tenant.name, lowering.order.serial)
            after_s = t_s - lowering.given_s
            self._say(events.CapLowered(t_s=t_s, name=tenant.name, cap_w=lowering.order.cap_w, after_s=after_s))

    def _reserve(self, t_s: float) -> None:
        self.ledger.reserve(self.rest.reserved_w)
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
        self.ledger.join(t_s, tenant.name, curve, max(self.caps_w[gpu] for gpu in tenant.gpus))
        self._say_joined(t_s, tenant)

    def _leave(self, t_s: float, tenant: Tenant, why: str) -> None:
        self.ledger.leave(t_s, tenant.name)
        del self.tenants[tenant.name]
        self._lowering.pop(tenant.name, None)
        self._say(events.JobLeft(t_s=t_s, name=tenant.name, why=why))
        for gpu in tenant.gpus:
            self._free(t_s, gpu)

    def _free(self, t_s: float, gpu: int) -> None:
        least_w = self._least_w[gpu]
        curve = JobCurve(caps_w=np.array([least_w]), slowdown=np.zeros(1), energy=np.ones(1))
        name = self._free_name(gpu)
        self.tenants[name] = Tenant(name=name, gpus=(gpu,), free=True)
        self.ledger.join(t_s, name, curve, self.caps_w[gpu])

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
