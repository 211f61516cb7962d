"""What all clients of one helper share, which device each has at the moment, and what one of them may have. From any
thread."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from autocap.devices.inventory import Inventory, ListedDevice
from autocap.errors import DeviceError
from autocap.limits import Guardian
from autocap.limits.helper.computing import Computing, computing, user_of
from autocap.limits.helper.policy import Grant, PolicyRefused, Rule
from autocap.limits.helper.protocol import Holder, LeaseStatus, Offer, Restored
from autocap.limits.lock import holder_pid
from autocap.limits.state_dir import StateDir
from autocap.records import GpuInfo
from autocap.wire.admission import Bounds, Buckets
from autocap.wire.who import Peer


@dataclass(slots=True, kw_only=True)
class Loan:
    """One client's. caps_w: last set, `None` where the limit found holds; found_w: those limits, none of them before
    the devices are under guard. Both are replaced as a whole, by its own thread. to_end: why it is to end, which that
    thread does soon. restored: what became of the limits, once it is over; `None` where that is not known."""

    peer: Peer
    devices: tuple[str, ...]
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    caps_w: tuple[float | None, ...] = ()
    found_w: tuple[float | None, ...] = ()
    to_end: str | None = None
    restored: tuple[Restored, ...] | None = ()
    over: threading.Event = field(default_factory=threading.Event)

    def shown(self) -> LeaseStatus:
        return LeaseStatus(
            uid=self.peer.uid,
            user=self.peer.name,
            pid=self.peer.pid,
            devices=self.devices,
            caps_w=self.caps_w,
            since=self.since.isoformat(timespec="seconds"),
        )


class InUse(Exception):
    """A device is lent to somebody. holder: to whom."""

    def __init__(self, uuid: str, holder: Peer) -> None:
        super().__init__(f"{uuid} is lent to {holder.who}; wait for it, or have that end")
        self.holder = holder


class Loans:
    """All leases of a helper."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_uuid: dict[str, Loan] = {}

    def take(self, peer: Peer, uuids: Sequence[str]) -> Loan:
        """Lend all of them, or raise InUse."""
        loan = Loan(peer=peer, devices=tuple(uuids), caps_w=(None,) * len(uuids))
        with self._lock:
            for uuid in uuids:
                if uuid in self._by_uuid:
                    raise InUse(uuid, self._by_uuid[uuid].peer)
            self._by_uuid.update(dict.fromkeys(uuids, loan))
        return loan

    def release(self, loan: Loan) -> None:
        with self._lock:
            for uuid in loan.devices:
                if self._by_uuid.get(uuid) is loan:
                    del self._by_uuid[uuid]
        loan.over.set()

    def end(self, uuids: Sequence[str], why: str) -> list[tuple[Loan, LeaseStatus]]:
        """Have those end that have one of these devices, which their own threads do; each with how it was before."""
        with self._lock:
            loans = {id(loan): loan for uuid in uuids if (loan := self._by_uuid.get(uuid)) is not None}
        found = [(loan, loan.shown()) for loan in loans.values()]
        for loan, _ in found:
            loan.to_end = why
        return found

    def holder(self, uuid: str) -> Holder | None:
        loan = self._of(uuid)
        return None if loan is None else Holder(uid=loan.peer.uid, pid=loan.peer.pid)

    def found_w(self, uuid: str) -> float | None:
        """The limit found of a device that is lent, watts."""
        loan = self._of(uuid)
        return dict(zip(loan.devices, loan.found_w, strict=False)).get(uuid) if loan is not None else None

    def all(self) -> tuple[LeaseStatus, ...]:
        """Those there are, the longest first."""
        with self._lock:
            loans = {id(loan): loan for loan in self._by_uuid.values()}
        return tuple(loan.shown() for loan in sorted(loans.values(), key=lambda loan: loan.since))

    def _of(self, uuid: str) -> Loan | None:
        with self._lock:
            return self._by_uuid.get(uuid)


