"""A guardian whose work the helper does, without any rights of ours; or, in a session under sudo, its keeper.

The connection is the lease. Whether a limit that was requested is enforced we see ourselves, as reading needs no
rights. Where whoever lent it is gone, its watchdog puts the limit back, or the next start.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Self

from autocap.devices import outside_limits
from autocap.devices.base import LimitVerifier, Tunable
from autocap.devices.limit_steps import may_be_made
from autocap.errors import (
    DeviceLocked,
    GuardError,
    LeaseEnded,
    LimitClamped,
    LimitNotEnforced,
    LimitOvertaken,
    LimitRefused,
    PeerLost,
    SetterUnavailable,
)
from autocap.job.keeper import Keeper
from autocap.limits.asking import ForeignLimit
from autocap.limits.guard import PeerGuardian, beaten
from autocap.limits.guarded_limit import Restored
from autocap.limits.helper.connection import A, Connection, error_of
from autocap.limits.helper.protocol import Beaten, Code, Done, Lent, Op, PutBack, Refusal, Request
from autocap.limits.times import (
    ANSWER_WITHIN_S,
    ASKED_WITHIN_S,
    BEAT_APART_S,
    LEND_WITHIN_S,
    LOCKED_S,
    MUTE_S,
    OTHERS_DONE_S,
    SET_WITHIN_S,
    TRY_AGAIN_S,
)
from autocap.records import GpuInfo, same_limit, same_limits
from autocap.wire.refusal import Refused

Found = Sequence[tuple[str, float | None]]  # UUIDs, and the limits found on them, watts

_LOOK_S = 0.02


def reads_original(verifier: LimitVerifier, found: Found) -> bool:
    """Whether all devices are at the limits found on arrival."""
    return all(_look(verifier, uuid, original_w).restored for uuid, original_w in found)


def read_back(
    verifier: LimitVerifier, found: Found, pause: Callable[[float], object], within_s: float
) -> tuple[Restored, ...]:
    """Where the limits are, once they are back, or within_s seconds have passed. pause: waits for some seconds."""
    deadline_s = time.monotonic() + within_s
    while not reads_original(verifier, found) and time.monotonic() < deadline_s:
        pause(_LOOK_S)
    return tuple(_look(verifier, uuid, original_w) for uuid, original_w in found)


def _look(verifier: LimitVerifier, uuid: str, original_w: float | None) -> Restored:
    final_w = None
    with suppress(Exception):  # whatever a device's library raises: what cannot be read is not known
        final_w = verifier.requested_w(uuid)
    if final_w is not None and original_w is not None and same_limit(final_w, original_w):
        return Restored(uuid=uuid, original_w=original_w, final_w=final_w, restored=True)
    failure = "who set it for us is gone, and the limit found on arrival is not back yet"
    note = f"{uuid}: {failure}; it is put back by `autocap restore`, or when the helper is started again"
    return Restored(uuid=uuid, original_w=original_w, final_w=final_w, restored=False, note=note, failure=failure)


logger = logging.getLogger(__name__)

_FRESH_S = BEAT_APART_S / 2  # since a beat was answered
_LONGEST_WAIT_S = 3.0  # for a set that the policy wants later


class RemoteGuardian(PeerGuardian):
    """Has the limits of one job's devices lent and guarded by the helper.

    verifier: reads their limits. connect: to the helper, within so many seconds. back_within_s: for how long a helper
    that was lost is awaited; its supervisor needs less. called: what messages call it. pause: waits for some seconds.

    Entering raises SetterUnavailable where no helper answers, LimitNotPermitted where it does not lend them,
    DeviceLocked where somebody else has one of them, GuardError where it cannot guard them.
    """

    renewable = True

    def __init__(
        self,
        *,
        gpus: Sequence[GpuInfo],
        verifier: LimitVerifier,
        connect: Callable[[float], Connection],
        back_within_s: float = LOCKED_S,
        called: str = "the helper",
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__([gpu.uuid for gpu in gpus])
        self._verifier, self._connect, self._pause = verifier, connect, pause
        self._reloads = verifier.reloads  # as far as our own reading shows
        self._back_within_s, self._called = back_within_s, called
        self._connection: Connection | None = None
        self._answered_s = 0.0  # when the last beat was, on the monotonic clock
        self._is_over = False  # the helper has ended the lease
        self._left_out: set[int] = set()

    def __enter__(self) -> Self:
        self.original_w = self._lend(LEND_WITHIN_S)
        return self

    def _end(self) -> None:
        if self._connection is not None:
            with suppress(PeerLost, Refused):  # the end of the connection has the limits put back as well
                for one in self._connection.ask(Op.GIVE_BACK, PutBack).restored:
                    if one.note is not None:
                        logger.warning("%s", one.note)
        self._drop()

    def rehearse(self) -> None:
        with self._alone():
            self._carry_out(Op.REHEARSE, (), self.original_w)

    def _set(self, caps_w: tuple[float, ...]) -> None:
        self.failed = None
        wanted_w = [None if place in self._left_out else cap_w for place, cap_w in enumerate(caps_w)]
        self._carry_out(Op.SET, caps_w, wanted_w)

    def leave_out(self, place: int) -> Restored:
        """As LimitGuard has it. Raises GuardError where the helper is gone, or of a version that cannot."""
        (found,) = self._ask(Op.LEAVE_OUT, PutBack, devices=(self._uuids[place],)).restored
        self._left_out.add(place)
        return found

    def _listen(self) -> bool:
        if self._connection is None:
            return False
        before, self._reloads = self._reloads, self._verifier.reloads
        self._put_back |= self._reloads != before
        try:
            self._exchange(self._connection)
        except PeerLost as error:
            self._lend_again(error)
        return True

    def restore(self) -> tuple[Restored, ...]:
        self._require_own_process()
        with self._alone():
            return self._restore()

    def _restore(self) -> tuple[Restored, ...]:
        if self._connection is not None:
            try:
                return self._ask(Op.RESTORE, PutBack).restored
            except (GuardError, LimitRefused):
                logger.debug("the helper does not put limits back when asked", exc_info=True)
                self._drop()  # at which it does, or its watchdog
        patience_s = 0.0 if self._is_over else min(OTHERS_DONE_S, self._back_within_s)
        found = read_back(self._verifier, self._found, self._pause, patience_s)
        if self._is_over:  # so the helper has put them back; by now one may be another client's
            return tuple(replace(one, restored=one.restored or None, note=None, failure=None) for one in found)
        return found

    def renew(self) -> None:
        self._require_own_process()
        self._drop()
        try:
            self._require_found(self._lend(LEND_WITHIN_S), "the limits were lent to others meanwhile")
        except PeerLost as error:
            raise SetterUnavailable(str(error)) from error

    def _lend(self, within_s: float) -> tuple[float | None, ...]:
        """Have the devices lent; the limits found on them. Raises as `__enter__`, and PeerLost."""
        deadline_s = time.monotonic() + within_s
        connection = self._connect(min(within_s, ANSWER_WITHIN_S))
        try:
            left_s = max(TRY_AGAIN_S, deadline_s - time.monotonic())
            lent = connection.ask_once_taken(Op.LEND, Lent, devices=self._uuids, within_s=left_s)
            if len(lent.original_w) != len(self._uuids):
                raise PeerLost(f"{self._called} answered something else than it was asked")
        except Refused as error:
            connection.close()
            raise error_of(error.refusal) from error
        except BaseException:
            connection.close()
            raise
        self._connection, self._is_over = connection, False
        self._notes += lent.notes
        return lent.original_w

    def _lend_again(self, lost: PeerLost) -> None:
        """After the helper was lost, and so put everything back or left that to its watchdog: have it all lent anew.

        Raises GuardError where it is not back in time, or other limits are found than before.
        """
        self._drop()
        deadline_s = time.monotonic() + self._back_within_s
        why: Exception = lost
        while True:
            try:
                found_w = self._lend(max(0.5, deadline_s - time.monotonic()))
                break
            except (SetterUnavailable, DeviceLocked, PeerLost) as error:  # a dead one's locks are freed by and by
                why = error
            if time.monotonic() > deadline_s:
                raise LeaseEnded(
                    f"{lost}, and is not back within {self._back_within_s:g} s ({why}); the limits are put back by it "
                    "or by its watchdog"
                ) from why
            self._pause(TRY_AGAIN_S)
        self._require_found(found_w, f"{lost}; it is back")
        self._put_back = True
        self._notes.append(f"{lost}, and is back; the limits were put back meanwhile")

    def _require_found(self, found_w: Sequence[float | None], now: str) -> None:
        """Raises GuardError where other limits are found than before. now: what has happened since."""
        known = [(a, b) for a, b in zip(found_w, self.original_w, strict=True) if a is not None and b is not None]
        if not same_limits([a for a, _ in known], [b for _, b in known]):
            self._drop()
            raise GuardError(
                f"{now}, but {self._called} finds {_watts(found_w)} where it found {_watts(self.original_w)} before: "
                "somebody else has changed it, and it stays"
            )

    def _carry_out(self, op: Op, watts: tuple[float, ...], wanted_w: Sequence[float | None]) -> None:
        """Have limits requested, also of a helper that has to be found again first, and see that they hold."""
        try:
            self._ask(op, Done, watts)
            self._verify(wanted_w)
        except PeerLost as error:
            self._lend_again(error)
            self._ask(op, Done, watts)
            self._verify(wanted_w)

    def _ask(self, op: Op, kind: type[A], watts: tuple[float, ...] = (), devices: tuple[str, ...] = ()) -> A:
        """One request, as soon as the helper takes it. Raises what setting without a helper would."""
        self._require_own_process()
        waited_s = 0.0
        while True:
            if self._connection is None:
                raise GuardError(f"{self._called} is gone, so no cap is set any more; start again once it is back")
            self._exchange_if_due(self._connection)
            try:
                within_s = SET_WITHIN_S if op in (Op.SET, Op.REHEARSE) else ASKED_WITHIN_S
                return self._connection.ask(op, kind, watts=watts, devices=devices, within_s=within_s)
            except Refused as error:
                wait_s = error.wait_s
                if wait_s is None:
                    if error.refusal.uuid in self._uuids:
                        self.failed = self._uuids.index(error.refusal.uuid)
                    raise error_of(error.refusal) from error
                if waited_s + wait_s > _LONGEST_WAIT_S:
                    raise LimitRefused(f"{self._called} lets no limit be set so often: {error}") from error
            step_s = min(wait_s, BEAT_APART_S)
            self._pause(step_s)
            waited_s += step_s

    def _exchange_if_due(self, connection: Connection) -> None:
        """The same where the last beat was answered some time ago, as each costs a set the way there and back; that the
        helper has gone shows at once."""
        if connection.unanswered or time.monotonic() - self._answered_s > _FRESH_S:
            self._exchange(connection)
        else:
            connection.drain(0.0)

    def _exchange(self, connection: Connection) -> None:
        """Beat, and take in what the helper did. Raises PeerLost, and GuardError where it has ended the lease."""
        heard = connection.drain(0.0)
        hang_s = connection.hello.hang_s
        if connection.mute_s > hang_s:
            raise PeerLost(f"{self._called} has not answered for {hang_s:g} s")
        for answer in (*heard, *beaten(connection, Request(id=0, op=Op.BEAT))):
            if isinstance(answer, Beaten):
                self._answered_s = connection.heard_s
                self._put_back |= answer.put_back
                self._notes += answer.notes
            elif isinstance(answer, Refusal) and answer.code is not Code.TOO_FAST:
                self._drop()
                self._is_over = answer.code is Code.NO_LEASE
                raise error_of(answer)
        if connection.mute_s > MUTE_S and reads_original(
            self._verifier, self._found
        ):  # it hangs, and its watchdog has put them back
            self._put_back = True

    def _verify(self, wanted_w: Sequence[float | None]) -> None:
        """See that limits which the helper has requested hold. Raises LimitRefused, ForeignLimit, GuardError."""
        for place, ((uuid, original_w), cap_w) in enumerate(zip(self._found, wanted_w, strict=True)):
            if cap_w is None:
                continue
            self.failed = place
            if self._connection is not None:  # as it takes a while until one is enforced
                self._exchange_if_due(self._connection)
            try:
                self._verifier.verify(uuid, cap_w)
            except LimitNotEnforced:
                if original_w is None or not same_limit(cap_w, original_w):
                    raise
                # The limit found, which was no more enforced when we came.
            except (LimitClamped, LimitOvertaken) as error:
                if original_w is not None and same_limit(error.found_w, original_w) and self._is_put_back():
                    return
                if may_be_made(
                    original_w, cap_w, error.found_w
                ):  # what the device makes of it, as the helper finds out
                    continue
                if isinstance(error, LimitClamped):
                    if not self._is_put_back():
                        raise
                    return
                raise ForeignLimit(uuid=uuid, expected_w=cap_w, found_w=error.found_w) from error
            except LimitRefused:
                if not self._is_put_back():
                    raise
                return

    def _is_put_back(self) -> bool:
        """Whether limits were put back behind our back, as we seemed to hang: the next beat says so. Raises PeerLost,
        where they were because the helper is gone."""
        if self._connection is not None:
            self._exchange(self._connection)
        return self._put_back

    def _drop(self) -> None:
        """Close the connection, at which a helper that lives puts the limits back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _watts(limits_w: Sequence[float | None]) -> str:
    return "/".join("no limit" if limit_w is None else f"{limit_w:g} W" for limit_w in limits_w)


