"""The samples of a run come back as arrays, as far as they were written."""

import zlib
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from autocap.clock import VirtualClock
from autocap.controller.intake import Pace
from autocap.devices.model import profiles
from autocap.records import Reading, Sample, StepReading
from autocap.runlog.columns import parse
from autocap.runlog.directory import SAMPLES, RunDirectory, header, row
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob


def gzipped(text: str) -> bytes:
    return zlib.compress(text.encode(), wbits=31)


def sample(t_s: float, *powers_w: float | None, steps: int | None = None) -> Sample:
    readings = tuple(Reading(t_s=t_s, power_w=watts, requested_w=200.0, enforced_w=190.0) for watts in powers_w)
    return Sample(t_s=t_s, readings=readings, steps=None if steps is None else StepReading(count=steps, t_s=t_s - 0.1))


def written(*samples: Sample) -> bytes:
    return gzipped(header(samples[0]) + "".join(map(row, samples)))


def test_one_devices_samples_come_back_and_what_was_not_read_is_no_number() -> None:
    found = parse([written(sample(1.0, 150.0, steps=7), sample(1.5, None))])
    assert found.t_s.tolist() == [1.0, 1.5]
    assert found.power_w[0] == 150.0
    assert np.isnan(found.power_w[1])
    assert found.requested_w.tolist() == [200.0, 200.0]
    assert found.enforced_w.tolist() == [190.0, 190.0]
    assert (found.steps[0], found.step_t_s[0]) == (7.0, 0.9)
    assert np.isnan(found.steps[1])


def test_limits_of_several_devices_are_summed_as_their_power_is() -> None:
    found = parse([written(sample(1.0, 150.0, 50.0), sample(2.0, 150.0, None))])
    assert found.power_w[0] == 200.0
    assert np.isnan(found.power_w[1])
    assert found.requested_w.tolist() == [400.0, 400.0]


@pytest.mark.parametrize("data", [b"", b"not gzip", gzipped(""), gzipped("t_s,power_w\n"), gzipped("a,b\n1,2\n")])
def test_a_file_without_samples_gives_none(data: bytes) -> None:
    assert len(parse([data]).t_s) == 0


@pytest.mark.slow
def test_a_day_at_a_held_cap_takes_less_than_5_mb(tmp_path: Path) -> None:
    device = SimulatedDevice(clock := VirtualClock(), SimulatedJob(profile=profiles.load("tesla-v100/resnet50")))
    pace, sizes = Pace(device.sensor), list[int]()
    with RunDirectory.create(tmp_path / "run", False, datetime.now(UTC)) as run:
        for end_s in (100.0, 820.0):
            while clock.now() < end_s:
                seen = Sample(t_s=clock.now(), readings=device.read(), steps=device.steps(clock.now()))
                run.sample(seen)
                pace.take(seen)
                clock.wait_until(clock.now() + pace.interval_s(held=True, follows_power=False, iteration_s=0.3))
            sizes.append((tmp_path / "run" / SAMPLES).stat().st_size)
    assert 86_400 / 720 * (sizes[1] - sizes[0]) < 5e6


def test_damaged_rows_and_times_that_go_back_are_left_out() -> None:
    found = parse([gzipped("t_s,power_w\n1,100\n0.5,101\n2,x\n,102\n3\n4,103\n")])
    assert found.t_s.tolist() == [1.0, 2.0, 4.0]
    np.testing.assert_array_equal(found.power_w, [100.0, np.nan, 103.0])
