"""Puts the limits back in the middle of a run, and goes on trying where that fails, while the job goes on."""

import logging
from collections.abc import Callable

from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits import Restored
from autocap.limits.guard import Actuator
from autocap.limits.times import PUT_BACK_AGAIN_S, PUT_BACK_SELDOM_S

log = logging.getLogger(__name__)


class Restorer:
    """warn: records what the user should know, with its time. knob: that is put back."""

    def __init__(self, limits: Actuator, warn: Callable[[float, str], None], knob: Knob = POWER_LIMIT) -> None:
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
