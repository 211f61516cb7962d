"""What a keeper was told by root before there was a session, and what it lends by that. Nothing that a session says
makes it more."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from autocap import devices
from autocap.devices.base import LimitPort
from autocap.devices.inventory import DescribedDevice, Inventory, ListedDevice, named
from autocap.job.invoking_user import InvokingUser
from autocap.limits.helper.policy import Grant, Rule
from autocap.records import CapRange
from autocap.wire.who import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFiles:
    """socket, state: the names of its files in the state directory. group: who may connect, by number; besides its user
    nobody when `None`. worker_variables: by which launchers number their workers."""

    socket: str
    state: str
    group: int | None
    worker_variables: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """uid, gid, groups: of the user. session: the PID of the process that becomes the session. device: as --device has
    it. gpus: those that --gpus names, all of the kind when `None`. min_w, max_w: bounds of caps; `None` for the
    device's own. node_power: as --node-power has it. job: the PID of one that runs already. observe: no limit is set.
    budget: what a manager of one has."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    session: int
    device: str
    gpus: tuple[str, ...] | None = None
    min_w: float | None = None
    max_w: float | None = None
    node_power: str = ""
    job: int | None = None
    observe: bool = False
    budget: BudgetFiles | None = None

    @classmethod
    def of(cls, user: InvokingUser, *, device: str, gpus: Sequence[str] | None, **more: Any) -> Self:
        """Of the process that calls this, which becomes the user's. more: as the fields have it."""
        named = None if gpus is None else tuple(gpus)
        made = cls(uid=user.uid, gid=user.gid, groups=user.groups, session=os.getpid(), device=device, gpus=named)
        return replace(made, **more)

    @property
    def kind(self) -> str:
        return devices.kind_of(self.device)

    @property
    def peer(self) -> Peer:
        """The session, as who speaks on the connections that were made for it."""
        return Peer(uid=self.uid, pid=self.session, groups=(self.gid, *self.groups))

    @property
    def has_limits(self) -> bool:
        """Whether any may be set that takes root's rights."""
        return not self.observe and self.kind != "emulated"

    def inventories(self) -> dict[str, Inventory]:
        """Of the devices whose limits may be set, by kind; none of those that need no root. Raises DeviceError."""
        kind = self.kind
        if not self.has_limits:
            return {}
        return {kind: devices.inventory_of(kind) or NamedDevice(kind, self.device.partition(":")[2])}


class ChargePolicy:
    """As `Policies` and as `Granting`: lends what a charge names to its user, whoever computes there, as root has asked
    for that. It is never another."""

    closed = True
    path = Path("the command line")

    def __init__(self, charge: Charge, inventories: dict[str, Inventory]) -> None:
        self._charge, self._inventories = charge, inventories
        self._named: frozenset[str] | None = None

    def current(self) -> "ChargePolicy":
        return self

    def names(self) -> list[tuple[Rule, str]]:
        return []

    def grant(self, peer: Peer, names: Sequence[str]) -> Grant | str:
        """As `Policy.grant`. Raises DeviceError where there is no such device as --gpus names."""
        if peer.uid != self._charge.uid:
            return "it is lent to the user who called sudo alone"
        if self._charge.gpus is not None and not self._allowed().intersection(names):
            return f"it is none of --gpus {','.join(self._charge.gpus)}"
        return Grant(
            min_w=self._charge.min_w or 0.0,
            max_w=float("inf") if self._charge.max_w is None else self._charge.max_w,
            alone=False,
            above_found=True,
            why="root has started this run for it",
        )

    def _allowed(self) -> frozenset[str]:
        assert self._charge.gpus is not None
        if self._named is None:
            listed = [device for inventory in self._inventories.values() for device in inventory.devices()]
            self._named = frozenset(uuid.lower() for uuid in named(listed, self._charge.gpus))
        return self._named


class NamedDevice(Inventory):
    """The one device of a kind that another package has added: that which stands behind `--device KIND:`. What it
    takes, it says itself."""

    def __init__(self, kind: str, uuid: str) -> None:
        self._kind, self._uuid = kind, uuid

    def devices(self) -> tuple[ListedDevice, ...]:
        requested_w = self.limits().requested_w(self._uuid)
        return (
            ListedDevice(
                index=0,
                uuid=self._uuid,
                kind=self._kind,
                name=self._uuid,
                cap_range=CapRange(min_w=_LEAST_W, max_w=_MOST_W, default_w=requested_w or _MOST_W),
                requested_w=requested_w,
            ),
        )

    def described(self) -> tuple[DescribedDevice, ...]:
        return ()

    def pids(self, uuid: str) -> tuple[int, ...] | None:
        return None

    def limits(self) -> LimitPort:
        return devices.outside_limits(self._kind, None)


_LEAST_W, _MOST_W = 1e-3, 1e6
