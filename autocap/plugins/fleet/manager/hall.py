"""Where clients of whoever holds a budget speak: a line in, a line out, from the one thread of who holds it. Whatever a
client does or leaves undone holds up nobody else."""

import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np

from autocap.errors import AutocapError, DeviceLocked, LimitRefused
from autocap.limits.helper.lent_devices import refusal_of
from autocap.limits.times import HANG_S
from autocap.plugins.fleet.budget import words
from autocap.plugins.fleet.budget.shares import JobCurve
from autocap.plugins.fleet.manager.finding import FoundJob, NoClaim, claimed
from autocap.plugins.fleet.manager.steward import Steward
from autocap.plugins.fleet.manager.tenant import Tenant
from autocap.wire.guests import Rate
from autocap.wire.refusal import Refused, refused
from autocap.wire.server import Server, Visitor
from autocap.wire.who import Peer

_AT_ONCE = 2048  # connections that are taken before anything else is done
_WORDS = Rate(burst=400, per_s=200)  # of one user; who says more waits


Client = Visitor[Tenant]
_DEED = 25.0  # words: what touches devices counts for as many


class Control(Protocol):
    """What may be asked of the budget itself."""

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        """Raises AutocapError for what is no budget."""

    def weigh(self, pid: int, weight: float, why: str) -> None:
        """Raises AutocapError for a process of no job."""

    def end(self, why: str) -> None:
        """Raises AutocapError where it is somebody else's to end."""

    def standing(self) -> words.Standing: ...


class Reception(Server[Tenant]):
    """Clients of a listening socket, who may ask how the budget stands, and change it where it is theirs. now: seconds,
    on the clock of whoever holds it. `serve` raises as the steward does where a limit cannot be set."""

    def __init__(self, listener: socket.socket, control: Control, now: Callable[[], float]) -> None:
        super().__init__(listener, words=_WORDS, most_bytes=words.MOST_BYTES, at_once=_AT_ONCE, now=now, told=_told)
        self._answers: dict[type[words.Request], Callable[[Client, Any], words.Answer]] = {
            words.Change: lambda visitor, asked: self._done(
                visitor, words.Code.BAD_MESSAGE, partial(control.change, asked.watts, asked.policy)
            ),
            words.Weigh: lambda visitor, asked: self._done(
                visitor, words.Code.BAD_MESSAGE, partial(control.weigh, asked.pid, asked.weight)
            ),
            words.Ask: lambda visitor, asked: control.standing(),
            words.End: lambda visitor, asked: self._done(visitor, words.Code.NOT_ALLOWED, control.end),
        }

    def _answered(self, visitor: Client, line: bytes) -> bytes:
        id, request = words.decode_request(line)
        try:
            answer = self._answers.get(type(request))
            if answer is None:
                raise refused(words.Code.NO_LEASE, "nothing is lent here; a tuner registers with its node's manager")
            return words.encode_answer(id, answer(visitor, request))
        except Refused as error:
            return words.encode_answer(id, error.refusal)

    def _complaint(self, error: words.BadMessage) -> bytes:
        return words.encode_answer(
            error.id, words.Refusal(code=words.Code.BAD_MESSAGE, text=f"not understood: {error}")
        )

    # The requests.

    def _done(self, visitor: Client, otherwise: words.Code, act: Callable[[str], None]) -> words.Done:
        """Do what only the owner may ask for. act: is told who wants it."""
        if not is_owner(visitor.peer):
            raise refused(
                words.Code.NOT_ALLOWED, f"the budget is not {visitor.peer.name}'s to change; ask who started it"
            )
        try:
            act(f"{visitor.peer.name} asked for it")
        except AutocapError as error:
            raise refused(otherwise, str(error)) from error
        return words.Done()


def _told(why: words.Refusal) -> bytes:
    """A flood has to be turned away as fast as it comes, and hears nothing."""
    return b"" if why.code is words.Code.TOO_FAST else words.encode_answer(None, why)


