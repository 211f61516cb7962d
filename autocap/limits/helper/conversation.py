"""One client of a service that lends limits: what is said with it, and what time does to that, requests in, answers
out; and its thread, which reads lines, writes answers, and sees the client end. Whatever the client does or leaves
undone holds up nobody else."""

import logging
import os
import select
import socket
import time
from collections.abc import Callable

from autocap import __version__
from autocap.errors import AutocapError, GuardError
from autocap.job.processes import has_ended, identify
from autocap.limits import Restored
from autocap.limits.helper.lent_devices import ASKED, LentDevices, refusal_of
from autocap.limits.helper.protocol import (
    MOST_REQUEST_BYTES,
    Answer,
    BadMessage,
    Beaten,
    Code,
    Devices,
    Done,
    Ended,
    Hello,
    LeasesEnded,
    Lent,
    Op,
    PutBack,
    Refusal,
    Request,
    Status,
    decode_request,
    encode_answer,
)
from autocap.limits.helper.service_state import ServiceState
from autocap.limits.lease import Lease
from autocap.limits.times import HANG_S, HELPER_BEAT_S, LEASES_END_S, POLICY_S, RECHECK_S
from autocap.limits.vital_signs import Look, VitalSigns
from autocap.wire.admission import AdmittedClient, Bucket
from autocap.wire.json_lines import NotALine
from autocap.wire.refusal import Refused, refused
from autocap.wire.stream import LineStream
from autocap.wire.who import pidfd_of

log = logging.getLogger(__name__)