log = logging.getLogger(__name__)

T = TypeVar("T")


class Coalesced(Generic[T]):
    """A look at something that many may want at once: one of them looks, for all who wait.

    look: takes a while, and may raise. From any thread.

    What somebody is given was looked at after they asked: who comes while a look is under way waits for the next one.
    So it is as new as a look of their own, and however many ask there is one at a time.
    """

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._turn = threading.Condition()
        self._begun, self._is_busy = 0, False
        self._found: tuple[int, T] | None = None  # of which look, by its number

    def __call__(self) -> T:
        """Raises what the look does, to whom it was that looked; the others look again."""
        with self._turn:
            wanted = self._begun + 1
            while self._found is None or self._found[0] < wanted:
                if not self._is_busy:
                    break
                self._turn.wait()
            else:
                return self._found[1]
            self._begun, self._is_busy = self._begun + 1, True
            number = self._begun
        try:
            found = self._look()
            self._found = number, found
            return found
        finally:
            with self._turn:
                self._is_busy = False
                self._turn.notify_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a client may do with a device now: caps from min_w to max_w, watts; sets_per_s: fewer than usual."""

    min_w: float
    max_w: float
    sets_per_s: float | None
    why: str


class Granting(Protocol):
    """What `Policy` is to the service's state."""

    @property
    def closed(self) -> bool: ...

    def names(self) -> list[tuple[Rule, str]]: ...

    def grant(self, peer: Peer, names: Sequence[str]) -> Grant | str: ...


class Policies(Protocol):
    """The policy, as it stands now; `PolicyFiles`, or what a keeper was told. path: where it comes from."""

    @property
    def path(self) -> Path: ...

    def current(self) -> Granting:
        """Raises PolicyRefused."""


