"""Who sets the limits of a device: which way is taken, within which caps, and what is said where there is none."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn, cast

import pytest

from autocap.config import RunConfig, TuneConfig
from autocap.devices.nvml.device import NvmlDevice
from autocap.errors import DeviceLocked, LimitNotPermitted, LimitWithheld, SetterAbsent, SetterUnavailable
from autocap.limits import Guardian
from autocap.limits.guard import LimitGuard
from autocap.limits.helper.client import RemoteGuardian
from autocap.limits.helper.protocol import Devices, Holder, LeaseStatus, Offer, Op, Status
from autocap.metrics import Metric
from autocap.session.guarding import Records, guarded
from autocap.session.via import actuation, require_setter
from autocap.testing.nvml import machine
from tests.doubles.nvml_stand import PROFILE, Stand, stand
from tests.doubles.scripted_helper import ScriptedHelper, scripted
from tests.doubles.zeusd_stand import ZeusdStand, serving

DENIAL = "setting a limit needs root or CAP_SYS_ADMIN"


class Denied(NvmlDevice):
    """GPUs whose limits this process may not set, whoever runs the tests."""

    denial = DENIAL  # type: ignore[assignment]


class Permitted(NvmlDevice):
    denial = None  # type: ignore[assignment]


@dataclass
class Place:
    """A machine of two GPUs, and where a helper and a zeusd would be."""

    made: Stand
    helper: Path
    zeusd: Path
    stack: ExitStack

    def device(self, kind: type[NvmlDevice] = Denied) -> NvmlDevice:
        return kind(self.made.library, [self.made.uuid(0), self.made.uuid(1)], self.made.clock, observe=False)

    def serve_helper(self, *offers: Offer) -> ScriptedHelper:
        found = offers or (self.offer(0), self.offer(1))
        answer = Devices(devices=found)
        made = ScriptedHelper(self.helper, script=lambda request: answer if request.op is Op.DEVICES else None)
        return self.stack.enter_context(scripted(made))

    def serve_zeusd(self, **changes: object) -> ZeusdStand:
        made = ZeusdStand(pci={0: "0000:1b:00.0", 1: "0000:3b:00.0"}, set_mw=lambda gpu, mw: self.made.request(mw, gpu))
        return self.stack.enter_context(serving(replace(made, **changes), self.zeusd))

    def offer(self, gpu: int) -> Offer:
        watts = {"min_w": 120.0, "max_w": 250.0 - gpu, "requested_w": 250.0}
        return Offer(uuid=self.made.uuid(gpu), kind="nvml", name="GPU", allowed=True, why="yours alone", **watts)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    helper, zeusd = tmp_path / "helper.sock", tmp_path / "zeusd.sock"
    monkeypatch.setenv("AUTOCAP_HELPER", str(helper))
    monkeypatch.setenv("ZEUSD_SOCK_PATH", str(zeusd))
    with ExitStack() as stack, stand(machine(PROFILE, gpus=2)) as made:
        yield Place(made, helper, zeusd, stack)


@pytest.mark.slow
def test_who_may_set_limits_sets_them_and_asks_nobody(place: Place) -> None:
    helper, zeusd = place.serve_helper(), place.serve_zeusd()
    found = actuation("auto", place.device(Permitted))
    assert (found.name, found.where, found.reason) == ("direct", "", "")
    assert isinstance(found.guardian(None), Guardian)
    assert (helper.connections, zeusd.asked) == (0, [])


def test_who_may_not_takes_the_helper_with_the_caps_that_it_allows(place: Place) -> None:
    place.serve_helper()
    place.serve_zeusd()
    found = actuation("auto", place.device())
    assert (found.name, found.where, found.reason) == ("helper", str(place.helper), DENIAL)
    assert isinstance(found.guardian(None), RemoteGuardian)
    assert [(gpu.cap_range.min_w, gpu.cap_range.max_w) for gpu in found.gpus] == [(120.0, 250.0), (120.0, 249.0)]


@pytest.mark.slow
def test_a_device_that_is_lent_to_somebody_is_waited_for_and_not_taken_behind_their_back(place: Place) -> None:
    place.serve_helper(replace(place.offer(0), lent_to=Holder(uid=1000, pid=7)), place.offer(1))
    place.serve_zeusd()
    assert actuation("auto", place.device()).name == "helper"


@pytest.mark.slow
def test_without_a_helper_zeusd_sets_them_under_a_guardian_of_ours(place: Place) -> None:
    place.serve_zeusd()
    found = actuation("auto", place.device())
    assert (found.name, found.where) == ("zeusd", str(place.zeusd))
    guardian = found.guardian(None)
    assert isinstance(guardian, Guardian)
    assert guardian._kind == f"zeusd:{place.zeusd}"  # by which the watchdog finds the way


@pytest.mark.slow
def test_where_nobody_would_set_them_we_try_and_a_refusal_gives_every_reason(place: Place) -> None:
    place.serve_helper(place.offer(1))
    place.serve_zeusd(groups=("gpu-read",))
    found = actuation("auto", place.device())
    assert found.name == "direct"
    with pytest.raises(LimitNotPermitted) as refused, found.explained():
        raise LimitNotPermitted("cap 200 W on GPU 0 was not permitted")
    assert str(refused.value) == (
        f"the helper does not have GPU 0 ({place.made.uuid()}); zeusd at {place.zeusd} does not grant gpu-control; "
        "its administrator enables that API group; cap 200 W on GPU 0 was not permitted"
    )
    assert not isinstance(refused.value, LimitWithheld)


@pytest.mark.slow
def test_what_the_helper_denies_is_not_had_from_zeusd(place: Place) -> None:
    place.serve_helper(replace(place.offer(0), allowed=False, why="process 7 of ada computes on it"), place.offer(1))
    zeusd = place.serve_zeusd()
    found = actuation("auto", place.device())
    assert (found.name, zeusd.asked) == ("direct", [])
    with pytest.raises(LimitWithheld) as refused, found.explained():
        raise LimitNotPermitted("cap 200 W on GPU 0 was not permitted: run sudo autocap")
    assert str(refused.value) == "the helper does not lend GPU 0: process 7 of ada computes on it"


@pytest.mark.slow
def test_where_nobody_else_is_there_the_refusal_itself_has_the_ways_out(place: Place) -> None:
    found = actuation("auto", place.device())
    assert (found.name, found.passed_over) == ("direct", "")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "why"), [("helper", "no helper serves"), ("zeusd", "no zeusd serves")])
def test_what_is_named_and_not_there_is_refused(place: Place, name: str, why: str) -> None:
    with pytest.raises(SetterAbsent, match=why):
        actuation(name, place.device(Permitted))
    config = RunConfig(command=("train",), tune=TuneConfig(metric=Metric(name="energy")), via=name)
    with pytest.raises(SetterAbsent, match=why):
        require_setter(config)
    require_setter(replace(config, device="emulated"))  # is always set directly
    require_setter(replace(config, tune=replace(config.tune, observe=True)))


@pytest.mark.slow
def test_a_device_that_the_helper_does_not_have_or_leaves_no_cap_for_is_refused(place: Place) -> None:
    place.serve_helper(place.offer(0))
    with pytest.raises(SetterUnavailable, match="the helper does not have GPU 1"):
        actuation("helper", place.device())
    os.unlink(place.helper)
    place.serve_helper(place.offer(0), replace(place.offer(1), min_w=255.0))
    with pytest.raises(SetterUnavailable, match="lets no cap be set on GPU 1: at least 255 W and at most 249 W"):
        actuation("helper", place.device())


class Clashing:
    """A guardian whose device somebody else has."""

    def __enter__(self) -> NoReturn:
        raise DeviceLocked("GPU-1 is controlled by autocap with PID 7; wait for it, or end it with SIGTERM")

    def __exit__(self, *error: object) -> None:
        """It was never entered."""


@pytest.mark.slow
def test_who_has_a_device_from_the_helper_is_named_and_not_the_helper(place: Place) -> None:
    lent = LeaseStatus(uid=1000, user="ada", pid=7, devices=(place.made.uuid(1),), caps_w=(150.0,), since="2026-01-01")
    script = {Op.STATUS: Status(leases=(lent,))}
    place.stack.enter_context(scripted(ScriptedHelper(place.helper, script=lambda asked: script.get(asked.op))))
    way = replace(actuation("direct", place.device()), guardian=lambda job: cast(LimitGuard, Clashing()))
    with pytest.raises(DeviceLocked) as refused, ExitStack() as stack:
        guarded(way, None, cast(Records, None), place.made.clock, stack)
    assert str(refused.value) == "the helper has lent GPU 1 to ada (PID 7); wait for that run, or have it end"


@pytest.mark.slow
def test_without_a_helper_whoever_holds_the_lock_is_named(place: Place) -> None:
    way = replace(actuation("direct", place.device()), guardian=lambda job: cast(LimitGuard, Clashing()))
    with pytest.raises(DeviceLocked, match="controlled by autocap with PID 7"), ExitStack() as stack:
        guarded(way, None, cast(Records, None), place.made.clock, stack)
