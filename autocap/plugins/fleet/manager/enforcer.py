"""Carries a ledger's orders out on the GPUs of one machine. Knows no socket: told the time, from one thread."""

import math
import os
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from autocap import events
from autocap.devices.base import PowerSource
from autocap.devices.inventory import HoldableDevice
from autocap.errors import DeviceError, GuardError
from autocap.events import Event
from autocap.limits.guard import LimitGuard
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.budget.protocol import JobStanding, Standing
from autocap.plugins.fleet.budget.shares import JobCurve
from autocap.plugins.fleet.manager.allocation import Allocation, Lowering, forget, upper
from autocap.plugins.fleet.manager.finding import Claim, FoundJob
from autocap.plugins.fleet.manager.occupancy import Caps, Occupancy
from autocap.records import CapRange, NodeReading, Reading
from autocap.session.limit_watch import LimitWatch

_ROUNDING_W = 1e-6
_NEAR_W, _NEAR = 0.05, 0.001  # of a cap and of a slowdown that are to be said anew
_BEYOND = 0.01  # of a slowdown above what is allowed: caps come in steps, and curves have errors
_OVER_S = 60.0  # for which what the machine draws is kept
_SENSOR_W = 1.0  # one reading step of a sensor, of as many as there are
_STEP = 0.02  # of what is reserved; less is no news


class NonGpuPower:
    """What a machine draws beside the GPUs of a budget: reserved, with the errors of the GPUs' own sensors.

    node: of the machine's power, `None` where the budget is of the GPUs alone. gpus: how many. reading: the latest;
    drawn_w: in it, beside the GPUs, watts. reserved_w: its upper quantile over the last minute, and the guard band."""

    def __init__(self, node: PowerSource | None, gpus: int) -> None:
        self._node, self._band_w = node, _SENSOR_W * math.sqrt(gpus)
        self._seen: deque[tuple[float, float]] = deque()
        self.reading: NodeReading | None = None
        self.drawn_w, self.reserved_w = 0.0, self._band_w

    def see(self, t_s: float, readings: Sequence[Reading]) -> bool:
        """Read the machine's power beside that of the GPUs; whether another reserve came of it."""
        self.reading = node = None if self._node is None else self._node.read()
        gpus_w = [reading.power_w for reading in readings if reading.power_w is not None]
        if node is None or node.power_w is None or (node.whole and len(gpus_w) < len(readings)):
            return False
        self.drawn_w = max(0.0, node.power_w - sum(gpus_w) if node.whole else node.power_w)
        self._seen.append((t_s, self.drawn_w))
        forget(self._seen, t_s - _OVER_S)
        reserved_w = upper(self._seen) + self._band_w
        if abs(reserved_w - self.reserved_w) <= _STEP * self.reserved_w:
            return False
        self.reserved_w = reserved_w
        return True


