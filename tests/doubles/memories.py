"""What may be remembered of a job, for tests of whatever keeps or uses it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from autocap.events import MetricInfo
from autocap.records import SensorInfo
from autocap.runlog.memory.store import FORMAT, KEY_DIGITS, Curve, Entry, Point, Setup
from tests.doubles.feeds import measurement

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SETUP = Setup(kind="nvml", emulated=False, gpus=("Quadro RTX 6000",), driver="550", node=None)


def curve(
    caps: dict[float, float], *, days: float = 0.0, kept_w: float | None = None, arrival_w: float = 260.0
) -> Curve:
    """Joules per iteration by cap, measured so many days ago; the baseline takes 100 J."""
    return Curve(
        measured_at=(NOW - timedelta(days=days)).isoformat(),
        metric=MetricInfo(name="energy"),
        progress="steps",
        baseline=measurement(100.0, cap_w=arrival_w),
        points=tuple(Point(setting=cap_w, measurement=measurement(j, cap_w=cap_w)) for cap_w, j in caps.items()),
        kept_w=kept_w,
    )


def entry(key: str = "ab", *curves: Curve) -> Entry:
    """key: its first digits."""
    return Entry(
        format=FORMAT,
        key=key + "0" * (KEY_DIGITS - len(key)),
        autocap_version="0.1.0",
        command=("python", "train.py"),
        setup=SETUP,
        sensor=SensorInfo(update_s=0.1, window_s=0.0, settle_s=0.5),
        runs=max(1, len(curves)),
        curves=curves or (curve({180.0: 80.0, 140.0: 85.0}, kept_w=180.0),),
    )


def with_progress(one: Curve, progress: str) -> Curve:
    return replace(one, progress=progress)
