"""A guardian of devices that a budget's manager lends: to a session what `autocap.limits.Guardian` is, below a
ceiling that the manager may change at any moment.

The manager has the lock, the journal and the watchdog. Whatever becomes of us, it gives the devices what the budget
gives them; the limits that it found are back when the budget ends.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from autocap.controller.known_curve import KnownCurve
from autocap.errors import GuardError, LimitRefused, PeerLost
from autocap.job.processes import ProcessId
from autocap.limits.guarded_limit import Restored
from autocap.limits.helper.connection import error_of
from autocap.limits.times import ANSWER_WITHIN_S, LATER_S, SOON_S, WAS_STOPPED_S
from autocap.plugins.fleet.budget.calling import Call, call
from autocap.plugins.fleet.budget.published import known_of
from autocap.plugins.fleet.budget.words import Beat, Done, Join, Joined, Known, Leave, Left, Refusal, Set
from autocap.records import GpuInfo, same_limit

_MOST_UNANSWERED = 8


class BudgetGuardian:
    """Has the devices of one job lent by the manager of a budget, from `__enter__` to `__exit__`. To be used from one
    thread.

    gpus: the devices, in the order of all caps given and limits returned. path: of the manager's socket. job: whose
    devices they are. ceiling_w: the highest cap for now, watts.

    Entering raises NoBudget where no manager answers, DeviceLocked where another tuner has a device, and
    LimitNotPermitted where one is not lent.
    """

    def __init__(self, *, gpus: Sequence[GpuInfo], path: Path, job: ProcessId | None) -> None:
        self._gpus, self._path = tuple(gpus), path
        self._job_pid = os.getpid() if job is None else job.pid
        self._pid = os.getpid()
        self._call: Call | None = None
        self._notes: list[str] = []
        self._put_back = False
        self._published: Known | None = None
        self.original_w: tuple[float | None, ...] = ()
        self.ceiling_w: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What happened that the user should know: sentences, the oldest first."""
        return tuple(self._notes)

    def __enter__(self) -> "BudgetGuardian":
        self._call = call([self._path])
        try:
            devices = tuple(gpu.uuid for gpu in self._gpus)
            joined = self._call.ask(Join(devices=devices, pid=self._job_pid), Joined)
            if len(joined.original_w) != len(self._gpus):
                raise PeerLost("the budget's manager answered something else than it was asked")
            self.original_w, self.ceiling_w = joined.original_w, joined.ceiling_w
            self._notes += joined.notes
            self.set_caps([self._below_ceiling_w(original_w) for original_w in self.original_w])
        except BaseException:
            self._drop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if os.getpid() == self._pid and self._call is not None:
            with suppress(GuardError):
                self._call.ask(Leave(), Left, ANSWER_WITHIN_S)
        self._drop()

    def rehearse(self) -> None:
        """What is not permitted has shown when the devices were lent."""

    def set_caps(self, caps_w: Sequence[float]) -> None:
        """Have a cap set on each device, watts; one above the ceiling becomes the ceiling. Raises GuardError where the
        manager is gone, and LimitRefused for a cap that a device does not take."""
        there = self._there()
        there.ask(Set(watts=tuple(map(float, caps_w))), Done)
        self._hear(there)

    def beat(self) -> bool:
        """Tell the manager that all is well; at least every half second. Whether other caps were, or may have been, set
        since the last beat. Raises GuardError where the manager is gone."""
        if self._call is None:  # that was said
            return False
        there = self._there()
        was_silent = time.monotonic() - there.heard_s > WAS_STOPPED_S
        try:
            if there.unanswered < _MOST_UNANSWERED:
                there.post(Beat())
            for answer in there.drain(LATER_S if was_silent else SOON_S):
                if isinstance(answer, Refusal):
                    raise error_of(answer)
            self._hear(there)
            if there.mute_s > ANSWER_WITHIN_S:
                raise PeerLost(f"the budget's manager has not answered for {ANSWER_WITHIN_S:g} s")
        except PeerLost as error:
            self._drop()
            raise GuardError(
                f"{error}; the limits found are put back by it, or by its watchdog, and the budget holds the job again "
                "once it is started again"
            ) from error
        happened, self._put_back = self._put_back, False
        return happened

    def restore(self) -> tuple[Restored, ...]:
        """Leave the devices with what the budget gives them. Caps may be set again."""
        found = [(gpu.uuid, original_w) for gpu, original_w in zip(self._gpus, self.original_w, strict=True)]
        try:
            self.set_caps([self._below_ceiling_w(original_w) for original_w in self.original_w])
        except (GuardError, LimitRefused) as error:
            note = f"{error}; the manager, or its watchdog, puts the limit found back"
            self._drop()
            return tuple(
                Restored(uuid=uuid, original_w=original_w, final_w=None, restored=False, note=f"{uuid}: {note}")
                for uuid, original_w in found
            )
        return tuple(self._left(uuid, original_w) for uuid, original_w in found)

    def publish(self, curve: KnownCurve, *, searching: bool, max_slowdown: float | None) -> None:
        """Let the manager know what is known of the job, where that has changed. Raises GuardError where it is gone."""
        there = self._there()
        found_w = min((limit_w for limit_w in self.original_w if limit_w is not None), default=0.0)
        known = known_of(curve, found_w, searching=searching, max_slowdown=max_slowdown)
        if known != self._published and there.unanswered < _MOST_UNANSWERED:
            self._published = known
            there.post(known)

    def _left(self, uuid: str, original_w: float | None) -> Restored:
        left_w = self._below_ceiling_w(original_w)
        there_already = original_w is not None and same_limit(left_w, original_w)
        return Restored(uuid=uuid, original_w=original_w, final_w=left_w, restored=True if there_already else None)

    def _below_ceiling_w(self, cap_w: float | None) -> float:
        limits_w = [w for w in (cap_w, self.ceiling_w) if w is not None]
        return min(limits_w)

    def _hear(self, there: Call) -> None:
        """Take in what the manager has told of."""
        for told in there.told:
            self.ceiling_w = told.ceiling_w
            self._put_back |= told.put_back
            self._notes += told.notes
        there.told.clear()

    def _there(self) -> Call:
        if os.getpid() != self._pid:
            raise GuardError(f"the guardian belongs to PID {self._pid}, not to its forked child {os.getpid()}")
        if self._call is None:
            raise GuardError("the budget's manager is gone, so no cap is set any more; start again")
        return self._call

    def _drop(self) -> None:
        there, self._call = self._call, None
        if there is not None:
            there.close()
