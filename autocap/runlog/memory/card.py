"""What jobs on a card have shown, as shares."""

import math
from collections.abc import Mapping

from autocap.records import Measurement, RelativeCurve, RelativePoint


def relative(baseline: Measurement, points: Mapping[float, Measurement]) -> RelativeCurve:
    """A curve as shares of what the devices have shown at the limits found on arrival. points: by their cap, watts."""
    own = baseline.of_gpus()
    limit_w = max(own.setting)
    return RelativeCurve(
        draw=own.power_w / len(own.setting) / limit_w,
        binding=own.cap_binding,
        points=tuple(_point(cap_w / limit_w, points[cap_w].of_gpus(), own) for cap_w in sorted(points)),
    )


def _point(cap: float, shown: Measurement, baseline: Measurement) -> RelativePoint:
    return RelativePoint(
        cap=cap,
        power=shown.power_w / baseline.power_w,
        time=shown.period_s / baseline.period_s,
        power_rel_stderr=math.hypot(shown.power_rel_stderr, baseline.power_rel_stderr),
        period_rel_stderr=math.hypot(shown.period_rel_stderr, baseline.period_rel_stderr),
    )