def is_owner(peer: Peer) -> bool:
    """Whether it is root, or who holds the budget; not the user of that number in a container."""
    return peer.is_user(0, os.geteuid())


class Hall(Reception):
    """Clients of a manager: its tuners, and whoever speaks to the budget. now: seconds, on the steward's clock."""

    def __init__(self, listener: socket.socket, steward: Steward, control: Control, now: Callable[[], float]) -> None:
        super().__init__(listener, control, now)
        self._steward = steward
        self._answers |= {
            words.Join: self._join,
            words.Set: self._set,
            words.Beat: self._beat,
            words.Known: self._known,
            words.Leave: self._leave,
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
                visitor.say(words.encode_answer(None, words.Told(ceiling_w=tenant.ceiling_w)))
                visitor.stream.flush()

    def _left(self, visitor: Client) -> None:
        if visitor.tenant is not None:
            self._steward.release(self._now(), visitor.tenant)

    # The requests.

    def _join(self, visitor: Client, request: words.Join) -> words.Joined:
        if visitor.tenant is not None:
            raise refused(words.Code.TOO_MANY, "this connection tunes a job already; open another one")
        self._counts(visitor, _DEED)
        try:
            claim = claimed(visitor.peer, request.pid, trusted=is_owner(visitor.peer))
            tenant = self._steward.lend(self._now(), FoundJob(pid=request.pid, uuids=request.devices), claim)
        except NoClaim as error:
            raise refused(words.Code.NOT_ALLOWED, str(error)) from error
        except DeviceLocked as error:
            raise refused(words.Code.IN_USE, str(error)) from error
        except LimitRefused as error:
            raise refused(words.Code.UNKNOWN_DEVICE, str(error)) from error
        visitor.tenant = tenant
        visitor.guest.lend()
        found_w, ranges = self._steward.found(tenant)
        return words.Joined(
            original_w=found_w,
            min_w=tuple(one.min_w for one in ranges),
            max_w=tuple(one.max_w for one in ranges),
            ceiling_w=tenant.ceiling_w,
        )

    def _set(self, visitor: Client, request: words.Set) -> words.Done:
        tenant = self._tenant(visitor)
        self._counts(visitor, _DEED)
        try:
            self._steward.caps.require(tenant.gpus, request.watts)
        except LimitRefused as error:
            raise Refused(refusal_of(error)) from error
        tenant.silent = False
        self._steward.set_caps(self._now(), tenant, request.watts)
        return words.Done()

    def _beat(self, visitor: Client, request: words.Beat) -> words.Told:
        tenant = self._tenant(visitor)
        put_back, tenant.put_back, tenant.silent = tenant.put_back, False, False
        return words.Told(ceiling_w=tenant.ceiling_w, put_back=put_back)

    def _known(self, visitor: Client, request: words.Known) -> words.Done:
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
            raise refused(words.Code.BAD_MESSAGE, str(error)) from error
        self._steward.learn(self._now(), tenant, curve)
        return words.Done()

    def _leave(self, visitor: Client, request: words.Leave) -> words.Left:
        tenant, visitor.tenant = self._tenant(visitor), None
        visitor.guest.lent_no_more()
        self._steward.release(self._now(), tenant)
        return words.Left(caps_w=tuple(self._steward.caps.in_force_w[gpu] for gpu in tenant.gpus))

    def _tenant(self, visitor: Client) -> Tenant:
        if visitor.tenant is None:
            raise refused(words.Code.NO_LEASE, "this connection tunes no job; ask with `join`")
        if not self._steward.is_here(visitor.tenant):
            why = visitor.tenant.ended or "a GPU of this job has failed, and is outside the budget now"
            raise refused(words.Code.NO_LEASE, f"the budget lends this job's GPUs to its tuner no more: {why}")
        return visitor.tenant
