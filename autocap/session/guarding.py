"""Guards the limits of a session's devices, and records in the run log what became of them."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Protocol

from autocap import events
from autocap.clock import Clock
from autocap.errors import ActuatorUnavailable, DeviceLocked
from autocap.events import Event
from autocap.job.processes import ProcessId
from autocap.limits import Restored
from autocap.limits.guard import LimitGuard
from autocap.limits.helper.connection import leases_at
from autocap.limits.helper.protocol import socket_path
from autocap.limits.times import DRIVER_AT_END_S, DRIVER_S
from autocap.records import GpuInfo
from autocap.session.actuating import Actuation


class Records(Protocol):
    """Takes what becomes of the limits."""

    def event(self, event: Event) -> None: ...

    def warn(self, t_s: float, text: str) -> None: ...


@dataclass(slots=True, kw_only=True)
class Guarded:
    """A guardian that has been entered, how it has limits set, and where its notes are recorded. _noted: how many of
    them were."""

    guardian: LimitGuard
    actuation: Actuation
    recorder: Records
    clock: Clock
    _noted: int = 0

    def rehearse(self) -> None:
        """Raises AutocapError where limits cannot be set, with all reasons."""
        with self.actuation.explained():
            self.guardian.rehearse()

    def set_caps(self, settings: Sequence[float]) -> None:
        """Set the first caps, watts. Raises as `rehearse`."""
        with self.actuation.explained():
            self.guardian.set_caps(settings)

    def record_notes(self) -> None:
        """Warn of what the guardian has noted since the last time."""
        notes = self.guardian.notes
        for note in notes[self._noted :]:
            self.recorder.warn(self.clock.now(), note)
        self._noted = len(notes)

    def put_back(self) -> None:
        """Put the limits found on arrival back, and record what became of each."""
        for one in self._restored():
            now_s, final = self.clock.now(), self.guardian.knob.setting_or_none(one.final_w)
            self.recorder.event(events.LimitRestored(t_s=now_s, uuid=one.uuid, final=final, restored=one.restored))
            if one.note is not None:
                self.recorder.warn(now_s, one.note)
        self.record_notes()

    def _restored(self) -> Sequence[Restored]:
        """What became of each, also where a driver that hangs has to be waited for."""
        until_s = self.clock.now() + DRIVER_AT_END_S
        while True:
            began_s = self.clock.now()
            found = self.guardian.restore()
            now_s = self.clock.now()
            if now_s - began_s < DRIVER_S or now_s > until_s or all(one.failure is None for one in found):
                return found


def guarded(actuation: Actuation, job: ProcessId | None, recorder: Records, clock: Clock, stack: ExitStack) -> Guarded:
    """Guard the limits of devices until the stack closes.

    Raises AutocapError where they cannot be guarded or set; nothing was set then.
    """
    try:
        guardian = stack.enter_context(actuation.guardian(job))
    except DeviceLocked as error:
        raise DeviceLocked(_lent_to(actuation.gpus) or str(error)) from error
    return Guarded(guardian=guardian, actuation=actuation, recorder=recorder, clock=clock)


def _lent_to(gpus: Sequence[GpuInfo]) -> str | None:
    """To whom the helper has lent one of the devices; `None` where it has not, or there is none."""
    with suppress(ActuatorUnavailable):
        for lease in leases_at(socket_path()):
            for gpu in gpus:
                if gpu.uuid in lease.devices:
                    who = f"{lease.user} (PID {lease.pid})"
                    return f"the helper has lent {gpu.where} to {who}; wait for that run, or have it end"
    return None