class ServiceState:
    """inventories: of the devices that may be lent, by kind. state_dir: of the guardians. new_guardian: makes one, of
    what `Guardian` takes. now: the clock, seconds."""

    def __init__(
        self,
        *,
        inventories: Mapping[str, Inventory],
        policy: Policies,
        state_dir: Path,
        new_guardian: Callable[..., Guardian],
        bounds: Bounds | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inventories, self.policy, self.now = inventories, policy, now
        self.bounds = bounds or Bounds()
        self.loans = Loans()
        self.looks = Buckets(self.bounds.looks, now)
        self.lends = Buckets(self.bounds.lends, now)
        self.sets = Buckets(self.bounds.sets, now)
        self._state_dir, self._new_guardian = state_dir, new_guardian
        self.devices = Coalesced(self._all_devices)
        self._lock = threading.Lock()
        self._computing: dict[str, Coalesced[Computing]] = {}  # by UUID
        self._last_said = ""
        self._remarked: Granting | None = None
        self.unsettled = threading.Event()  # a limit could not be put back: somebody is to try again

    def terms(self, peer: Peer, device: ListedDevice) -> Terms | str:
        """What a client may do with a device, or why nothing, as a sentence."""
        if device.obstacle is not None:
            return device.obstacle
        if device.cap_range is None or device.requested_w is None:
            return "the limit that stands there cannot be read, so it could not be put back"
        try:
            grant = self.policy.current().grant(peer, device.names)
        except PolicyRefused as error:
            if str(error) != self._last_said:  # clients may ask many times a second
                self._last_said = str(error)
                log.error("%s", error)
            return str(error)
        if isinstance(grant, str):
            return grant
        other = self._other(peer, device, grant)
        if other is not None:
            return other
        found_w = self.loans.found_w(device.uuid) or device.requested_w
        return Terms(
            min_w=max(device.cap_range.min_w, grant.min_w),
            max_w=min(device.cap_range.max_w, grant.max_w, inf if grant.above_found else found_w),
            sets_per_s=grant.sets_per_s,
            why=grant.why,
        )

    def forbids(self, peer: Peer, device: ListedDevice, cap_w: float | None) -> str | None:
        """Why the policy, as it stands now, does not allow a client a cap that it has set, watts; `None` where it does.
        Who computes there is not looked at."""
        self.remark()
        try:
            grant = self.policy.current().grant(peer, device.names)
        except PolicyRefused as error:
            return str(error)
        if isinstance(grant, str):
            return grant
        if cap_w is None or grant.min_w <= cap_w <= grant.max_w:
            return None
        allowed = f"at least {grant.min_w:g} W" if cap_w < grant.min_w else f"at most {grant.max_w:g} W"
        return f"by now the policy allows {allowed} there, not {cap_w:g} W"

    def remark(self) -> None:
        """Say in the log what is likely to be a mistake of the policy, once each time that it has changed."""
        try:
            policy = self.policy.current()
            if policy is self._remarked:
                return
            devices = self.devices()
        except (PolicyRefused, DeviceError):  # which is said to whoever asks
            return
        self._remarked = policy
        if not policy.closed:
            log.info("there is no %s, so devices are lent to whoever computes there alone", self.policy.path)
        known = {name for device in devices for name in device.names}
        for rule, name in policy.names():
            if name not in known:
                there = ", ".join(sorted(known)) or "none"
                log.warning("a rule of %s is about %s, which is no device here; there is %s", rule.source, name, there)

    def offer(self, peer: Peer, device: ListedDevice) -> Offer:
        """The device as a client is told of it."""
        found = self.terms(peer, device)
        if isinstance(found, Terms) and found.min_w > found.max_w:
            found = (
                f"no cap may be set there: at least {found.min_w:g} W by the device and the policy, and at most "
                f"{found.max_w:g} W by the policy and the limit that stands, which is never exceeded"
            )
        terms = found if isinstance(found, Terms) else None
        bounds = terms or device.cap_range
        return Offer(
            uuid=device.uuid,
            kind=device.kind,
            name=device.name,
            min_w=None if bounds is None else bounds.min_w,
            max_w=None if bounds is None else bounds.max_w,
            requested_w=device.requested_w,
            allowed=terms is not None,
            why=found if isinstance(found, str) else found.why,
            lent_to=self.loans.holder(device.uuid),
        )

    def guardian(self, devices: Sequence[ListedDevice]) -> Guardian:
        """A new one, of devices of one kind. Raises DeviceError."""
        kind = devices[0].kind
        return self._new_guardian(
            kind=kind,
            gpus=[_info(index, device) for index, device in enumerate(devices)],
            limits=self.inventories[kind].limits(),
            job=None,
            state_dir=self._state_dir,
        )

    def outside_holder(self, uuids: Sequence[str]) -> Holder:
        """Which process, other than a client of ours, controls one of these devices, as far as its lock says."""
        with StateDir(self._state_dir) as state:
            pids = (holder_pid(state, uuid) for uuid in uuids)
            pid = next((pid for pid in pids if pid is not None), None)
        return Holder(uid=None if pid is None else user_of(pid).uid, pid=pid)

    def _all_devices(self) -> tuple[ListedDevice, ...]:
        return tuple(device for inventory in self.inventories.values() for device in inventory.devices())

    def _other(self, peer: Peer, device: ListedDevice, grant: Grant) -> str | None:
        """Who else has the device, as a sentence; `None` where that is nobody, or does not matter."""
        if not grant.alone:
            return None
        inventory = self.inventories[device.kind]
        if inventory.shared is not None:
            return f"{inventory.shared}, so a rule of the policy has to say `shared` or `given`"
        with self._lock:
            look = self._computing.setdefault(
                device.uuid, Coalesced(lambda: computing(lambda: inventory.pids(device.uuid)))
            )
        return look().other_than(peer)


def _info(index: int, device: ListedDevice) -> GpuInfo:
    if device.cap_range is None:
        raise DeviceError(f"{device.uuid} does not say which limits it takes")
    return GpuInfo(index=index, uuid=device.uuid, name=device.name, cap_range=device.cap_range)
