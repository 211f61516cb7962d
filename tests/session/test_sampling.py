"""Reading a device whose driver takes its time holds up nobody; its time is real here."""

import threading
import time

import pytest

from autocap.clock import MonotonicClock
from autocap.errors import DeviceError
from autocap.job.signals import SignalClock
from autocap.records import Reading
from autocap.session import sampling
from autocap.session.backend import Backend
from autocap.session.sampling import LocalSampler


class Driver:
    """Answers once it may; error: what it answers with then."""

    def __init__(self) -> None:
        self.may, self.calls = threading.Event(), 0
        self.may.set()
        self.error: Exception | None = None

    def read(self) -> tuple[Reading, ...]:
        self.calls += 1
        call = self.calls
        self.may.wait()
        if self.error is not None:
            raise self.error
        return (Reading(t_s=0.0, power_w=float(call)),)

    def notes(self) -> tuple[str, ...]:
        return ()


def sampled(driver: Driver) -> LocalSampler:
    return LocalSampler(clock=MonotonicClock(), device=driver, steps=lambda: None, patient=True)  # type: ignore[arg-type]


def eventually(aside: LocalSampler) -> tuple[float | None, ...]:
    for _ in range(500):
        if found := aside.samples():
            return tuple(reading.power_w for reading in found[0].readings)
        time.sleep(0.01)
    raise AssertionError("no sample came")


def test_a_driver_that_answers_is_read_at_each_call() -> None:
    driver = Driver()
    sampler = sampled(driver)
    assert [eventually(sampler) for _ in range(3)] == [(1.0,), (2.0,), (3.0,)]


def test_one_that_does_not_answer_makes_a_gap_and_what_comes_late_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_LATE_S", 0.1)
    driver = Driver()
    sampler = sampled(driver)
    assert eventually(sampler) == (1.0,)
    driver.may.clear()
    began_s = time.monotonic()
    assert [sampler.samples() for _ in range(20)] == [()] * 20
    assert time.monotonic() - began_s < 2.0  # it was waited for once
    assert driver.calls == 2  # and asked once
    driver.may.set()
    assert eventually(sampler) == (3.0,)
    (said,) = sampler.notes()
    assert said.startswith("the driver answered nothing for 0.")
    assert not sampler.notes()


def test_a_reading_that_is_somewhat_late_counts_for_the_time_at_which_it_was_done() -> None:
    driver = Driver()
    sampler = sampled(driver)
    assert eventually(sampler) == (1.0,)
    driver.may.clear()
    assert sampler.samples() == ()
    driver.may.set()
    time.sleep(0.2)
    (sample,) = sampler.samples()
    assert sample.readings[0].power_w == 2.0
    assert sampler.samples()[0].t_s - sample.t_s > 0.1
    assert not sampler.notes()


def test_one_that_answers_no_more_is_said_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    sampler = sampled(driver)
    assert eventually(sampler) == (1.0,)
    driver.may.clear()
    monkeypatch.setattr(sampling, "_SAY_S", 0.1)
    assert sampler.samples() == ()
    time.sleep(0.15)
    assert sampler.samples() == ()
    assert sampler.notes() == ("the driver has given no whole reading for 0.1 s; nothing is measured meanwhile",)
    assert sampler.samples() == ()
    assert not sampler.notes()
    monkeypatch.setattr(sampling, "_GIVE_UP_S", 0.1)
    with pytest.raises(DeviceError, match="no whole reading for 0"):
        sampler.samples()
    driver.may.set()


def test_a_job_of_this_machine_is_sampled_so() -> None:
    driver = Driver()
    driver.may.clear()
    released = threading.Timer(3.0, driver.may.set)  # or whoever waits for it would for ever
    released.start()
    with SignalClock() as clock:
        sampler = Backend().sampler(
            clock=clock, device=driver, steps=lambda: None, node=None, pace=lambda: 0.1, is_steady=lambda: False
        )  # type: ignore[arg-type]
        assert sampler.samples() == ()
    released.cancel()
    driver.may.set()


def test_an_error_that_comes_late_is_raised() -> None:
    driver = Driver()
    sampler = sampled(driver)
    driver.may.clear()
    assert sampler.samples() == ()
    driver.error = DeviceError("it has fallen off the bus")
    driver.may.set()
    with pytest.raises(DeviceError, match="fallen off"):
        eventually(sampler)
    driver.error = None
    assert eventually(sampler) == (2.0,)


def test_an_error_that_comes_at_once_is_raised_at_once() -> None:
    driver = Driver()
    driver.error = DeviceError("no")
    with pytest.raises(DeviceError, match="no"):
        sampled(driver).samples()
