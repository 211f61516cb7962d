"""Whole jobs through the NVML device in virtual time: the real runner and controller, down to the emulated library."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.controller import Controller
from autocap.devices.model.profiles import load
from autocap.devices.nvml.device import NvmlDevice
from autocap.errors import DeviceError
from autocap.metrics import Metric
from autocap.progress import Progress, StepProgress
from autocap.progress.period.progress import PeriodProgress
from autocap.session.runner import Runner
from autocap.session.sampling import LocalSampler
from autocap.session.search_space import cap_grid
from autocap.strategies import registry
from autocap.testing.nvml import Fault, machine
from autocap.testing.nvml.physics import Physics
from bench.simulation.jobs import Log
from tests.doubles.nvml_stand import PROFILE, Stand, stand

ARRIVALS_MW = (237_123, 241_007, 259_999)


class Setter:
    """Sets and restores; the guardian's own tests are elsewhere."""

    def __init__(self, device: NvmlDevice) -> None:
        self._limits, self._uuids = device.limits(), [gpu.uuid for gpu in device.gpus]
        self._original_w = [self._limits.requested_w(uuid) or 0.0 for uuid in self._uuids]

    def set_caps(self, caps_w: Sequence[float]) -> None:
        for uuid, cap_w in zip(self._uuids, caps_w, strict=True):
            self._limits.set_limit_w(uuid, cap_w)

    def restore(self) -> None:
        self.set_caps(self._original_w)

    def beat(self) -> bool:
        return False


class Job:
    """The emulated job, which ends at its last iteration or at a time."""

    def __init__(self, made: Stand, end_s: float) -> None:
        self._made, self._end_s, self.physics = made, end_s, Physics(made.clock)

    def poll(self) -> int | None:
        self.physics.sync(self._made.board.read())
        return 0 if self.physics.ended() or self._made.clock.now() >= self._end_s else None


def tune(made: Stand, end_s: float, period: bool = False, caps_w: tuple[float, ...] | None = None) -> Log:
    """Tune the job to its end; what was announced."""
    device, job, log = made.device(), Job(made, end_s), Log()
    original_w = tuple(reading.requested_w or 0.0 for reading in device.read())
    setter = Setter(device)
    config = TuneConfig(metric=Metric(name="energy"), caps_w=caps_w)
    grid = cap_grid(config, device.gpus, original_w)
    factory = registry.find("linear" if caps_w else "golden")
    options = registry.option_values(factory, ())
    progress: Progress = PeriodProgress(device.sensor) if period else StepProgress()
    controller = Controller(
        config=config,
        sensor=device.sensor,
        original_w=original_w,
        grid=grid,
        progress=progress,
        new_strategy=lambda baseline, before, caps, metric: factory(
            grid=caps,
            metric=config.metric,
            baseline=baseline,
            rng=np.random.default_rng(0),
            history=before,
            options=options,
        ),
    )
    runner = Runner(
        clock=made.clock,
        sampler=LocalSampler(clock=made.clock, device=device, steps=lambda: None if period else job.physics.steps()),
        controller=controller,
        job=job,
        sink=log,
        pace=lambda: controller.interval_s,
        setter=setter,
    )
    assert runner.run() == 0
    with suppress(DeviceError):  # as the guardian does on every way out
        setter.restore()
    return log


def warnings(log: Log) -> list[str]:
    return [event.text for event in log.events if isinstance(event, events.Warned)]


@pytest.mark.slow
def test_a_job_is_tuned_by_its_steps_and_a_better_cap_is_confirmed() -> None:
    with stand(replace(machine("quadro-rtx-6000/alexnet"), sensor="v100")) as made:
        log = tune(made, 55.0, caps_w=(130.0, 180.0, 230.0))
        assert [event.confirmed for event in log.events if isinstance(event, events.Decided)] == [True]
        assert made.requested_mw() == 260_000
        assert warnings(log) == []


@pytest.mark.slow
def test_the_period_in_the_power_is_found_and_is_the_job_s() -> None:
    with stand() as made:
        log = tune(made, 45.0, period=True, caps_w=(200.0,))
        (baseline,) = [event for event in log.events if isinstance(event, events.BaselineMeasured)]
        assert baseline.measurement.period_s == pytest.approx(load(PROFILE).time_s(260.0), rel=0.01)
        assert warnings(log) == []


@pytest.mark.slow
def test_limits_that_differ_from_gpu_to_gpu_are_back_to_the_milliwatt_after_the_job() -> None:
    with stand(replace(machine(PROFILE, gpus=3, arrivals_mw=ARRIVALS_MW), iterations=100)) as made:
        log = tune(made, 2000.0, caps_w=(150.0, 200.0))
        assert sum(isinstance(event, events.CapSet) for event in log.events) >= 2
        assert tuple(made.requested_mw(gpu) for gpu in range(3)) == ARRIVALS_MW


@pytest.mark.slow
def test_a_gpu_that_is_lost_ends_the_tuning_and_not_the_job() -> None:
    lost = Fault(code=15, gpu=0, from_s=40.0, times=None)
    with stand(replace(machine(PROFILE), iterations=120, faults=(lost,))) as made:
        log = tune(made, 2000.0, caps_w=(150.0, 200.0))
        said = "tuning ended, the job goes on: reading the"
        assert any(said in text and "GPU_IS_LOST" in text for text in warnings(log))
        assert made.clock.now() > 60.0


def test_a_limit_that_is_refused_ends_the_tuning_and_the_limit_found_stays() -> None:
    denied = Fault(code=4, function="nvmlDeviceSetPowerManagementLimit", times=None)
    with stand(replace(machine(PROFILE), iterations=120, faults=(denied,))) as made:
        log = tune(made, 2000.0, caps_w=(150.0, 200.0))
        assert any("was not permitted" in text and "--cap-add SYS_ADMIN" in text for text in warnings(log))
        assert made.requested_mw() == 260_000


@pytest.mark.slow
def test_what_the_device_notes_reaches_the_log() -> None:
    made_of = machine(PROFILE)
    made_of = made_of.with_card(0, replace(made_of.cards[0], persistence=False, energy_gain=0.5))
    with stand(replace(made_of, iterations=30)) as made:
        told = warnings(tune(made, 100.0, caps_w=(200.0,)))
        assert any("persistence mode is off on GPU 0" in text for text in told)
        assert any("the energy counter of GPU 0 counts" in text for text in told)


@pytest.mark.slow
@pytest.mark.parametrize("code", [10, 999])
@pytest.mark.parametrize("after", [1100, 1700, 2300, 3100])
def test_a_call_that_fails_at_any_time_leaves_the_limit_as_it_was_found(code, after) -> None:
    fault = Fault(code=code, after=after, times=2)
    made_of = replace(machine(PROFILE, arrivals_mw=[237_123]), iterations=80, faults=(fault,))
    with stand(made_of) as made:
        tune(made, 2000.0, caps_w=(150.0, 200.0))
        assert made.requested_mw() == 237_123
