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
from autocap.plugins.fleet.budget import protocol
from autocap.plugins.fleet.budget.shares import JobCurve
from autocap.plugins.fleet.manager.allocation import Allocation
from autocap.plugins.fleet.manager.enforcer import BudgetEnforcer
from autocap.plugins.fleet.manager.finding import FoundJob, NoClaim, claimed
from autocap.wire.admission import Rate
from autocap.wire.refusal import Refused, refused
from autocap.wire.server import ClientConnection, Server
from autocap.wire.who import Peer

_AT_ONCE = 2048  # connections that are taken before anything else is done
_WORDS = Rate(burst=400, per_s=200)  # of one user; who says more waits


Client = ClientConnection[Allocation]
_DEED = 25.0  # words: what touches devices counts for as many


class Control(Protocol):
    """What may be asked of the budget itself."""

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        """Raises AutocapError for what is no budget."""

    def weigh(self, pid: int, weight: float, why: str) -> None:
        """Raises AutocapError for a process of no job."""

    def end(self, why: str) -> None:
        """Raises AutocapError where it is somebody else's to end."""

    def standing(self) -> protocol.Standing: ...


class ControlServer(Server[Allocation]):
    """Clients of a listening socket, who may ask how the budget stands, and change it where it is theirs. now: seconds,
    on the clock of whoever holds it. `serve` raises as the enforcer does where a limit cannot be set."""

    def __init__(self, listener: socket.socket, control: Control, now: Callable[[], float]) -> None:
        super().__init__(listener, words=_WORDS, most_bytes=protocol.MOST_BYTES, at_once=_AT_ONCE, now=now, told=_told)
        self._answers: dict[type[protocol.Request], Callable[[Client, Any], protocol.Answer]] = {
            protocol.Change: lambda client, asked: self._done(
                client, protocol.Code.BAD_MESSAGE, partial(control.change, asked.watts, asked.policy)
            ),
            protocol.Weigh: lambda client, asked: self._done(
                client, protocol.Code.BAD_MESSAGE, partial(control.weigh, asked.pid, asked.weight)
            ),
            protocol.Ask: lambda client, asked: control.standing(),
            protocol.End: lambda client, asked: self._done(client, protocol.Code.NOT_ALLOWED, control.end),
        }

    def _answered(self, client: Client, line: bytes) -> bytes:
        id, request = protocol.decode_request(line)
        try:
            answer = self._answers.get(type(request))
            if answer is None:
                raise refused(protocol.Code.NO_LEASE, "nothing is lent here; a tuner registers with its node's manager")
            return protocol.encode_answer(id, answer(client, request))
        except Refused as error:
            return protocol.encode_answer(id, error.refusal)

    def _complaint(self, error: protocol.BadMessage) -> bytes:
        return protocol.encode_answer(
            error.id, protocol.Refusal(code=protocol.Code.BAD_MESSAGE, text=f"not understood: {error}")
        )

    # The requests.

    def _done(self, client: Client, otherwise: protocol.Code, act: Callable[[str], None]) -> protocol.Done:
        """Do what only the owner may ask for. act: is told who wants it."""
        if not is_owner(client.peer):
            raise refused(
                protocol.Code.NOT_ALLOWED, f"the budget is not {client.peer.name}'s to change; ask who started it"
            )
        try:
            act(f"{client.peer.name} asked for it")
        except AutocapError as error:
            raise refused(otherwise, str(error)) from error
        return protocol.Done()


def _told(why: protocol.Refusal) -> bytes:
    """A flood has to be turned away as fast as it comes, and hears nothing."""
    return b"" if why.code is protocol.Code.TOO_FAST else protocol.encode_answer(None, why)


def is_owner(peer: Peer) -> bool:
    """Whether it is root, or who holds the budget; not the user of that number in a container."""
    return peer.is_user(0, os.geteuid())


