"""Asks a device for a limit: again where it is ignored, and until it has shown what it makes of it."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from autocap.devices.base import LimitPort
from autocap.devices.limit_steps import SETTLE_S, LimitSteps
from autocap.errors import GuardError, LimitClamped, LimitIgnored, LimitOvertaken
from autocap.limits.background_call import one_by_one, together
from autocap.limits.journal import LIMIT, Turned
from autocap.limits.times import ASK_AGAIN_S
from autocap.records import same_limit

_LOOK_S = 0.05  # whether a device makes the same of a limit once more

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """now: the time, seconds. pause: waits for some seconds. threads: whether each device is worked on in a thread of
    its own, as where time is real."""

    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], object] = time.sleep
    threads: bool = False

    def each(self, work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        """What some work on each device yields, in order; raises what the first that failed has raised."""
        return together(work, items) if self.threads else one_by_one(work, items)

    def each_within(
        self, within_s: float, work: Callable[[_T], _R], items: Sequence[_T], late: Callable[[_T], _R]
    ) -> list[_R]:
        """The same; late yields what is returned for a device that takes longer, with which the work goes on."""
        return together(work, items, within_s, late) if self.threads else one_by_one(work, items)


REAL_TIME = Waiting(threads=True)


class ForeignLimit(GuardError):
    """Somebody else has changed a limit that is guarded; it is left alone from then on. Limits in watts, or the values
    of another knob."""

    def __init__(self, *, uuid: str, expected_w: float, found_w: float, knob: Turned = LIMIT) -> None:
        found, where = knob.text(found_w), f"where {knob.text(expected_w)} is ours: somebody else has changed it"
        super().__init__(
            f"the limit of {uuid} is {found}, {where}, so no cap is set there any more; start again once nothing else "
            "sets limits"
            if knob.is_power_limit
            else f"{uuid} is at {found}, {where}, so it is not set there any more; start again once nothing else sets "
            f"{knob.name}"
        )
        self.uuid, self.expected_w, self.found_w = uuid, expected_w, found_w


class Asking:
    """One device. found_w: the limit found on arrival, watts; `None` where it cannot be read. knob: whose values the
    limits are.

    Some cards take limits in steps, and change what was requested some time after it was read back. What follows a
    limit of ours soon, and may be a step of the device, is the device's own doing. No other knob does that.
    """

    def __init__(
        self, limits: LimitPort, uuid: str, found_w: float | None, clock: Waiting, knob: Turned = LIMIT
    ) -> None:
        self._limits, self._uuid, self._clock, self._knob = limits, uuid, clock, knob
        self._steps = LimitSteps(found_w)
        self._asked_w: float | None = None  # last; `None` once the device has had its time
        self._asked_s = 0.0

    @property
    def awaits(self) -> bool:
        """Whether the device may still make another limit of the one that was asked for last."""
        return self._asked_w is not None

    def put_back(self, found_w: float, final_w: float | None) -> None:
        """The limit found was requested just now, and so much reads back."""
        self._asked(found_w)
        if final_w is not None and not same_limit(final_w, found_w) and self._explains(found_w, final_w):
            self._steps.learn(found_w, final_w)

    def made(self, asked_w: float | None, there_w: float | None) -> bool:
        """Whether the device was seen to make that of what was asked."""
        return asked_w is not None and there_w is not None and self._steps.knows(asked_w, there_w)

    def _explains(self, asked_w: float, there_w: float) -> bool:
        return self._knob.is_power_limit and self._steps.explains(asked_w, there_w)

    def _asked(self, limit_w: float) -> None:
        if self._knob.is_power_limit:
            self._asked_w, self._asked_s = limit_w, self._clock.now()

    def end(self) -> bool:
        """Whether the device has had its time; nothing is its doing any more then."""
        if self._clock.now() - self._asked_s < SETTLE_S:
            return False
        self._asked_w = None
        return True

    def request(self, setting: float, before_again: Callable[[], object], *, alone: bool = True) -> None:
        """Raises as `LimitPort.set_limit_w`; LimitIgnored only once it was asked for again and again, LimitClamped once
        it was twice: some drivers now and then take another limit than the one that was asked for. before_again: called
        before each of the former. alone: wait until it is enforced."""
        ask = self._limits.set_limit_w if alone else self._limits.request_w
        waits_s = iter(ASK_AGAIN_S)
        clamped: LimitClamped | None = None
        while True:
            try:
                ask(self._uuid, setting)
                return
            except LimitIgnored as error:
                if clamped is not None and self._knob.same(error.found_w, clamped.found_w):
                    raise clamped from error  # the same once more, which is there already
                wait_s = next(waits_s, None)
                if wait_s is None:
                    raise
                self._clock.pause(wait_s)
                before_again()
            except LimitClamped as error:
                if clamped is not None:
                    raise
                clamped = error
            finally:
                self._asked(setting)

    def has_made(self, there_w: float, listen: Callable[[], object]) -> bool:
        """Whether a limit is what the device has made of ours. Before that is believed the first time, ours is asked
        for again. listen: called while that is awaited.

        Raises ForeignLimit where ours holds then: the other was somebody else's, who has got it back.
        """
        asked_w = self._asked_w
        if asked_w is None or not self._explains(asked_w, there_w):
            return False
        if not self._steps.expects(asked_w, there_w) and not self._comes_again(asked_w, there_w, listen):
            with suppress(Exception):  # as far as it can be had
                self._limits.set_limit_w(self._uuid, there_w)
            raise ForeignLimit(uuid=self._uuid, expected_w=asked_w, found_w=there_w)
        self._steps.learn(asked_w, there_w)
        return True

    def _comes_again(self, asked_w: float, there_w: float, listen: Callable[[], object]) -> bool:
        """Whether the device makes the same of a limit once more."""
        try:
            self.request(asked_w, lambda: None, alone=False)
        except LimitIgnored:  # it was made the same before it could be read back
            return True
        except (LimitClamped, LimitOvertaken) as error:
            return same_limit(error.found_w, there_w)
        while self._clock.now() - self._asked_s < SETTLE_S:
            requested_w = self._limits.requested_w(self._uuid)
            if requested_w is not None and not same_limit(requested_w, asked_w):
                return same_limit(requested_w, there_w)
            self._clock.pause(_LOOK_S)
            listen()
        return False
