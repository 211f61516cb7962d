"""Devices of another package whose classes inherit nothing of ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autocap.clock import MonotonicClock
from autocap.devices.base import Tunable
from autocap.devices.plugged import PluggedSource, as_limits, as_port, port_of
from autocap.errors import DeviceError, LimitNotEnforced
from autocap.knobs import POWER_LIMIT
from autocap.testing.devices import KnobContract
from tests.doubles import file_device
from tests.doubles.file_device.source import FileDevice


class Stranger:
    """Source, device and port at once."""

    known, kind, driver, left, gpus = None, "theirs", "1.0", False, ("one", "two")

    def __init__(self) -> None:
        self.set: list[float] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        self.left = True

    def find(self, job: object, waited_s: float) -> "Stranger":
        return self

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        self.set.append(cap_w)
        if cap_w > 200.0:
            raise LimitNotEnforced("held lower", 200.0)


def test_a_device_has_what_its_class_says_and_else_what_ours_does() -> None:
    theirs = Stranger()
    with PluggedSource(theirs) as source:
        device = source.find((), 0.0)
    assert (theirs.left, device.kind, device.driver) == (True, "theirs", "1.0")
    assert (device.refusal, device.verifier(), device.reloads, device.notes()) == (None, None, 0, ())


def test_a_limit_is_set_and_put_back_by_the_one_setter_that_there_is() -> None:
    theirs = Stranger()
    port = as_port(theirs)
    port.request_w("gpu", 150.0)
    assert port.is_enforced("gpu", 150.0)
    port.put_back("gpu", 260.0, port.settings("gpu"))  # no more enforced than when it was found
    port.put_back("gpu", None, ())
    assert theirs.set == [150.0, 260.0]
    assert as_port(port) is port


class StrangersKnob:
    """What a port has to have, and no more."""

    def __init__(self) -> None:
        self.at = {"gpu": 1.0}

    def requested(self, uuid: str) -> float | None:
        return self.at[uuid]

    def set(self, uuid: str, value: float) -> None:
        self.at[uuid] = value


def test_a_device_that_offers_no_knob_has_none() -> None:
    with PluggedSource(Stranger()) as source:
        device = source.find((), 0.0)
    assert (device.knobs, device.knob_values("clock")) == ((), (None, None))
    with pytest.raises(DeviceError, match="devices of kind 'theirs' have no knob clock"):
        device.knob_port("clock")


def test_a_knob_is_set_and_put_back_as_a_limit_is() -> None:
    theirs = StrangersKnob()
    port = as_limits(theirs)
    port.request_w("gpu", 2.0)
    assert (port.requested_w("gpu"), port.is_enforced("gpu", 2.0), port.settings("gpu")) == (2.0, True, ())
    port.put_back("gpu", 0.0, ())
    port.put_back("gpu", None, ())
    assert theirs.at == {"gpu": 0.0}
    assert (port.reloads, port.default_w("gpu")) == (0, None)
    port.close()


class TestFileDevice(KnobContract):
    @pytest.fixture(autouse=True)
    def _in(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @contextmanager
    def make_tunable(self) -> Iterator[Tunable]:
        gpu = file_device.make(self.folder)
        yield FileDevice(Path(gpu.uuid), MonotonicClock(), observe=False)

    def test_what_is_turned_is_the_limit_or_the_knob(self, turned: Tunable) -> None:
        (gpu,) = turned.gpus
        clock, _ = turned.knobs
        port_of(turned, POWER_LIMIT).set_limit_w(gpu.uuid, 200.0)
        port_of(turned, clock).set_limit_w(gpu.uuid, 750.0)
        (reading,) = turned.read()
        assert (reading.requested_w, reading.power_w) == (200.0, pytest.approx(90.0))  # it draws less at half the clock
        assert turned.knob_values("clock") == (750.0,)
