"""Guards the limits of a session's devices: records what became of them, puts them back during a run, again and again
where that fails, and says when to ask for those that others have for now."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Protocol

from autocap import events
from autocap.clock import Clock
from autocap.errors import DeviceLocked, DeviceShared, LeaseEnded, LimitWithheld, SetterDenied, SetterUnavailable
from autocap.events import Event
from autocap.job.processes import ProcessId
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits import Restored
from autocap.limits.guard import LimitGuard, LimitSetter
from autocap.limits.helper.connection import leases_at
from autocap.limits.helper.protocol import socket_path
from autocap.limits.times import DRIVER_AT_END_S, DRIVER_S, PUT_BACK_AGAIN_S, PUT_BACK_SELDOM_S
from autocap.records import GpuInfo
from autocap.session.via import Actuation


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
    with suppress(SetterUnavailable):
        for lease in leases_at(socket_path()):
            for gpu in gpus:
                if gpu.uuid in lease.devices:
                    who = f"{lease.user} (PID {lease.pid})"
                    return f"the helper has lent {gpu.where} to {who}; wait for that run, or have it end"
    return None


log = logging.getLogger(__name__)


class Restorer:
    """warn: records what the user should know, with its time. knob: that is put back."""

    def __init__(self, limits: LimitSetter, warn: Callable[[float, str], None], knob: Knob = POWER_LIMIT) -> None:
        self._limits, self._warn, self._knob = limits, warn, knob
        self._missing: set[str] = set()  # devices of which it was said that their limit is still to be put back
        self._again_s: float | None = None
        self._wait_s = PUT_BACK_AGAIN_S

    def restore(self, now_s: float) -> None:
        """Put the limits back, and begin to try again where one is refused; that goes on if it has begun already."""
        if self._again_s is None:
            self._wait_s = PUT_BACK_AGAIN_S
            self._try(now_s)

    def due(self, now_s: float) -> None:
        """Try again, if it is time to."""
        if self._again_s is not None and now_s >= self._again_s:
            self._try(now_s)

    def _try(self, now_s: float) -> None:
        try:
            found = self._limits.restore() or ()
        except Exception as error:  # the watchdog and the guardian's own end try again as well
            log.debug("limits not put back", exc_info=True)
            if self._again_s is None:
                self._warn(now_s, f"the limits could not be put back yet: {error}")
            self._wait(now_s)
            return
        self._again_s = None
        for one in found:
            self._follow(one, now_s)
        if any(one.failure is not None for one in found):
            self._wait(now_s)

    def _wait(self, now_s: float) -> None:
        self._again_s = now_s + self._wait_s
        self._wait_s = min(2 * self._wait_s, PUT_BACK_SELDOM_S)

    def _follow(self, one: Restored, now_s: float) -> None:
        if one.failure is not None and one.uuid not in self._missing:
            self._missing.add(one.uuid)
            text = f"could not be put back yet ({one.failure}); it is tried again until it is"
            self._warn(now_s, f"the {self._knob.label} of {one.uuid} {text}")
        elif one.failure is None and one.uuid in self._missing:
            self._missing.discard(one.uuid)
            at = "" if one.final_w is None else f": it is at {self._knob.value_text(one.final_w)} again"
            self._warn(now_s, one.note or f"the {self._knob.label} of {one.uuid} was put back after all{at}")


PASSING = (SetterDenied, DeviceLocked, DeviceShared, LeaseEnded, LimitWithheld)  # refusals that may be over soon
_FIRST_S, _LONGEST_S = 30.0, 600.0  # between askings; each time twice as long as before


class Asking:
    """When to ask next, seconds on the run's clock. now_s: of the first refusal."""

    def __init__(self, now_s: float) -> None:
        self._wait_s = _FIRST_S
        self.again_s = now_s + self._wait_s

    def refused(self, now_s: float) -> None:
        """It was asked, and refused again."""
        self._wait_s = min(2 * self._wait_s, _LONGEST_S)
        self.again_s = now_s + self._wait_s


def untuned_for_now(why: str) -> str:
    """What a user is told, once."""
    return f"the job runs untuned for now: {why}; it is asked again in {_FIRST_S:g} s, and then ever less often"


TUNED_AFTER_ALL = "the limits may be set now, so the job is tuned after all"
LENT_AGAIN = "the limits are lent again; tuning goes on"
