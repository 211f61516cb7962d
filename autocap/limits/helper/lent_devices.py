"""A client's devices under a guardian, for as long as it lives and speaks. From one thread."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

from autocap.devices.base import require_inside
from autocap.devices.inventory import ListedDevice
from autocap.errors import (
    AutocapError,
    DeviceLocked,
    GuardError,
    LimitClamped,
    LimitIgnored,
    LimitNotEnforced,
    LimitOutside,
    LimitOvertaken,
    LimitRefused,
)
from autocap.limits import ForeignLimit, Guardian, Restored
from autocap.limits.background_call import BackgroundCall
from autocap.limits.helper.protocol import Code, Holder, Lent, Refusal
from autocap.limits.helper.service_state import InUse, ServiceState, Terms
from autocap.limits.times import BEAT_APART_S
from autocap.wire.refusal import Refused, refused
from autocap.wire.who import Peer

log = logging.getLogger(__name__)

ASKED = "asked for"  # why limits are put back: by the client, and the lease goes on


def refusal_of(error: AutocapError) -> Refusal:
    """What a client is told of an error of a guardian or a device."""
    text = str(error)
    if isinstance(error, ForeignLimit):
        expected_w, found_w = error.expected_w, error.found_w
        return Refusal(code=Code.FOREIGN, text=text, uuid=error.uuid, expected_w=expected_w, found_w=found_w)
    if isinstance(error, LimitOvertaken):
        return Refusal(code=Code.REFUSED, text=text, kind="overtaken", found_w=error.found_w)
    if isinstance(error, LimitOutside):
        return Refusal(code=Code.REFUSED, text=text, kind="refused", expected_w=error.cap_w)
    if isinstance(error, LimitClamped | LimitIgnored):
        return Refusal(code=Code.REFUSED, text=text, kind="refused", found_w=error.found_w)
    if isinstance(error, LimitNotEnforced):
        return Refusal(code=Code.REFUSED, text=text, kind="not_enforced", found_w=error.found_w)
    if isinstance(error, LimitRefused):
        return Refusal(code=Code.REFUSED, text=text, kind="refused")
    return Refusal(code=Code.GUARD, text=text)


class LentDevices:
    """From its beginning until `end`. uuids: of the devices, in the order of all caps. is_there: whether the client is;
    asked while a driver takes its time to set limits.

    lent: what the client is told of it. put_back: it is to be told that limits were put back. Raises Refused where the
    devices are not to be had; then nothing is held.
    """

    def __init__(
        self, service_state: ServiceState, peer: Peer, uuids: Sequence[str], is_there: Callable[[], bool]
    ) -> None:
        self._service_state, self._peer, self._is_there = service_state, peer, is_there
        self._aside = BackgroundCall[None]()
        self._names = ", ".join(uuids)
        self._told = 0
        self.put_back = False
        self._devices = _known(service_state, uuids)
        with ExitStack() as stack:
            try:
                self._loan = service_state.loans.take(peer, uuids)
            except InUse as error:
                raise _in_use(str(error), Holder(uid=error.holder.uid, pid=error.holder.pid)) from error
            stack.callback(service_state.loans.release, self._loan)
            self._terms("is not lent")
            try:
                self._guardian: Guardian = stack.enter_context(service_state.guardian(self._devices))
            except DeviceLocked as error:
                raise _in_use(str(error), service_state.outside_holder(uuids)) from error
            except AutocapError as error:
                raise Refused(refusal_of(error)) from error
            self._loan.found_w = self._guardian.original_w
            # Once more: what was read before may have been the cap of whoever has just given it back.
            terms = self._terms("is not lent")
            self._stack = stack.pop_all()
        self.lent = Lent(
            original_w=self._loan.found_w,
            min_w=tuple(one.min_w for one in terms),
            max_w=tuple(one.max_w for one in terms),
            notes=self.new_notes(),
        )
        log.info("%s has the limits of %s; found: %s", peer.who, self._names, _watts(self._loan.found_w))

    def new_notes(self) -> tuple[str, ...]:
        """What the guardian has noted since the last time."""
        notes = self._guardian.notes
        fresh, self._told = notes[self._told :], len(notes)
        return fresh

    def rehearse(self) -> None:
        """Request the limit found of each device. Raises Refused."""
        self._count_sets(self._terms())
        self._carry_out(self._guardian.rehearse)

    def set_caps(self, watts: Sequence[float]) -> None:
        """Raises Refused; devices beside the one that was refused may have their cap."""
        if len(watts) != len(self._devices):
            raise refused(Code.BAD_MESSAGE, f"these are {len(watts)} caps for {len(self._devices)} devices lent")
        terms = self._terms()
        for device, cap_w, one, found_w in zip(self._devices, watts, terms, self._loan.found_w, strict=True):
            if cap_w != found_w:  # which may always be had again
                _require_inside(device, cap_w, one)
        self._count_sets(terms)
        self._loan.caps_w = tuple(watts)
        try:
            self._carry_out(lambda: self._guardian.set_caps(watts))
        except Refused as error:
            failed = self._guardian.failed
            if failed is None or error.refusal.uuid is not None:
                raise
            raise Refused(replace(error.refusal, uuid=self._devices[failed].uuid)) from error
        log.info("%s has set %s to %s", self._peer.who, self._names, _watts(watts))

    def beat(self) -> None:
        """Tell the watchdog that we are there, and take in what it did. Raises GuardError where there is none."""
        if self._guardian.beat():
            self.put_back = True
            log.warning("the limits of %s were, or may have been, put back by the watchdog", self._names)

    def restore(self, why: str) -> tuple[Restored, ...]:
        """Put back the limits found; caps may be set again. why: for the log, which hears of it once after each cap,
        however often a client asks."""
        restored, has_caps = self._guardian.restore(), any(cap_w is not None for cap_w in self._loan.caps_w)
        self._loan.caps_w = (None,) * len(self._devices)
        if not has_caps and why == ASKED:
            return restored
        for one in restored:
            if one.failure is not None:
                self._service_state.unsettled.set()
            level = logging.INFO if one.note is None else logging.ERROR if one.failure else logging.WARNING
            back = f"{one.uuid} is back at {_watts([one.final_w])}" if one.note is None else one.note
            log.log(level, "%s: %s (%s)", self._peer.who, back, why)
        return restored

    def leave_out(self, uuids: Sequence[str]) -> tuple[Restored, ...]:
        """Put back the limits of some devices, and set none there any more. Raises Refused for one that is not lent."""
        places = {device.uuid: place for place, device in enumerate(self._devices)}
        if unknown := [uuid for uuid in uuids if uuid not in places]:
            raise refused(Code.UNKNOWN_DEVICE, f"{unknown[0]} is not lent to this connection")
        log.warning("%s leaves out %s", self._peer.who, ", ".join(uuids))
        return tuple(self._guardian.leave_out(places[uuid]) for uuid in uuids)

    def lapse(self, why: str) -> None:
        """The client has fallen silent: put the limits back, and have it told once it speaks, and may set, again."""
        self.put_back = True
        self.restore(why)

    def require_allowed(self) -> None:
        """Raises Refused where the client may have these devices no more."""
        self._terms()

    def require_bounds(self) -> None:
        """Raises Refused where the policy allows the client nothing there any more, or not the caps that it has set."""
        for device, cap_w, found_w in zip(self._devices, self._loan.caps_w, self._loan.found_w, strict=True):
            why = self._service_state.forbids(self._peer, device, None if cap_w == found_w else cap_w)
            if why is not None:
                text = f"the limit of {device.uuid} is lent no longer: {why}"
                raise Refused(Refusal(code=Code.NOT_ALLOWED, text=text), ended=True)

    @property
    def to_end(self) -> str | None:
        """Why it is to end, as root has asked for; `None` while nobody has."""
        return self._loan.to_end

    def end(self, why: str) -> tuple[Restored, ...]:
        """Put the limits back and let go of the devices, whatever becomes of it."""
        with self._stack:
            self._aside.end()
            self._loan.restored = None
            self._loan.restored = restored = self.restore(why)
            return restored

    def _terms(self, word: str = "is lent no longer") -> list[Terms]:
        """Raises Refused."""
        found = [self._service_state.terms(self._peer, device) for device in self._devices]
        for device, terms in zip(self._devices, found, strict=True):
            if isinstance(terms, str):
                text = f"the limit of {device.uuid} {word}: {terms}"
                raise Refused(Refusal(code=Code.NOT_ALLOWED, text=text), ended=True)
        return [terms for terms in found if isinstance(terms, Terms)]

    def _count_sets(self, terms: Sequence[Terms]) -> None:
        rates = [one.sets_per_s for one in terms if one.sets_per_s is not None]
        wait_s = self._service_state.sets.take(*self._loan.devices, per_s=min(rates, default=None))
        if wait_s > 0:
            raise refused(Code.TOO_FAST, f"limits are set too often; wait {wait_s:.2f} s", wait_s)

    def _carry_out(self, act: Callable[[], None]) -> None:
        try:
            self._aside.finish(act, self._stay, BEAT_APART_S)
        except AutocapError as error:
            log.warning("%s: %s", self._peer.who, error)
            raise Refused(refusal_of(error)) from error

    def _stay(self) -> None:
        """While a driver takes its time."""
        if not self._is_there():
            self._guardian.restore()
            return
        with suppress(GuardError):  # which the set meets as well
            self.beat()


def _known(service_state: ServiceState, uuids: Sequence[str]) -> list[ListedDevice]:
    """Raises Refused for a device that is not there, and for kinds that do not go together."""
    try:
        known = {device.uuid: device for device in service_state.devices()}
    except AutocapError as error:
        raise Refused(refusal_of(error)) from error
    for uuid in uuids:
        if uuid not in known:
            raise refused(Code.UNKNOWN_DEVICE, f"there is no device {uuid} here; there is {', '.join(known) or 'none'}")
    devices = [known[uuid] for uuid in uuids]
    if len({device.kind for device in devices}) > 1:
        raise refused(Code.NOT_ALLOWED, "GPUs and CPU packages are not lent together; ask for one kind")
    return devices


def _in_use(text: str, holder: Holder) -> Refused:
    return Refused(Refusal(code=Code.IN_USE, text=text, uid=holder.uid, pid=holder.pid))


def _require_inside(device: ListedDevice, cap_w: float, terms: Terms) -> None:
    try:
        require_inside(cap_w, terms.min_w, terms.max_w, f"{device.uuid} as it is lent")
    except LimitRefused as error:
        raise Refused(refusal_of(error)) from error


def _watts(watts: Sequence[float | None]) -> str:
    return ", ".join("not known" if one is None else f"{one:g} W" for one in watts)