class TunerServer(ControlServer):
    """Clients of a manager: its tuners, and whoever speaks to the budget. now: seconds, on the enforcer's clock."""

    def __init__(
        self, listener: socket.socket, enforcer: BudgetEnforcer, control: Control, now: Callable[[], float]
    ) -> None:
        super().__init__(listener, control, now)
        self._enforcer = enforcer
        self._answers |= {
            protocol.Join: self._join,
            protocol.Set: self._set,
            protocol.Beat: self._beat,
            protocol.PublishCurve: self._known,
            protocol.Leave: self._leave,
        }

    def pass_time(self) -> None:
        """See who was silent for too long."""
        super().pass_time()
        for client in self._clients.values():
            if client.lent is not None and self._now() - client.heard_s >= HANG_S:
                self._enforcer.silent(self._now(), client.lent)

    def tell(self, allocation: Allocation) -> None:
        """A tuner has another ceiling."""
        for client in self._clients.values():
            if client.lent is allocation:
                client.say(protocol.encode_answer(None, protocol.CeilingChanged(ceiling_w=allocation.ceiling_w)))
                client.stream.flush()

    def _left(self, client: Client) -> None:
        if client.lent is not None:
            self._enforcer.release(self._now(), client.lent)

    # The requests.

    def _join(self, client: Client, request: protocol.Join) -> protocol.Joined:
        if client.lent is not None:
            raise refused(protocol.Code.TOO_MANY, "this connection tunes a job already; open another one")
        self._counts(client, _DEED)
        try:
            claim = claimed(client.peer, request.pid, trusted=is_owner(client.peer))
            allocation = self._enforcer.lend(self._now(), FoundJob(pid=request.pid, uuids=request.devices), claim)
        except NoClaim as error:
            raise refused(protocol.Code.NOT_ALLOWED, str(error)) from error
        except DeviceLocked as error:
            raise refused(protocol.Code.IN_USE, str(error)) from error
        except LimitRefused as error:
            raise refused(protocol.Code.UNKNOWN_DEVICE, str(error)) from error
        client.lent = allocation
        client.admitted.lend()
        found_w, ranges = self._enforcer.found(allocation)
        return protocol.Joined(
            original_w=found_w,
            min_w=tuple(one.min_w for one in ranges),
            max_w=tuple(one.max_w for one in ranges),
            ceiling_w=allocation.ceiling_w,
        )

    def _set(self, client: Client, request: protocol.Set) -> protocol.Done:
        allocation = self._allocation(client)
        self._counts(client, _DEED)
        try:
            self._enforcer.caps.require(allocation.gpus, request.watts)
        except LimitRefused as error:
            raise Refused(refusal_of(error)) from error
        allocation.silent = False
        self._enforcer.set_caps(self._now(), allocation, request.watts)
        return protocol.Done()

    def _beat(self, client: Client, request: protocol.Beat) -> protocol.CeilingChanged:
        allocation = self._allocation(client)
        put_back, allocation.put_back, allocation.silent = allocation.put_back, False, False
        return protocol.CeilingChanged(ceiling_w=allocation.ceiling_w, put_back=put_back)

    def _known(self, client: Client, request: protocol.PublishCurve) -> protocol.Done:
        allocation = self._allocation(client)
        try:
            curve = JobCurve(
                caps_w=np.array(request.caps_w),
                slowdown=np.array(request.slowdown),
                energy=np.array(request.energy),
                slowdown_stderr=np.array(request.slowdown_stderr),
                energy_stderr=np.array(request.energy_stderr),
                devices=len(allocation.gpus),
                most_slowdown=np.inf if request.most_slowdown is None else request.most_slowdown,
            )
        except ValueError as error:
            raise refused(protocol.Code.BAD_MESSAGE, str(error)) from error
        self._enforcer.learn(self._now(), allocation, curve)
        return protocol.Done()

    def _leave(self, client: Client, request: protocol.Leave) -> protocol.Left:
        allocation, client.lent = self._allocation(client), None
        client.admitted.lent_no_more()
        self._enforcer.release(self._now(), allocation)
        return protocol.Left(caps_w=tuple(self._enforcer.caps.in_force_w[gpu] for gpu in allocation.gpus))

    def _allocation(self, client: Client) -> Allocation:
        if client.lent is None:
            raise refused(protocol.Code.NO_LEASE, "this connection tunes no job; ask with `join`")
        if not self._enforcer.is_here(client.lent):
            why = client.lent.ended or "a GPU of this job has failed, and is outside the budget now"
            raise refused(protocol.Code.NO_LEASE, f"the budget lends this job's GPUs to its tuner no more: {why}")
        return client.lent
