"""What every device must do, whatever is behind it. A device's tests subclass DeviceContract and say how to make one;
those of a device with knobs besides its power limit subclass KnobContract as well.

    class TestSimulated(DeviceContract):
        @contextmanager
        def make(self) -> Iterator[DeviceUnderTest]:
            clock = VirtualClock()
            device = SimulatedDevice(clock, ...)
            yield DeviceUnderTest(device, device.limits(), clock.now, lambda seconds: clock.wait_until(...))

`make` yields devices at work, in the state that autocap would find them in. `advance` lets time pass: real or virtual.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from autocap.devices import outside_limits
from autocap.devices.base import Device, LimitPort, Tunable
from autocap.devices.plugged import port_of
from autocap.errors import DeviceError, LimitRefused
from autocap.knobs import POWER_LIMIT


@dataclass
class DeviceUnderTest:
    """A device, the way to its limits, its clock, and a way to let time pass on it."""

    device: Device
    limits: LimitPort
    now: Callable[[], float]
    advance: Callable[[float], object]


class DeviceContract(ABC):
    """Inherited by a device's test class. reads_requested_back: whether its port can tell what was requested."""

    reads_requested_back = True

    @abstractmethod
    def make(self) -> AbstractContextManager[DeviceUnderTest]:
        """A device at work, closed again at the end."""

    @pytest.fixture
    def made(self) -> Iterator[DeviceUnderTest]:
        with self.make() as made:
            made.advance(2 * made.device.sensor.update_s)
            yield made

    def test_there_is_at_least_one_gpu_each_with_an_identity_of_its_own(self, made: DeviceUnderTest) -> None:
        uuids = [gpu.uuid for gpu in made.device.gpus]
        assert uuids
        assert len(set(uuids)) == len(uuids)
        assert all(gpu.name and gpu.uuid for gpu in made.device.gpus)

    def test_kind_and_emulated_say_what_it_is(self, made: DeviceUnderTest) -> None:
        assert made.device.kind
        assert isinstance(made.device.emulated, bool)

    def test_what_it_notes_it_notes_once(self, made: DeviceUnderTest) -> None:
        made.device.read()
        assert all(isinstance(note, str) and "\n" not in note for note in made.device.notes())
        assert made.device.notes() == ()

    def test_there_is_one_reading_a_gpu(self, made: DeviceUnderTest) -> None:
        assert len(made.device.read()) == len(made.device.gpus)

    def test_readings_follow_the_order_of_the_gpus(self, made: DeviceUnderTest) -> None:
        if not self.reads_requested_back:
            pytest.skip("this device's port cannot tell one GPU's request from another's")
        wanted = []
        for place, gpu in enumerate(made.device.gpus):
            wanted.append(gpu.cap_range.max_w - 5.0 * (place + 1))
            made.limits.set_limit_w(gpu.uuid, wanted[-1])
        assert [reading.requested_w for reading in made.device.read()] == wanted

    def test_stamps_are_never_in_the_future_and_never_go_back(self, made: DeviceUnderTest) -> None:
        before = [-float("inf")] * len(made.device.gpus)
        for _ in range(12):
            made.advance(made.device.sensor.update_s / 3)
            stamps = [reading.t_s for reading in made.device.read()]
            assert max(stamps) <= made.now()
            assert all(new >= old for new, old in zip(stamps, before, strict=True))
            before = stamps

    def test_readings_go_on_being_fresh(self, made: DeviceUnderTest) -> None:
        first = made.device.read()
        made.advance(4 * made.device.sensor.update_s)
        later = made.device.read()
        assert all(new.t_s > old.t_s for new, old in zip(later, first, strict=True))

    def test_power_is_in_watts_and_energy_in_joules(self, made: DeviceUnderTest) -> None:
        start, begin_s = made.device.read(), made.now()
        made.advance(0.5)
        end, elapsed_s = made.device.read(), made.now() - begin_s
        for gpu, first, last in zip(made.device.gpus, start, end, strict=True):
            assert last.power_w is None or 1.0 <= last.power_w <= 2 * gpu.cap_range.max_w
            if first.energy_j is not None and last.energy_j is not None:
                mean_w = (last.energy_j - first.energy_j) / elapsed_s
                assert 0.0 <= mean_w <= 2 * gpu.cap_range.max_w

    def test_the_energy_counter_never_goes_back(self, made: DeviceUnderTest) -> None:
        before = [0.0] * len(made.device.gpus)
        for _ in range(5):
            made.advance(0.05)
            after = [reading.energy_j or 0.0 for reading in made.device.read()]
            assert all(new >= old for new, old in zip(after, before, strict=True))
            before = after

    def test_limits_are_within_what_the_device_says_it_takes(self, made: DeviceUnderTest) -> None:
        for gpu, reading in zip(made.device.gpus, made.device.read(), strict=True):
            if reading.enforced_w is not None:
                assert gpu.cap_range.min_w <= reading.enforced_w <= gpu.cap_range.max_w

    def test_a_limit_that_was_set_is_requested_and_enforced(self, made: DeviceUnderTest) -> None:
        gpu = made.device.gpus[0]
        wanted = gpu.cap_range.min_w + 5.0
        made.limits.set_limit_w(gpu.uuid, wanted)
        made.advance(0.05)
        if self.reads_requested_back:
            assert made.limits.requested_w(gpu.uuid) == pytest.approx(wanted, abs=0.01)
        assert made.device.read()[0].requested_w == pytest.approx(wanted, abs=0.01)
        assert made.device.read()[0].enforced_w == pytest.approx(wanted, abs=0.01)

    @pytest.mark.parametrize("end", ["min_w", "max_w"])
    def test_the_ends_of_the_range_are_taken(self, made: DeviceUnderTest, end: str) -> None:
        gpu = made.device.gpus[0]
        wanted = getattr(gpu.cap_range, end)
        made.limits.set_limit_w(gpu.uuid, wanted)
        assert made.device.read()[0].requested_w == pytest.approx(wanted, abs=0.01)

    def test_a_cap_below_the_range_is_refused_with_what_is_allowed(self, made: DeviceUnderTest) -> None:
        gpu = made.device.gpus[0]
        low_w = gpu.cap_range.min_w
        before = made.device.read()[0].requested_w
        with pytest.raises(LimitRefused, match=rf"{low_w - 20:g} W.*{low_w:g} W") as refusal:
            made.limits.set_limit_w(gpu.uuid, low_w - 20)
        assert "\n" not in str(refusal.value)
        assert made.device.read()[0].requested_w == before

    def test_a_cap_above_the_range_is_refused_with_what_is_allowed(self, made: DeviceUnderTest) -> None:
        gpu = made.device.gpus[0]
        high_w = gpu.cap_range.max_w
        with pytest.raises(LimitRefused, match=rf"{high_w + 20:g} W.*{high_w:g} W"):
            made.limits.set_limit_w(gpu.uuid, high_w + 20)

    def test_a_cap_that_is_no_number_is_refused(self, made: DeviceUnderTest) -> None:
        with pytest.raises(LimitRefused):
            made.limits.set_limit_w(made.device.gpus[0].uuid, float("nan"))

    def test_an_unknown_gpu_is_an_error_of_the_device(self, made: DeviceUnderTest) -> None:
        with pytest.raises(DeviceError, match="no-such-gpu"):
            made.limits.set_limit_w("no-such-gpu", made.device.gpus[0].cap_range.default_w)

    def test_closing_twice_is_allowed_and_changes_no_limit(self, made: DeviceUnderTest) -> None:
        gpu = made.device.gpus[0]
        wanted = gpu.cap_range.max_w - 10.0
        made.limits.set_limit_w(gpu.uuid, wanted)
        made.device.close()
        made.device.close()
        if self.reads_requested_back:
            assert made.limits.requested_w(gpu.uuid) == pytest.approx(wanted, abs=0.01)
        made.limits.close()
        made.limits.close()