class Conversation:
    """With one client, from one thread.

    look: at the client's process (`PeerProcess.look`). is_there: whether it lives, and is not stopped. over: why it is
    to end, `None` while it goes on. `hear` is called with each line, `pass_time` after at most `wait_s` seconds, and
    `end` at the end of all.
    """

    def __init__(
        self,
        service_state: ServiceState,
        admitted: AdmittedClient,
        look: Callable[..., Look | None],
        is_there: Callable[[], bool] = lambda: True,
    ) -> None:
        self._service_state, self._admitted, self._peer, self._look = service_state, admitted, admitted.peer, look
        self._is_there = is_there
        self._messages = Bucket(service_state.bounds.messages, service_state.now)
        self._lease = Lease(
            service_state.now(), restore_s=HANG_S, leave_s=service_state.bounds.idle_s
        )  # its end counts while nothing is lent
        self._held: LentDevices | None = None
        self._notes: list[str] = []
        self._ended_why = ""
        self._beat_s = self._checked_s = self._policy_s = service_state.now()
        self.over: str | None = None
        self._answers: dict[Op, Callable[[Request], Answer]] = {
            Op.HELLO: lambda request: Hello(server=f"autocap {__version__}", uid=self._peer.uid, hang_s=HANG_S),
            Op.DEVICES: self._devices,
            Op.LEND: self._lend,
            Op.REHEARSE: lambda _: self._carried_out(lambda held: held.rehearse()),
            Op.SET: lambda request: self._carried_out(lambda held: held.set_caps(request.watts)),
            Op.BEAT: self._beaten,
            Op.RESTORE: lambda request: PutBack(restored=self._lent().restore(ASKED)),
            Op.GIVE_BACK: self._give_back,
            Op.STATUS: lambda request: Status(leases=self._service_state.loans.all()),
            Op.END_LEASES: self._end_leases,
            Op.LEAVE_OUT: lambda request: PutBack(restored=self._lent().leave_out(request.devices)),
        }

    def hear(self, line: bytes) -> tuple[bytes, float]:
        """The answer to a line, and for how many seconds nothing more is to be read."""
        self._is_heard()
        wait_s = self._messages.wait_s()
        if wait_s > 0:
            text = f"these are too many messages; wait {wait_s:.2f} s"
            return encode_answer(_id_of(line), Refusal(code=Code.TOO_FAST, text=text, wait_s=wait_s)), wait_s
        self._messages.take()
        try:
            request = decode_request(line)
        except BadMessage as error:
            return self.complain(error), 0.0
        answer: Answer | Refusal
        try:
            answer = self._answers[request.op](request)
        except Refused as error:
            answer = error.refusal
            if error.ended:
                self._end_lease(str(error))
        except AutocapError as error:
            answer = refusal_of(error)
        except Exception as error:  # the client is told, and the others are served
            log.exception("internal fault while %s asked for %s", self._peer.who, request.op)
            self.over = f"internal fault: {type(error).__name__}"
            answer = Refusal(code=Code.GUARD, text=f"the helper has met an {self.over}; the limits are put back")
        return encode_answer(request.id, answer), 0.0

    def complain(self, error: BadMessage) -> bytes:
        """The answer to what is no message; what is not even a line of JSON ends the conversation."""
        if isinstance(error, NotALine):
            self.over = str(error)
        return encode_answer(error.id, Refusal(code=Code.BAD_MESSAGE, text=f"not understood: {error}"))

    def wait_s(self) -> float:
        """Seconds until `pass_time` is due."""
        now_s = self._service_state.now()
        due_s = self._lease.over_s
        if self._held is not None:
            of_helper_s = (self._beat_s + HELPER_BEAT_S, self._policy_s + POLICY_S, self._checked_s + RECHECK_S)
            due_s = min(self._lease.lapses_s, *of_helper_s)
        return max(0.0, due_s - now_s)

    def pass_time(self) -> None:
        """Do what is due by now."""
        self._heed_end()
        now_s = self._service_state.now()
        silence_s = self._lease.silence_s(now_s)
        if self._held is None:
            if self._lease.is_over(now_s):
                self.over = f"it was silent for {silence_s:.0f} s, and has no lease"
            return
        try:
            if now_s - self._beat_s >= HELPER_BEAT_S:
                self._beat_watchdog(self._held)
            if self._lease.lapses(now_s, lambda: self._look(threads=True)):
                self._notes.append(f"nothing was heard for {silence_s:.1f} s, so the limits were put back")
                self._held.lapse(f"silent for {silence_s:.1f} s")
            if now_s - self._policy_s >= POLICY_S:
                self._policy_s = now_s
                self._held.require_bounds()
            if now_s - self._checked_s >= RECHECK_S:
                self._checked_s = now_s
                self._held.require_allowed()
        except Refused as error:
            self._end_lease(str(error))
        except GuardError as error:
            log.error("%s: %s", self._peer.who, error)
            self._end_lease(str(error))

    def end(self, why: str) -> None:
        """Put back what is lent."""
        self._end_lease(why)

    def _is_heard(self) -> None:
        self._admitted.heard_s = self._service_state.now()
        self._lease.renew(self._admitted.heard_s, None if self._held is None else self._look(threads=False))

    def _beat_watchdog(self, held: LentDevices) -> None:
        self._beat_s = self._service_state.now()
        held.beat()

    def _end_lease(self, why: str) -> tuple[Restored, ...]:
        held, self._held = self._held, None
        if held is None:
            return ()
        self._ended_why = why
        self._notes.clear()
        try:
            return held.end(why)
        finally:
            self._admitted.lent_no_more()

    def _lent(self) -> LentDevices:
        self._heed_end()
        if self._held is None:
            why = f"the lease has ended: {self._ended_why}" if self._ended_why else "nothing is lent to this connection"
            raise refused(Code.NO_LEASE, why)
        return self._held

    def _heed_end(self) -> None:
        """End the lease where root has asked for that."""
        if self._held is not None and self._held.to_end is not None:
            self._end_lease(self._held.to_end)

    # The requests.

    def _devices(self, request: Request) -> Devices:
        wait_s = self._service_state.looks.take(self._peer.account)
        if wait_s > 0:
            raise refused(Code.TOO_FAST, f"devices are asked for too often; wait {wait_s:.2f} s", wait_s)
        found = self._service_state.devices()
        return Devices(devices=tuple(self._service_state.offer(self._peer, device) for device in found))

    def _lend(self, request: Request) -> Lent:
        if self._held is not None:
            raise refused(Code.TOO_MANY, "this connection has a lease; give it back first, or open another connection")
        wait_s = self._service_state.lends.take(self._peer.account)
        if wait_s > 0:
            raise refused(Code.TOO_FAST, f"limits are asked for too often; wait {wait_s:.1f} s", wait_s)
        if not self._admitted.lend():
            raise refused(Code.TOO_MANY, "this connection was closed, as others had none; open another one")
        try:
            self._held = LentDevices(self._service_state, self._peer, request.devices, self._is_there)
        except BaseException:
            self._admitted.lent_no_more()
            raise
        self._beat_s = self._checked_s = self._policy_s = self._service_state.now()
        self._lease.renew(self._beat_s, self._look(threads=False))
        return self._held.lent

    def _carried_out(self, act: Callable[[LentDevices], None]) -> Done:
        """A driver may take seconds, in which a client that waits for the answer is not silent."""
        held = self._lent()
        try:
            act(held)
        finally:
            if self._is_there():
                self._is_heard()
        return Done()

    def _beaten(self, request: Request) -> Beaten:
        held = self._lent()
        try:
            self._beat_watchdog(held)
        except GuardError as error:
            raise Refused(refusal_of(error), ended=True) from error
        put_back, held.put_back = held.put_back, False
        notes, self._notes = (*self._notes, *held.new_notes()), []
        return Beaten(put_back=put_back, notes=notes)

    def _give_back(self, request: Request) -> PutBack:
        self._lent()
        return PutBack(restored=self._end_lease("given back"))

    def _end_leases(self, request: Request) -> LeasesEnded:
        if not self._peer.is_user(0):
            raise refused(Code.NOT_ALLOWED, "only root ends leases of others, and not the root of a container")
        if self._held is not None:  # which its client would not keep up meanwhile
            raise refused(Code.TOO_MANY, "this connection has a lease itself; end others' by another connection")
        deadline_s = time.monotonic() + LEASES_END_S
        ended = []
        for loan, lease in self._service_state.loans.end(request.devices, f"{self._peer.who} has ended it"):
            is_over = loan.over.wait(max(0.0, deadline_s - time.monotonic()))
            ended.append(Ended(lease=lease, restored=loan.restored if is_over else None))
        return LeasesEnded(ended=tuple(ended))


