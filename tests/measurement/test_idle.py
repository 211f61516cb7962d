from dataclasses import replace

import numpy as np
import pytest

from autocap.measurement.metering import IdleWatch
from autocap.progress import Progress, StepProgress
from autocap.progress.period.progress import PeriodProgress
from autocap.records import NodeReading, SensorInfo
from tests.doubles.feeds import Meter, samples


def estimate(progress: Progress, *, whole: bool = True) -> tuple[float | None, float]:
    """What is told at the first iteration, which ends at 20.5 s, and how long was looked at."""
    rng, watch, meter = np.random.default_rng(1), IdleWatch(), Meter()
    for sample in samples(seconds=20.0, power_w=50.0):
        node = NodeReading(t_s=sample.t_s, power_w=rng.uniform(400, 500), whole=whole)
        watch.add(meter.of(replace(sample, steps=None, node=node)), progress.kind)
    for sample in samples(start_s=20.0, seconds=2.0):
        sample = replace(sample, node=NodeReading(t_s=0.0, power_w=700.0, whole=whole))
        found = watch.add(meter.of(sample, progress.marks(sample)), progress.kind)
        if found is not None:
            return found, watch.seen_s
    return None, watch.seen_s


def test_it_is_the_second_percentile_of_what_was_seen_before_the_first_iteration() -> None:
    found, seen_s = estimate(StepProgress())
    assert found == pytest.approx(402.0, abs=6.0)
    assert seen_s == pytest.approx(20.5, abs=0.2)


def test_the_gpus_count_where_the_source_is_of_the_rest_alone() -> None:
    whole, _ = estimate(StepProgress())
    beside, _ = estimate(StepProgress(), whole=False)
    assert beside == pytest.approx(whole + 50.0, abs=5.0)


def test_nothing_is_known_where_iterations_are_recognised_only_afterwards() -> None:
    found, _ = estimate(PeriodProgress(SensorInfo(update_s=0.1, window_s=0.1, settle_s=1.0)))
    assert found is None


def test_nothing_is_known_of_a_job_that_was_never_seen_at_rest() -> None:
    watch, progress, meter = IdleWatch(), StepProgress(), Meter()
    for sample in samples(count_from=100):
        sample = replace(sample, node=NodeReading(t_s=0.0, power_w=700.0, whole=True))
        assert watch.add(meter.of(sample, progress.marks(sample)), progress.kind) is None


def test_a_meter_of_the_whole_machine_tells_of_it_before_the_gpus_are_known() -> None:
    watch, progress, meter = IdleWatch(), StepProgress(), Meter()
    for second in range(5):
        watch.before(float(second), NodeReading(t_s=float(second), power_w=300.0, whole=True))
        watch.before(float(second), NodeReading(t_s=float(second), power_w=90.0, whole=False))  # theirs is missing
    for sample in samples(start_s=5.0, seconds=1.0):
        sample = replace(sample, node=NodeReading(t_s=5.0, power_w=700.0, whole=True))
        found = watch.add(meter.of(sample, progress.marks(sample)), progress.kind)
        if found is not None:
            break
    assert found == 300.0
