"""A trial at another cap, before anything is measured, for a period in the power that nothing else can prove.

It is set once, a little below the draw, for as long as some cycles take, and the limits found on arrival are back
before anything is measured. What the period does there proves it, or ends it (`autocap.progress.period.proof`).
"""

from autocap.config import TuneConfig
from autocap.controller.context import StepContext
from autocap.controller.tuning import TUNING
from autocap.measurement.metering import Metered
from autocap.progress import Progress
from autocap.records import SensorInfo
from autocap.strategies.grid import CapGrid


class Proving:
    """Takes samples while the limits found on arrival hold. grid: the caps that may be set."""

    def __init__(
        self, config: TuneConfig, progress: Progress, context: StepContext, sensor: SensorInfo, grid: CapGrid
    ) -> None:
        self._progress, self._context, self._grid, self._sensor = progress, context, grid, sensor
        # Who only observes sets nothing, and under a limit on slowdown nothing has been saved up that it could cost.
        self._may = grid.knob.is_power_limit and not config.observe and config.metric.max_slowdown is None
        self._until_s: float | None = None
        self._draw_w: float | None = None
        self._drawn_s = 0.0

    @property
    def is_under_way(self) -> bool:
        return self._until_s is not None

    def take(self, metered: Metered) -> None:
        """Take in a sample: the trial begins, goes on, or ends."""
        self._see(metered)
        period_s = self._progress.unproven_s
        if self._until_s is not None:
            if period_s is None or metered.t_s >= self._until_s or metered.long_pause:
                self.end()
            return
        if not self._may or period_s is None or metered.paused:
            return
        setting = self._cap_w()
        if setting is None:
            return
        self._may = False
        lasts_s = max(TUNING.period_trial_cycles * period_s, TUNING.period_trial_least_s)
        self._until_s = metered.t_s + self._sensor.settle_s + min(lasts_s, TUNING.period_trial_most_s)
        self._context.warn(
            f"a period of {period_s:.3g} s shows in the power that a faster load could feign: a trial at "
            f"{setting:g} W, of {self._until_s - metered.t_s:.0f} s at most, tells them apart"
        )
        self._context.set(self._context.every(setting))

    def end(self) -> None:
        """Have the limits found on arrival hold again."""
        if self._until_s is not None:
            self._until_s = None
            self._context.set(self._context.uncapped_w)

    def _see(self, metered: Metered) -> None:
        """Follow the mean draw of the device that draws most, watts."""
        watts = [reading.power_w for reading in metered.sample.readings]
        known = [power_w for power_w in watts if power_w is not None]
        if not known:
            return
        since_s, self._drawn_s = metered.t_s - self._drawn_s, metered.t_s
        share = 1.0 if self._draw_w is None else min(1.0, since_s / TUNING.period_trial_draw_s)
        before_w = self._draw_w or 0.0
        self._draw_w = before_w + share * (max(known) - before_w)

    def _cap_w(self) -> float | None:
        """The highest cap clearly below the draw, watts; `None` where there is none."""
        if self._draw_w is None:
            return None
        most_w = TUNING.period_trial_below_draw * self._draw_w
        below = [setting for setting in self._grid if setting <= most_w and self._context.allows(setting)]
        return max(below, default=None)