def _id_of(line: bytes) -> int | None:
    try:
        return decode_request(line).id
    except BadMessage as error:
        return error.id


STOPPED = "the helper ends"
_MOST_THREADS = 256  # of a client that are looked at ten times a second, while it is silent


class PeerProcess:
    """The process that connected: whether it is still there, and what it does. To be closed.

    fd: a descriptor of it, readable once it has ended; `None` where the kernel gives none. It is taken over. Raises
    OSError where no descriptors are left.
    """

    def __init__(self, fd: int | None, pid: int) -> None:
        self.fd = fd
        self._signs: VitalSigns | None = None
        try:
            process = None if self.fd is None else identify(pid)
        except OSError:  # no descriptors are left
            self.close()
            raise
        if process is not None and not self.has_ended():  # so the number was still its own when it was looked at
            self._signs = VitalSigns(process, _MOST_THREADS)

    def has_ended(self) -> bool:
        return self.fd is not None and has_ended(self.fd)

    def look(self, *, threads: bool) -> Look | None:
        """As `VitalSigns.look`."""
        return None if self._signs is None else self._signs.look(threads=threads)

    def is_there(self) -> bool:
        """Whether it can still hear us: it lives, and is not stopped."""
        return not self.has_ended() and (self._signs is None or not self._signs.is_stopped())

    def close(self) -> None:
        if self._signs is not None:
            self._signs.close()
        if self.fd is not None:
            os.close(self.fd)


def serve_peer(service_state: ServiceState, connection: socket.socket, admitted: AdmittedClient, stop_fd: int) -> None:
    """Serve who has connected, as `serve_client` does."""
    peer = admitted.peer
    try:
        process = PeerProcess(pidfd_of(connection, peer.pid), peer.pid)
    except OSError as error:
        log.debug("%s is not served: %s", peer.who, error)
        connection.close()
        return
    serve_client(service_state, connection, admitted, stop_fd, process)


def serve_client(
    service_state: ServiceState, connection: socket.socket, admitted: AdmittedClient, stop_fd: int, process: PeerProcess
) -> None:
    """Serve one client until it ends, or the helper does. stop_fd: readable when the helper is to end. process: the
    client's. Both are closed at the end."""
    try:
        conversation = Conversation(service_state, admitted, process.look, process.is_there)
        why = "internal fault"
        try:
            why = _ClientService(service_state, connection, process, stop_fd).serve(conversation)
        finally:
            conversation.end(why)
    finally:
        process.close()
        connection.close()


class _ClientService:
    def __init__(
        self, service_state: ServiceState, connection: socket.socket, process: PeerProcess, stop_fd: int
    ) -> None:
        self._service_state, self._connection, self._process = service_state, connection, process
        self._stop_fd = stop_fd
        self._stream = LineStream(connection, connection, MOST_REQUEST_BYTES)
        self._ends = select.poll()  # what ends all
        self._ends.register(stop_fd, select.POLLIN)
        if process.fd is not None:
            self._ends.register(process.fd, select.POLLIN)
        self._input = select.poll()
        self._input.register(connection, select.POLLIN)
        for fd in filter(None, (stop_fd, process.fd)):
            self._input.register(fd, select.POLLIN)

    def serve(self, conversation: Conversation) -> str:
        """Why it has ended."""
        why = None
        while why is None:
            found = {fd for fd, _ in self._input.poll(1000 * conversation.wait_s())}
            if self._connection.fileno() in found:
                why = self._read(conversation)
            why = why or self._ended(found) or conversation.over
            if why is None:
                conversation.pass_time()
                why = conversation.over
        return why

    def _read(self, conversation: Conversation) -> str | None:
        """Answer what has arrived; why that was the last."""
        self._stream.read(MOST_REQUEST_BYTES)
        while conversation.over is None:
            try:
                line = self._stream.take()
            except BadMessage as error:
                self._send(conversation.complain(error))
                break
            if line is None:
                break
            answer, wait_s = conversation.hear(line)
            why = self._send(answer)
            if why is None and wait_s > 0:  # so that a client in a hurry takes no more than its share
                why = self._ended({fd for fd, _ in self._ends.poll(1000 * wait_s)})
            if why is not None:
                return why
            conversation.pass_time()  # what is due does not wait for all that a client has sent ahead
        return conversation.over or ("the client has closed the connection" if self._stream.ended else None)

    def _ended(self, found: set[int]) -> str | None:
        if self._stop_fd in found:
            return STOPPED
        if self._process.fd is not None and self._process.fd in found:
            return "the client's process has ended"
        return None

    def _send(self, data: bytes) -> str | None:
        """Why the client takes none; it need not be long in doing so, as its answers are few and short."""
        self._stream.say(data)
        if self._stream.deliver(self._service_state.bounds.send_s):
            return None
        return "the client has closed the connection" if self._stream.broken else "the client does not read its answers"
