"""Where clients of a budget's manager speak: a line in, a line out, from the manager's one thread. Whatever a client
does or leaves undone holds up nobody else."""

import logging
import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np

from autocap.budget.curves import JobCurve
from autocap.budget.words import (
    Answer,
    Ask,
    BadMessage,
    Beat,
    Change,
    Code,
    Done,
    End,
    Join,
    Joined,
    Known,
    Leave,
    Left,
    Refusal,
    Request,
    Set,
    Standing,
    Told,
    Weigh,
    decode_request,
    encode_answer,
)
from autocap.errors import AutocapError, DeviceLocked, LimitRefused
from autocap.helper.lease import refusal_of
from autocap.helper.who import is_nobody_known, peer_of
from autocap.manager.finding import FoundJob
from autocap.manager.steward import Steward
from autocap.manager.tenant import Tenant
from autocap.manager.visitor import Visitor

log = logging.getLogger(__name__)

SILENT_S = 1.5  # of a tuner: then its devices get what the budget gives them, until it is heard again
_MOST_CLIENTS = 256


class Control(Protocol):
    """What may be asked of the budget itself."""

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        """Raises AutocapError for what is no budget."""

    def weigh(self, pid: int, weight: float, why: str) -> None:
        """Raises AutocapError for a process of no job."""

    def end(self, why: str) -> None: ...

    def standing(self) -> Standing: ...


