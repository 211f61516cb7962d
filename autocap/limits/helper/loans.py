"""Who has which device at the moment. From any thread."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from autocap.limits.helper.protocol import Holder, LeaseStatus, Restored
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
