"""What the readings say of limits: whether somebody else has changed one that we hold, found between our own sets; and
which caps the devices take as they are."""

import math
from collections.abc import Callable, Iterator, Sequence

from autocap.devices.limit_steps import SETTLE_S, LimitSteps, on_steps
from autocap.errors import LimitOutside
from autocap.knobs import POWER_LIMIT, Knob
from autocap.records import GpuInfo, Reading, same_limit, same_limits

# Our own watchdog puts limits back when we were stopped; we hear of it before the second sample that shows it.
_SAMPLES = 2
# So soon after our set a change may be what a device has made of it: whoever guards the limits has the last word on
# that, and asks for ours once more before.
_SOON_S = 2 * SETTLE_S + 0.5
_DEFAULT = (
    "the default, as after a reload of the driver or a reset of the GPU, unless somebody else has set it; it stays"
)
_SOMEBODY_ELSE = "somebody else has changed it, and it stays"


class LimitWatch:
    """Compares what each sample shows to be asked for with what should hold.

    found_w: the limits found on arrival, watts, where they are known. steps: what each device was seen to make of
    limits, soon after they were set; that is not somebody else's doing.
    """

    def __init__(self, gpus: Sequence[GpuInfo], found_w: Sequence[float | None] = (), knob: Knob = POWER_LIMIT) -> None:
        self._gpus, self._knob = gpus, knob
        self.steps = tuple(LimitSteps(found_w) for found_w in found_w or (None,) * len(gpus))
        self._settings: tuple[float, ...] = ()
        self._seen = 0
        self._since_s = 0.0  # the first sample for which these limits should hold
        self._agreed_s = 0.0  # since then, the last one in which they did
        self._made: str | None = None

    @property
    def suspects(self) -> bool:
        """Whether the latest sample showed another limit than should hold."""
        return self._seen > 0

    def taken_in_steps(self) -> str | None:
        """That devices take limits in steps of their own, told each time that it is seen of a limit; else `None`."""
        made, self._made = self._made, None
        return made

    def change(self, readings: Sequence[Reading], settings: Sequence[float]) -> str | None:
        """Who was changed to what, once two samples in a row show it; `None` while all is as it should be.

        settings: the limits that should hold, watts, one per device.
        """
        t_s = max((reading.t_s for reading in readings), default=0.0)
        if not same_limits(settings, self._settings):
            self._settings, self._seen = tuple(settings), 0
            self._since_s = self._agreed_s = t_s
        changed = list(self._changed(readings, settings))
        if not changed:
            self._seen, self._agreed_s = 0, t_s
            return None
        self._seen += 1
        if self._seen < _SAMPLES:
            return None
        if not self._knob.is_power_limit:
            return self._said(changed, settings)
        soon = self._agreed_s - self._since_s <= _SOON_S
        if soon and all(self.steps[place].explains(settings[place], there_w) for place, there_w in changed):
            self._learn(changed, settings)
            return None
        is_default = all(same_limit(there_w, self._gpus[place].cap_range.default_w) for place, there_w in changed)
        return self._said(changed, settings, _DEFAULT if is_default else _SOMEBODY_ELSE)

    def _changed(self, readings: Sequence[Reading], settings: Sequence[float]) -> Iterator[tuple[int, float]]:
        """The places of devices at which another value is asked for than should be, and that value."""
        for place, (reading, setting) in enumerate(zip(readings, settings, strict=True)):
            if not self._knob.is_power_limit:
                there, wanted = reading.knob_value, self._knob.value(setting)
                if there is not None and abs(there - wanted) > self._knob.tolerance:
                    yield place, there
                continue
            there = reading.requested_w
            if there is not None and not (same_limit(there, setting) or self.steps[place].knows(setting, there)):
                yield place, there

    def _said(self, changed: Sequence[tuple[int, float]], settings: Sequence[float], why: str = _SOMEBODY_ELSE) -> str:
        knob = self._knob
        there = [
            f"the {knob.label} of {self._gpus[place].where} is {knob.value_text(value)}, where "
            f"{knob.text(settings[place])} should be"
            for place, value in changed
        ]
        return f"{'; '.join(there)}: {why}"

    def _learn(self, changed: Sequence[tuple[int, float]], settings: Sequence[float]) -> None:
        for place, there_w in changed:
            self.steps[place].learn(settings[place], there_w)
        self._seen = 0
        place, there_w = changed[0]
        self._made = (
            f"{self._gpus[place].where} takes limits in steps: it made {there_w:g} W of {settings[place]:g} W, as "
            f"steps of {self.steps[place].step_w:g} W would"
        )


class TakenCaps:
    """steps: what each device was seen to make of limits. least_w: the lowest limit that all take, `None` while none
    was too low. most_w: at what something outside autocap holds one of them, watts."""

    def __init__(self, steps: Sequence[LimitSteps]) -> None:
        self._steps = steps
        self.least_w: float | None = None
        self.most_w = math.inf

    def among(self, settings: Sequence[float]) -> tuple[float, ...]:
        """What becomes of caps, watts, ascending; the lowest limit that is taken is one, as far as they reach so
        high."""
        low_w = self.least_w
        found_w = [
            setting for setting in settings if low_w is None or (setting > low_w and not same_limit(setting, low_w))
        ]
        if low_w is not None and low_w < max(settings):
            found_w.append(low_w)
        within = [setting for setting in found_w if setting <= self.most_w]
        return on_steps(within, self._steps) if within else ()

    def above_refused(
        self, settings: Sequence[float], refused_w: float, set_caps: Callable[[float], object]
    ) -> tuple[float, ...]:
        """The same where a device refuses one of them, and so all below; the lowest that is not is found by setting
        some."""
        above_w = [setting for setting in self.among(settings) if setting > refused_w]
        low, high = 0, len(above_w)
        while low < high:
            middle = (low + high) // 2
            try:
                set_caps(above_w[middle])
                high = middle
            except LimitOutside:
                low = middle + 1
        self.least_w = above_w[low] if above_w[low:] else math.inf
        return tuple(above_w[low:])
