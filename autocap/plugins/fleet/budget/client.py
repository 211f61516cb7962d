"""The budget of this machine as what may hold the limits of a session's devices: what it holds, and a guardian of
devices that its manager lends, below a ceiling that it may change at any moment.

Whatever becomes of us, the manager gives the devices what the budget gives them; the limits that it found are back
when the budget ends."""

import os
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from autocap.controller.known_curve import KnownCurve
from autocap.devices.base import Tunable
from autocap.errors import GuardError, LimitRefused, PeerLost, SetterDenied
from autocap.job.processes import ProcessId
from autocap.limits.guard import MOST_UNANSWERED, PeerGuardian, beaten
from autocap.limits.guarded_limit import Restored
from autocap.limits.helper.connection import error_of
from autocap.limits.times import ANSWER_WITHIN_S
from autocap.plugins.fleet.budget.connection import BudgetConnection, NoBudget, call
from autocap.plugins.fleet.budget.protocol import (
    Ask,
    Beat,
    Done,
    Join,
    Joined,
    Leave,
    Left,
    PublishCurve,
    Refusal,
    Set,
    Standing,
)
from autocap.records import GpuInfo, same_limit
from autocap.session.via import Actuation

_MOST_STDERR = 1.0  # of what is hardly known


class BudgetGuardian(PeerGuardian):
    """Has the devices of one job lent by the manager of a budget.

    path: of the manager's socket. ceiling_w: the highest cap for now, watts.

    Entering raises NoBudget where no manager answers, DeviceLocked where another tuner has a device, and
    LimitNotPermitted where one is not lent.
    """

    def __init__(self, *, gpus: Sequence[GpuInfo], path: Path) -> None:
        super().__init__([gpu.uuid for gpu in gpus])
        self._path, self._job_pid = path, os.getpid()
        self._call: BudgetConnection | None = None
        self._published: PublishCurve | None = None
        self.ceiling_w: float | None = None

    def of(self, job: ProcessId | None) -> Self:
        """The same, of the devices of a job."""
        self._job_pid = self._job_pid if job is None else job.pid
        return self

    def __enter__(self) -> Self:
        self._call = call([self._path])
        try:
            joined = self._call.ask(Join(devices=self._uuids, pid=self._job_pid), Joined)
            if len(joined.original_w) != len(self._uuids):
                raise PeerLost("the budget's manager answered something else than it was asked")
            self.original_w, self.ceiling_w = joined.original_w, joined.ceiling_w
            self._notes += joined.notes
            self.set_caps([self._below_ceiling_w(original_w) for original_w in self.original_w])
        except BaseException:
            self._drop()
            raise
        return self

    def _end(self) -> None:
        if self._call is not None:
            with suppress(GuardError):
                self._call.ask(Leave(), Left, ANSWER_WITHIN_S)
        self._drop()

    def rehearse(self) -> None:
        """What is not permitted has shown when the devices were lent."""

    def _set(self, caps_w: tuple[float, ...]) -> None:
        """As PeerGuardian has it; a cap above the ceiling becomes the ceiling."""
        there = self._there()
        there.ask(Set(watts=caps_w), Done)
        self._hear(there)

    def _listen(self) -> bool:
        if self._call is None:
            return False
        there = self._call
        try:
            for answer in beaten(there, Beat()):
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
        return True

    def restore(self) -> tuple[Restored, ...]:
        """Leave the devices with what the budget gives them. Caps may be set again."""
        with self._alone():
            return self._restore()

    def _restore(self) -> tuple[Restored, ...]:
        try:
            self.set_caps([self._below_ceiling_w(original_w) for original_w in self.original_w])
        except (GuardError, LimitRefused) as error:
            note = f"{error}; the manager, or its watchdog, puts the limit found back"
            self._drop()
            return tuple(
                Restored(uuid=uuid, original_w=original_w, final_w=None, restored=False, note=f"{uuid}: {note}")
                for uuid, original_w in self._found
            )
        return tuple(self._left(uuid, original_w) for uuid, original_w in self._found)

    def publish(self, curve: KnownCurve, *, searching: bool, max_slowdown: float | None) -> None:
        """Let the manager know what is known of the job, where that has changed. Raises GuardError where it is gone."""
        there = self._there()
        found_w = min((limit_w for limit_w in self.original_w if limit_w is not None), default=0.0)
        known = known_of(curve, found_w, searching=searching, max_slowdown=max_slowdown)
        if known != self._published and there.unanswered < MOST_UNANSWERED:
            self._published = known
            there.post(known)

    def _left(self, uuid: str, original_w: float | None) -> Restored:
        left_w = self._below_ceiling_w(original_w)
        there_already = original_w is not None and same_limit(left_w, original_w)
        return Restored(uuid=uuid, original_w=original_w, final_w=left_w, restored=True if there_already else None)

    def _below_ceiling_w(self, cap_w: float | None) -> float:
        return min(w for w in (cap_w, self.ceiling_w) if w is not None)

    def _hear(self, there: BudgetConnection) -> None:
        """Take in what the manager has told of."""
        for told in there.told:
            self.ceiling_w = told.ceiling_w
            self._put_back |= told.put_back
            self._notes += told.notes
        there.told.clear()

    def _there(self) -> BudgetConnection:
        self._require_own_process()
        if self._call is None:
            raise GuardError("the budget's manager is gone, so no cap is set any more; start again")
        return self._call

    def _drop(self) -> None:
        there, self._call = self._call, None
        if there is not None:
            there.close()