class KnobContract(ABC):
    """Inherited by the test class of a device with knobs besides its power limit."""

    @abstractmethod
    def make_tunable(self) -> AbstractContextManager[Tunable]:
        """A device whose knobs are where autocap would find them, closed again at the end."""

    @pytest.fixture
    def turned(self) -> Iterator[Tunable]:
        with self.make_tunable() as made:
            yield made

    def test_each_knob_has_a_name_of_its_own_and_none_is_the_power_limit(self, turned: Tunable) -> None:
        names = [knob.name for knob in turned.knobs]
        assert names
        assert len({*names, POWER_LIMIT.name}) == len(names) + 1

    def test_each_value_of_a_knob_is_taken_on_each_device_and_seen_by_all(self, turned: Tunable) -> None:
        for knob in turned.knobs:
            port, outside = port_of(turned, knob), outside_limits(turned.kind, None, knob.name)
            for value in knob.values:
                for gpu in turned.gpus:
                    port.set_limit_w(gpu.uuid, value)
                    if knob.readable:
                        assert port.requested_w(gpu.uuid) == pytest.approx(value, abs=knob.tolerance)
                        assert outside.requested_w(gpu.uuid) == pytest.approx(value, abs=knob.tolerance)
                if knob.readable:
                    assert turned.knob_values(knob.name) == pytest.approx((value,) * len(turned.gpus), rel=1e-3)
            port.close()
            outside.close()

    def test_a_watchdog_puts_it_back_to_what_was_found(self, turned: Tunable) -> None:
        for knob in turned.knobs:
            port, outside = port_of(turned, knob), outside_limits(turned.kind, None, knob.name)
            for gpu in turned.gpus:
                found = port.requested_w(gpu.uuid)
                assert found is not None  # else it is never set
                port.set_limit_w(gpu.uuid, next(value for value in knob.values if abs(value - found) > knob.tolerance))
                outside.set_limit_w(gpu.uuid, found)
                if knob.readable:
                    assert port.requested_w(gpu.uuid) == pytest.approx(found, rel=1e-6)

    def test_a_knob_found_is_at_one_of_its_settings(self, turned: Tunable) -> None:
        for knob in turned.knobs:
            found = [port_of(turned, knob).requested_w(gpu.uuid) for gpu in turned.gpus]
            assert all(value is not None and knob.setting(value) >= 1 for value in found)

    def test_a_value_far_outside_of_its_list_is_refused_and_changes_nothing(self, turned: Tunable) -> None:
        uuid = turned.gpus[0].uuid
        for knob in turned.knobs:
            port = port_of(turned, knob)
            before = port.requested_w(uuid)
            for value in (2 * knob.values[-1] - knob.values[0] + 1, float("nan")):
                with pytest.raises(LimitRefused):
                    port.set_limit_w(uuid, value)
            assert port.requested_w(uuid) == before

    def test_an_unknown_device_or_knob_is_an_error_of_the_device(self, turned: Tunable) -> None:
        knob = turned.knobs[0]
        with pytest.raises(DeviceError, match="no-such-gpu"):
            port_of(turned, knob).set_limit_w("no-such-gpu", knob.values[0])
        with pytest.raises(DeviceError, match="no-such-knob"):
            turned.knob_port("no-such-knob")