_CALLED = "the process with root's rights"


def kept(root: Keeper, device: Tunable, gpus: Sequence[GpuInfo]) -> RemoteGuardian:
    """A guardian of some devices. Raises DeviceError where they have no setter."""
    verifier = device.verifier() or _Verifier(device)
    return RemoteGuardian(gpus=gpus, verifier=verifier, connect=partial(_connect, root), called=_CALLED)


def _connect(root: Keeper, within_s: float) -> Connection:
    """Raises GuardError where the keeper is gone: there is no other one."""
    try:
        connected = root.guard()
    except OSError as error:
        raise GuardError(
            f"{_CALLED} cannot be asked ({error.strerror}), so no cap is set any more; what it has set is put back by "
            "its watchdog"
        ) from error
    return Connection(connected, within_s, other=_CALLED)


class _Verifier(LimitVerifier):
    """Of a device that another package has added: reads what is requested of it, as a watchdog would."""

    def __init__(self, device: Tunable) -> None:
        device.limits().close()  # whether there is a setter at all
        self._limits = outside_limits(device.kind, None)

    def requested_w(self, uuid: str) -> float | None:
        return self._limits.requested_w(uuid)

    def verify(self, uuid: str, cap_w: float) -> None:
        found_w = self.requested_w(uuid)
        if found_w is not None and not same_limit(found_w, cap_w):
            raise LimitClamped(f"cap {cap_w:g} W of {uuid} is {found_w:g} W now", found_w)