class BudgetEnforcer(Occupancy):
    """device: the GPUs, in the order of all caps. guard: entered. least_w: what the budget may lower each GPU to. say:
    takes what happens. tell: is called with an allocation whose ceiling its tuner has
    to know. node: of the machine's power.

    Raises GuardError where the limit of a GPU is not known, so that none could be put back.
    """

    def __init__(
        self,
        *,
        device: HoldableDevice,
        guard: LimitGuard,
        ledger: Ledger,
        least_w: Sequence[float],
        say: Callable[[Event], None],
        node: PowerSource | None = None,
    ) -> None:
        caps = Caps(device.gpus, guard)
        super().__init__(device=device, caps=caps, ledger=ledger, least_w=least_w, say=say)
        self.tell: Callable[[Allocation], None] = lambda allocation: None
        self.readings: tuple[Reading, ...] = ()
        self.short_w = 0.0
        self.pause: tuple[str, ...] = ()
        self.rest = NonGpuPower(node, len(device.gpus))
        self._watch = LimitWatch(device.gpus)
        self._reserve(0.0)

    def lend(self, t_s: float, job: FoundJob, claim: Claim | None = None) -> Allocation:
        """A tuner comes for a job. Raises LimitRefused for a device that the budget does not have, or on which somebody
        else computes, and DeviceLocked where another tuner has it, whose job computes there."""
        allocation = self._take(t_s, job, claim)
        self.act(t_s)
        return allocation

    def release(self, t_s: float, allocation: Allocation) -> None:
        """Its tuner has gone: the job is one that nobody tunes, with what is known of it, as long as it computes."""
        if self.is_here(allocation) and allocation.tuned:
            allocation.tuned = allocation.silent = False
            allocation.claim, allocation.missed, allocation.doubt = None, 0, None
            self.ledger.unattended(allocation.name)
            self._say_joined(t_s, allocation)
            self._set(t_s, self._given(allocation, allocation.ceiling_w))

    def silent(self, t_s: float, allocation: Allocation) -> None:
        """Its tuner was not heard of for too long: the devices get what the budget gives them until it is."""
        if self.is_here(allocation) and not allocation.silent:
            allocation.silent = allocation.put_back = True
            self._set(t_s, self._given(allocation, allocation.ceiling_w))

    def set_caps(self, t_s: float, allocation: Allocation, watts: Sequence[float]) -> None:
        """A tuner's caps, as far as its ceiling allows. Raises as `LimitGuard.set_caps`."""
        wanted = {gpu: min(cap_w, allocation.ceiling_w) for gpu, cap_w in zip(allocation.gpus, watts, strict=True)}
        self._set(t_s, {gpu: min(cap_w, self._found_w[gpu]) for gpu, cap_w in wanted.items()})

    def learn(self, t_s: float, allocation: Allocation, curve: JobCurve) -> None:
        """What its tuner knows of a job. Where it knows nothing of the lowest caps, the curve goes on as it came."""
        allocation.said = curve
        if not allocation.waits:
            self._believe(t_s, allocation)

    def found(self, allocation: Allocation) -> tuple[tuple[float, ...], tuple[CapRange, ...]]:
        """Of its devices: the limits found, watts, and the caps that they take."""
        ranges = tuple(self._device.gpus[gpu].cap_range for gpu in allocation.gpus)
        return tuple(self._found_w[gpu] for gpu in allocation.gpus), ranges

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
        for allocation in self.allocations.values():
            readings = [self.readings[gpu] for gpu in allocation.gpus]
            allocation.drew(t_s, readings)
            known_w = [reading.power_w for reading in readings if reading.power_w is not None]
            self._confirm(t_s, allocation, known_w)
            if allocation.free:
                continue
            assert allocation.unbound is not None
            allocation.unbound.see(t_s, readings, [self.caps.in_force_w[gpu] for gpu in allocation.gpus])
            self._tell_held(t_s, allocation)
            most_w = allocation.most_drawn_w(t_s)
            if allocation.clocks.see(self.cap_w(allocation), readings):
                self._follow_clocks(allocation)
            if allocation.tuned and not allocation.waits:
                self._believe(t_s, allocation)
            elif most_w is not None and not allocation.tuned:
                self.ledger.drew(allocation.name, most_w)
        if self.rest.see(t_s, self.readings):
            self._reserve(t_s)

    def cap_w(self, allocation: Allocation) -> float:
        """The cap in force at its devices, watts, the lowest of them."""
        return min(self.caps.in_force_w[gpu] for gpu in allocation.gpus)

    def expected(self, allocation: Allocation) -> tuple[float, float]:
        """Its slowdown at the cap in force, as believed, and the standard error."""
        curve, at_w = self.ledger[allocation.name].curve, self.cap_w(allocation)
        errors = np.broadcast_to(curve.slowdown_stderr, curve.caps_w.shape)
        return float(np.interp(at_w, curve.caps_w, curve.slowdown)), float(np.interp(at_w, curve.caps_w, errors))

    def _tell_held(self, t_s: float, allocation: Allocation) -> None:
        """Say which cap is in force and what it costs, where that is another one; and where it costs more than the
        job's tuner allows."""
        held = self.cap_w(allocation), *self.expected(allocation)
        before = allocation.held
        if before is None or abs(held[0] - before[0]) > _NEAR_W or abs(held[1] - before[1]) > _NEAR:
            allocation.held = held
            cap_w, slowdown, stderr = held
            self._say(
                budget.CapHeld(t_s=t_s, name=allocation.name, cap_w=cap_w, slowdown=slowdown, slowdown_stderr=stderr)
            )
        said = allocation.said if allocation.tuned else None
        at_most = np.inf if said is None else said.most_slowdown + _BEYOND * (not allocation.beyond)
        beyond = held[1] > at_most and held[0] >= allocation.ceiling_w - _NEAR_W
        if beyond and not allocation.beyond and said is not None:
            self._say(
                events.Warned(
                    t_s=t_s,
                    text=f"{allocation.name} is slowed down by {100 * held[1]:.1f} % by the "
                    f"{allocation.ceiling_w:.0f} W that {self.ledger.budget_w:g} W leave it, and its tuner allows "
                    f"{100 * said.most_slowdown:g} %: "
                    "raise the budget, or its weight, or --max-slowdown",
                )
            )
        allocation.beyond = beyond

    def standing(self, *, policy: str, record: str, follows: tuple[str, ...] = ()) -> Standing:
        """record: the run directory. follows: sentences on events."""
        free = [one for one in self.allocations.values() if one.free]
        return Standing(
            budget_w=self.ledger.budget_w,
            policy=policy,
            reserved_w=self.rest.reserved_w,
            room_w=self.ledger.room_w,
            power_w=self._drawn_w(self.readings, self.rest.drawn_w),
            short_w=self.short_w,
            pause=self.pause,
            jobs=tuple(self._job(one) for one in self.allocations.values() if not one.free),
            free=tuple(uuid for one in free for uuid in self.uuids(one)),
            record=record,
            pid=os.getpid(),
            failed=self.caps.sentences,
            follows=follows,
        )

    def _job(self, allocation: Allocation) -> JobStanding:
        slowdown, stderr = self.expected(allocation)
        account = self.ledger[allocation.name]
        most = math.inf if allocation.said is None or not allocation.tuned else allocation.said.most_slowdown
        return JobStanding(
            name=allocation.name,
            devices=self.uuids(allocation),
            tuned=allocation.tuned,
            pid=allocation.pid,
            cap_w=self.cap_w(allocation),
            lowest_w=account.lowest_w,
            draw_w=self._drawn_w([self.readings[gpu] for gpu in allocation.gpus] if self.readings else []),
            slowdown=slowdown,
            slowdown_stderr=stderr,
            weight=1.0 if account.weight is None else account.weight,
            doubt=allocation.doubt,
            ceiling_w=allocation.ceiling_w,
            most_slowdown=most if most < math.inf else None,
        )

    @staticmethod
    def _drawn_w(readings: Sequence[Reading], beside_w: float = 0.0) -> float | None:
        """What some devices draw together, and what is drawn beside them, watts; `None` where that is not known."""
        known_w = [reading.power_w for reading in readings if reading.power_w is not None]
        return sum(known_w) + beside_w if known_w and len(known_w) == len(readings) else None

    # What is done.

    def act(self, t_s: float) -> None:
        """Carry out what the ledger orders now. Raises as `LimitGuard.set_caps`."""
        self._bury(t_s)
        decision = self.ledger.decide(t_s)
        caps_w: dict[int, float] = {}
        for order in decision.orders:
            allocation = self.allocations[order.name]
            allocation.ceiling_w = order.cap_w
            if allocation.tuned:
                self.tell(allocation)  # first, so that it does not take what follows for somebody else's doing
            caps_w |= self._given(allocation, order.cap_w)
        self._set(t_s, caps_w)
        self._bury(t_s)
        for order in decision.orders:
            if order.name not in self.allocations:
                continue
            self._say(budget.CapGranted(t_s=t_s, name=order.name, cap_w=self.allocations[order.name].ceiling_w))
            if self.ledger[order.name].standing_w <= order.cap_w:
                self.ledger.confirm(order.name, order.serial)
            else:
                before = self._lowering.get(order.name)
                if before is None or before.order != order:  # else it was given again, and its time runs on
                    self._lowering[order.name] = Lowering(order=order, given_s=t_s)
        if abs(decision.short_w - self.short_w) > _ROUNDING_W or decision.pause != self.pause:
            self.short_w, self.pause = decision.short_w, decision.pause
            self._say(budget.BudgetShort(t_s=t_s, short_w=self.short_w, pause=self.pause))

    def beat(self, t_s: float) -> None:
        """Say that we are alive, and set all caps again where they were put back because we seemed not to be. Raises
        as `LimitGuard.beat`."""
        if self.caps.beat():
            for allocation in self.allocations.values():
                allocation.put_back = allocation.tuned

    def _given(self, allocation: Allocation, cap_w: float) -> dict[int, float]:
        """What a ceiling makes of the caps of its devices: a tuner's own stay where they are below it."""
        caps_w = {gpu: min(cap_w, self._found_w[gpu]) for gpu in allocation.gpus}
        if not allocation.tuned or allocation.silent:
            return caps_w
        return {gpu: w for gpu, w in caps_w.items() if self.caps.in_force_w[gpu] > w}

    def _set(self, t_s: float, caps_w: dict[int, float]) -> None:
        changed = self.caps.set(caps_w)
        for allocation in self.allocations.values():
            if set(allocation.gpus) & changed:
                allocation.reset(t_s)

    def _bury(self, t_s: float) -> None:
        """GPUs have failed: their jobs take nothing of the budget any more, but what they may draw does."""
        for gpu, sentence in self.caps.news():
            for allocation in [one for one in self.allocations.values() if gpu in one.gpus]:
                self._leave(t_s, allocation, f"{self._device.gpus[gpu].where} has failed")
            self._say(events.Warned(t_s=t_s, text=sentence))
            self._reserve(t_s)

    def _confirm(self, t_s: float, allocation: Allocation, draws_w: Sequence[float]) -> None:
        lowering = self._lowering.get(allocation.name)
        if lowering is not None and lowering.is_done(t_s, draws_w, len(allocation.gpus)):
            del self._lowering[allocation.name]
            self.ledger.confirm(allocation.name, lowering.order.serial)
            after_s = t_s - lowering.given_s
            self._say(budget.CapLowered(t_s=t_s, name=allocation.name, cap_w=lowering.order.cap_w, after_s=after_s))

    def _reserve(self, t_s: float) -> None:
        self.ledger.reserve(self.rest.reserved_w + sum(self.caps.counted_w.values()))
        self._say(budget.BudgetReserved(t_s=t_s, reserved_w=self.rest.reserved_w))
