"""BASELINE: the limits found on arrival are measured, before a search begins."""

import math
from dataclasses import replace

from autocap import events
from autocap.controller.context import StepContext
from autocap.controller.steps import FirstBaselineEnded
from autocap.measurement.energy import implausible
from autocap.measurement.metering import Metered
from autocap.measurement.probe import ProbeResult
from autocap.measurement.prober import Prober
from autocap.measurement.window import Window
from autocap.progress import Progress
from autocap.records import Measurement


class Baseline:
    """measured: the latest one. failed: how often it could not be measured, in a row."""

    def __init__(self, context: StepContext, prober: Prober, progress: Progress) -> None:
        self._context, self._prober, self._progress = context, prober, progress
        self.measured: Measurement | None = None
        self.failed = 0

    def begin(self, steady: Window | None = None) -> None:
        """steady: what was seen already. Under a budget that has room for the limits found, it is measured long: what
        other jobs get depends on it."""
        running_s = math.inf if self._context.has_room else self._context.now_s
        self._prober.start_baseline(self._context.uncapped_w, steady, running_s, shared=self._context.has_room)

    def take(self, metered: Metered) -> FirstBaselineEnded | None:
        """Take in a sample; that it was measured, once it was."""
        result = self._prober.add(metered)
        return None if result is None else self._ended(result)

    def _ended(self, result: ProbeResult) -> FirstBaselineEnded:
        if result.measurement is None:
            self.failed += 1
            return FirstBaselineEnded(
                failed=f"the baseline could not be measured: {self._progress.trouble or result.reason}"
            )
        baseline = result.measurement
        if self._progress.confidence == "low":
            baseline = replace(baseline, proxy_rel_stderr=0.0)
        self._prober.count_by_proxy(baseline if baseline.is_relative else None)
        self.measured, self.failed = baseline, 0
        doubt = implausible(baseline.power_w, baseline.of_gpus().power_w)
        if doubt is not None:
            self._context.warn(doubt)
        self._context.announce(events.BaselineMeasured(t_s=self._context.now_s, measurement=baseline))
        self._prober.expect(baseline.period_s)
        return FirstBaselineEnded()