class Hall:
    """Clients of a listening socket. now: seconds, on the steward's clock."""

    def __init__(self, listener: socket.socket, steward: Steward, control: Control, now: Callable[[], float]) -> None:
        self._listener, self._steward, self._control, self._now = listener, steward, control, now
        self._visitors: dict[int, Visitor] = {}
        self._answers: dict[type[Request], Callable[[Visitor, Request], Answer]] = {
            Join: self._join,
            Set: self._set,
            Beat: self._beat,
            Known: self._known,
            Leave: self._leave,
            Change: self._change,
            Weigh: self._weigh,
            Ask: lambda visitor, request: self._control.standing(),
            End: self._end,
        }
        listener.setblocking(False)

    def watch(self, poll: "select.poll") -> None:
        """Have a poll wake up for whoever speaks."""
        poll.register(self._listener, select.POLLIN)
        for fd, visitor in self._visitors.items():
            poll.register(fd, select.POLLIN | (select.POLLOUT if visitor.waiting else 0))

    def serve(self, ready: set[int]) -> None:
        """Hear those who are ready, by their descriptors. Raises as the steward does where a limit cannot be set."""
        if self._listener.fileno() in ready:
            self._accept()
        for fd in ready:
            visitor = self._visitors.get(fd)
            if visitor is not None:
                self._hear(visitor)
                visitor.flush()
        self._dismiss()

    def pass_time(self) -> None:
        """See who was silent for too long."""
        for visitor in self._visitors.values():
            if visitor.tenant is not None and self._now() - visitor.heard_s >= SILENT_S:
                self._steward.silent(self._now(), visitor.tenant)

    def tell(self, tenant: Tenant) -> None:
        """A tuner has another ceiling."""
        for visitor in self._visitors.values():
            if visitor.tenant is tenant:
                visitor.say(encode_answer(None, Told(ceiling_w=tenant.ceiling_w)))
                visitor.flush()

    def close(self) -> None:
        for visitor in self._visitors.values():
            visitor.flush()
            visitor.connection.close()
        self._visitors.clear()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            log.debug("a connection could not be taken: %s", error)
            return
        try:
            peer = peer_of(connection)
            connection.setblocking(False)
            if is_nobody_known(peer.uid) or len(self._visitors) >= _MOST_CLIENTS:
                connection.close()
                return
        except OSError:
            connection.close()
            return
        visitor = Visitor(connection=connection, peer=peer, heard_s=self._now())
        self._visitors[connection.fileno()] = visitor

    def _hear(self, visitor: Visitor) -> None:
        visitor.hear(self._now())
        while not visitor.over:
            try:
                line = visitor.lines.take()
                if line is None:
                    return
                id, request = decode_request(line)
            except BadMessage as error:
                visitor.over = error.id is None
                refusal = Refusal(code=Code.BAD_MESSAGE, text=f"not understood: {error}")
                visitor.say(encode_answer(error.id, refusal))
                continue
            answer: Answer | Refusal
            try:
                answer = self._answers[type(request)](visitor, request)
            except _Refused as error:
                answer = error.refusal
            visitor.say(encode_answer(id, answer))

    def _dismiss(self) -> None:
        for fd, visitor in list(self._visitors.items()):
            if visitor.over:
                del self._visitors[fd]
                visitor.connection.close()
                if visitor.tenant is not None:
                    self._steward.release(self._now(), visitor.tenant)

    # The requests.

    def _join(self, visitor: Visitor, request: Request) -> Joined:
        assert isinstance(request, Join)
        if visitor.tenant is not None:
            raise _refused(Code.TOO_MANY, "this connection tunes a job already; open another one")
        owner = _owner_of(request.pid)
        if visitor.peer.uid not in (0, os.geteuid(), owner):
            raise _refused(
                Code.NOT_ALLOWED,
                f"process {request.pid} is not {visitor.peer.name}'s, so its caps are not theirs to set",
            )
        try:
            tenant = self._steward.lend(self._now(), FoundJob(pid=request.pid, uuids=request.devices))
        except DeviceLocked as error:
            raise _refused(Code.IN_USE, str(error)) from error
        except LimitRefused as error:
            raise _refused(Code.UNKNOWN_DEVICE, str(error)) from error
        visitor.tenant = tenant
        found_w, ranges = self._steward.found(tenant)
        return Joined(
            original_w=found_w,
            min_w=tuple(one.min_w for one in ranges),
            max_w=tuple(one.max_w for one in ranges),
            ceiling_w=tenant.ceiling_w,
        )

    def _set(self, visitor: Visitor, request: Request) -> Done:
        assert isinstance(request, Set)
        tenant = self._tenant(visitor)
        try:
            self._steward.caps.require(tenant.gpus, request.watts)
        except LimitRefused as error:
            raise _Refused(refusal_of(error)) from error
        tenant.silent = False
        self._steward.set_caps(self._now(), tenant, request.watts)
        return Done()

    def _beat(self, visitor: Visitor, request: Request) -> Told:
        tenant = self._tenant(visitor)
        put_back, tenant.put_back, tenant.silent = tenant.put_back, False, False
        return Told(ceiling_w=tenant.ceiling_w, put_back=put_back)

    def _known(self, visitor: Visitor, request: Request) -> Done:
        assert isinstance(request, Known)
        tenant = self._tenant(visitor)
        try:
            curve = JobCurve(
                caps_w=np.array(request.caps_w),
                slowdown=np.array(request.slowdown),
                energy=np.array(request.energy),
                slowdown_stderr=np.array(request.slowdown_stderr),
                energy_stderr=np.array(request.energy_stderr),
                devices=len(tenant.gpus),
            )
        except ValueError as error:
            raise _refused(Code.BAD_MESSAGE, str(error)) from error
        self._steward.learn(tenant, curve)
        return Done()

    def _leave(self, visitor: Visitor, request: Request) -> Left:
        tenant, visitor.tenant = self._tenant(visitor), None
        self._steward.release(self._now(), tenant)
        return Left(caps_w=tuple(self._steward.caps.in_force_w[gpu] for gpu in tenant.gpus))

    def _change(self, visitor: Visitor, request: Request) -> Done:
        assert isinstance(request, Change)
        self._require_control(visitor)
        try:
            self._control.change(request.watts, request.policy, f"{visitor.peer.name} asked for it")
        except AutocapError as error:
            raise _refused(Code.BAD_MESSAGE, str(error)) from error
        return Done()

    def _weigh(self, visitor: Visitor, request: Request) -> Done:
        assert isinstance(request, Weigh)
        self._require_control(visitor)
        try:
            self._control.weigh(request.pid, request.weight, f"{visitor.peer.name} asked for it")
        except AutocapError as error:
            raise _refused(Code.BAD_MESSAGE, str(error)) from error
        return Done()

    def _end(self, visitor: Visitor, request: Request) -> Done:
        self._require_control(visitor)
        self._control.end(f"{visitor.peer.name} asked for it")
        return Done()

    def _tenant(self, visitor: Visitor) -> Tenant:
        if visitor.tenant is None:
            raise _refused(Code.NO_LEASE, "this connection tunes no job; ask with `join`")
        if not self._steward.is_here(visitor.tenant):
            raise _refused(Code.NO_LEASE, "a GPU of this job has failed, and is outside the budget now")
        return visitor.tenant

    def _require_control(self, visitor: Visitor) -> None:
        if visitor.peer.uid not in (0, os.geteuid()):
            raise _refused(Code.NOT_ALLOWED, f"the budget is not {visitor.peer.name}'s to change; ask who started it")


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


def _refused(code: Code, text: str) -> _Refused:
    return _Refused(Refusal(code=code, text=text))


def _owner_of(pid: int) -> int | None:
    """The user of a process; `None` where there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid
    return None
