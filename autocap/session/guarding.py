"""Guards the limits of a session's devices, and records in the run log what became of them."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from autocap import events
from autocap.clock import Clock
from autocap.devices.base import Tunable
from autocap.guardian import Guardian
from autocap.job.processes import ProcessId
from autocap.session.recorder import Recorder


@dataclass(slots=True, kw_only=True)
class Guarded:
    """A guardian that has been entered, and where its notes are recorded. _noted: how many of them were."""

    guardian: Guardian
    recorder: Recorder
    clock: Clock
    _noted: int = 0

    def record_notes(self) -> None:
        """Warn of what the guardian has noted since the last time."""
        notes = self.guardian.notes
        for note in notes[self._noted :]:
            self.recorder.warn(self.clock.now(), note)
        self._noted = len(notes)

    def put_back(self) -> None:
        """Put the limits found on arrival back, and record what became of each."""
        now_s = self.clock.now()
        for one in self.guardian.restore():
            self.recorder.event(
                events.LimitRestored(t_s=now_s, uuid=one.uuid, final_w=one.final_w, restored=one.restored)
            )
            if one.note is not None:
                self.recorder.warn(now_s, one.note)
        self.record_notes()


def guarded(
    device: Tunable,
    job: ProcessId | None,
    recorder: Recorder,
    clock: Clock,
    stack: ExitStack,
    *,
    new_guardian: Callable[..., Guardian] = Guardian,
) -> Guarded:
    """Guard the limits of a device until the stack closes. new_guardian: makes it, from what `Guardian` takes.

    Raises AutocapError where they cannot be guarded or set; nothing was set then.
    """
    guardian = new_guardian(kind=device.kind, gpus=device.gpus, limits=device.limits(), job=job)
    return Guarded(guardian=stack.enter_context(guardian), recorder=recorder, clock=clock)
