"""Where clients of a budget's manager speak: a line in, a line out, from the manager's one thread. Whatever a client
does or leaves undone holds up nobody else."""

import socket
from collections.abc import Callable

import numpy as np

from autocap.errors import DeviceLocked, LimitRefused
from autocap.limits.helper.lent_devices import refusal_of
from autocap.limits.times import HANG_S
from autocap.plugins.fleet.budget.curves import JobCurve
from autocap.plugins.fleet.budget.words import (
    Beat,
    Code,
    Done,
    Join,
    Joined,
    Known,
    Leave,
    Left,
    Set,
    Told,
    encode_answer,
)
from autocap.plugins.fleet.manager.claims import NoClaim, claimed
from autocap.plugins.fleet.manager.finding import FoundJob
from autocap.plugins.fleet.manager.reception import Client, Control, Reception, is_owner
from autocap.plugins.fleet.manager.steward import Steward
from autocap.plugins.fleet.manager.tenant import Tenant
from autocap.wire.refusal import Refused, refused

_DEED = 25.0  # words: what touches devices counts for as many


class Hall(Reception):
    """Clients of a manager: its tuners, and whoever speaks to the budget. now: seconds, on the steward's clock."""

    def __init__(self, listener: socket.socket, steward: Steward, control: Control, now: Callable[[], float]) -> None:
        super().__init__(listener, control, now)
        self._steward = steward
        self._answers |= {
            Join: self._join,
            Set: self._set,
            Beat: self._beat,
            Known: self._known,
            Leave: self._leave,
        }

    def pass_time(self) -> None:
        """See who was silent for too long."""
        super().pass_time()
        for visitor in self._visitors.values():
            if visitor.tenant is not None and self._now() - visitor.heard_s >= HANG_S:
                self._steward.silent(self._now(), visitor.tenant)

    def tell(self, tenant: Tenant) -> None:
        """A tuner has another ceiling."""
        for visitor in self._visitors.values():
            if visitor.tenant is tenant:
                visitor.say(encode_answer(None, Told(ceiling_w=tenant.ceiling_w)))
                visitor.stream.flush()

    def _left(self, visitor: Client) -> None:
        if visitor.tenant is not None:
            self._steward.release(self._now(), visitor.tenant)

    # The requests.

    def _join(self, visitor: Client, request: Join) -> Joined:
        if visitor.tenant is not None:
            raise refused(Code.TOO_MANY, "this connection tunes a job already; open another one")
        self._counts(visitor, _DEED)
        try:
            claim = claimed(visitor.peer, request.pid, trusted=is_owner(visitor.peer))
            tenant = self._steward.lend(self._now(), FoundJob(pid=request.pid, uuids=request.devices), claim)
        except NoClaim as error:
            raise refused(Code.NOT_ALLOWED, str(error)) from error
        except DeviceLocked as error:
            raise refused(Code.IN_USE, str(error)) from error
        except LimitRefused as error:
            raise refused(Code.UNKNOWN_DEVICE, str(error)) from error
        visitor.tenant = tenant
        visitor.guest.lend()
        found_w, ranges = self._steward.found(tenant)
        return Joined(
            original_w=found_w,
            min_w=tuple(one.min_w for one in ranges),
            max_w=tuple(one.max_w for one in ranges),
            ceiling_w=tenant.ceiling_w,
        )

    def _set(self, visitor: Client, request: Set) -> Done:
        tenant = self._tenant(visitor)
        self._counts(visitor, _DEED)
        try:
            self._steward.caps.require(tenant.gpus, request.watts)
        except LimitRefused as error:
            raise Refused(refusal_of(error)) from error
        tenant.silent = False
        self._steward.set_caps(self._now(), tenant, request.watts)
        return Done()

    def _beat(self, visitor: Client, request: Beat) -> Told:
        tenant = self._tenant(visitor)
        put_back, tenant.put_back, tenant.silent = tenant.put_back, False, False
        return Told(ceiling_w=tenant.ceiling_w, put_back=put_back)

    def _known(self, visitor: Client, request: Known) -> Done:
        tenant = self._tenant(visitor)
        try:
            curve = JobCurve(
                caps_w=np.array(request.caps_w),
                slowdown=np.array(request.slowdown),
                energy=np.array(request.energy),
                slowdown_stderr=np.array(request.slowdown_stderr),
                energy_stderr=np.array(request.energy_stderr),
                devices=len(tenant.gpus),
                most_slowdown=np.inf if request.most_slowdown is None else request.most_slowdown,
            )
        except ValueError as error:
            raise refused(Code.BAD_MESSAGE, str(error)) from error
        self._steward.learn(self._now(), tenant, curve)
        return Done()

    def _leave(self, visitor: Client, request: Leave) -> Left:
        tenant, visitor.tenant = self._tenant(visitor), None
        visitor.guest.lent_no_more()
        self._steward.release(self._now(), tenant)
        return Left(caps_w=tuple(self._steward.caps.in_force_w[gpu] for gpu in tenant.gpus))

    def _tenant(self, visitor: Client) -> Tenant:
        if visitor.tenant is None:
            raise refused(Code.NO_LEASE, "this connection tunes no job; ask with `join`")
        if not self._steward.is_here(visitor.tenant):
            why = visitor.tenant.ended or "a GPU of this job has failed, and is outside the budget now"
            raise refused(Code.NO_LEASE, f"the budget lends this job's GPUs to its tuner no more: {why}")
        return visitor.tenant