def known_of(curve: KnownCurve, found_w: float, *, searching: bool, max_slowdown: float | None = None) -> PublishCurve:
    """A curve over the limit found on arrival, watts: up to the cap that the job's metric asks for, or, while that is
    still searched for, as far as it is known. max_slowdown: the job's bound, as a share."""
    points = (replace(curve, asked_w=curve.baseline_w) if searching else curve).published(found_w)
    return PublishCurve(
        caps_w=tuple(one.setting for one in points),
        slowdown=tuple(one.time - 1 for one in points),
        energy=tuple(one.energy for one in points),
        slowdown_stderr=tuple(min(_MOST_STDERR, one.time * one.period_rel_stderr) for one in points),
        energy_stderr=tuple(min(_MOST_STDERR, one.energy * one.energy_rel_stderr) for one in points),
        most_slowdown=max_slowdown,
    )


def actuation(device: Tunable) -> Actuation | None:
    """How a device is set under it; `None` where no budget holds any of its GPUs. Raises SetterDenied where it holds
    only some of them."""
    found = _standing()
    if found is None:
        return None
    path, standing = found
    held = _held(standing)
    outside = [gpu for gpu in device.gpus if gpu.uuid not in held]
    if len(outside) == len(device.gpus):
        return None
    if outside:
        raise SetterDenied(
            f"the power budget that runs here holds other GPUs of the job, but not {outside[0].where}; start it with "
            "all of them in --gpus"
        )
    guardian = BudgetGuardian(gpus=device.gpus, path=path)
    return Actuation(
        name="budget",
        where=str(path),
        gpus=device.gpus,
        budget=guardian,
        guardian=guardian.of,
        reason=f"a power budget of {standing.budget_w:g} W runs here",
    )


def inventory() -> dict[str, object] | None:
    """What `autocap devices` says of it, as JSON has it; `None` where none runs. pid: of its manager. gpus: UUIDs of
    those whose limits it holds."""
    found = _standing()
    if found is None:
        return None
    one = found[1]
    return {"watts": one.budget_w, "policy": one.policy, "pid": one.pid, "gpus": tuple(sorted(_held(one)))}


def _standing() -> tuple[Path, Standing] | None:
    try:
        with closing(call()) as there:
            return there.path, there.ask(Ask(), Standing)
    except (NoBudget, PeerLost):
        return None


def _held(standing: Standing) -> set[str]:
    return {*standing.free, *(uuid for job in standing.jobs for uuid in job.devices)}
