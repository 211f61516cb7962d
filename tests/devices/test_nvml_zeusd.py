"""Limits of GPUs that zeusd sets: which GPU, what it is asked, and what it says where it does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from autocap.devices import outside_limits
from autocap.devices.nvml.limits import NvmlLimits
from autocap.devices.nvml.zeusd import Zeusd, usual_address
from autocap.errors import LimitRefused, SetterAbsent, SetterUnavailable
from autocap.testing.nvml import machine
from tests.doubles.nvml_stand import PROFILE, Stand, stand
from tests.doubles.zeusd_stand import ZeusdStand, serving

ADDRESSES = ("0000:1b:00.0", "0000:3b:00.0", "0000:5b:00.0")  # of the emulated GPUs, by NVML's index
NUMBERS = {0: 2, 1: 0, 2: 1}  # what zeusd calls them


@pytest.fixture
def made() -> Iterator[Stand]:
    with stand(machine(PROFILE, gpus=3, arrivals_mw=[250_123, 251_000, 252_000])) as one:
        yield one


@pytest.fixture
def zeusd(made: Stand, tmp_path: Path) -> Iterator[ZeusdStand]:
    with serving(zeusd_of(made), tmp_path / "zeusd.sock") as one:
        yield one


def zeusd_of(made: Stand) -> ZeusdStand:
    indices = {number: index for index, number in NUMBERS.items()}
    pci = {number: ADDRESSES[index] for number, index in indices.items()}
    return ZeusdStand(pci=pci, set_mw=lambda number, limit_mw: made.request(limit_mw, indices[number]))


def limits(made: Stand, zeusd: ZeusdStand, token: str | None = None) -> NvmlLimits:
    return NvmlLimits(made.library, request=Zeusd(zeusd.address, token))


def test_a_gpu_is_found_by_its_pci_address_whatever_its_number_and_no_other_one_is_touched(made, zeusd) -> None:
    limits(made, zeusd).set_limit_w(made.uuid(1), 200.456)
    assert [made.requested_mw(gpu) for gpu in range(3)] == [250_123, 200_456, 252_000]
    asked = {"gpu_ids": "0", "power_limit_mw": "200456", "block": "true"}
    assert zeusd.asked == [("GET", "/discover", {}), ("POST", "/gpu/set_power_limit", asked)]


def test_after_a_restart_with_other_numbers_the_same_gpu_is_set(made, zeusd) -> None:
    port = limits(made, zeusd)
    port.set_limit_w(made.uuid(1), 200.0)
    zeusd.pci[0], zeusd.pci[1] = zeusd.pci[1], zeusd.pci[0]
    zeusd.set_mw = lambda number, limit_mw: made.request(limit_mw, {0: 2, 1: 1, 2: 0}[number])
    port.set_limit_w(made.uuid(1), 210.0)
    assert [made.requested_mw(gpu) for gpu in range(3)] == [250_123, 210_000, 252_000]


def test_what_it_says_of_a_gpu_that_it_cannot_set_is_passed_on(made, zeusd) -> None:
    zeusd.errors[2] = "NVML:\nInsufficient Permissions"
    with pytest.raises(LimitRefused) as refused:
        limits(made, zeusd).set_limit_w(made.uuid(), 200.0)
    assert str(refused.value).startswith(f"cap 200 W was not set on GPU 0: zeusd at {zeusd.address} could not set it: ")
    assert "Insufficient Permissions" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert made.requested_mw() == 250_123


def test_a_set_that_is_confirmed_and_did_not_happen_is_found_by_reading_back(made, zeusd) -> None:
    zeusd.set_mw = lambda number, limit_mw: None
    with pytest.raises(LimitRefused, match=r"cap 200 W was ignored by GPU 0, which stays at 250\.123 W"):
        limits(made, zeusd).set_limit_w(made.uuid(), 200.0)


def test_without_its_group_for_setting_it_is_of_no_use(made, zeusd) -> None:
    zeusd.groups = ("gpu-read",)
    with pytest.raises(SetterUnavailable, match="does not grant gpu-control; its administrator enables"):
        Zeusd(zeusd.address).require({})
    with pytest.raises(LimitRefused, match="does not grant gpu-control"):
        limits(made, zeusd).set_limit_w(made.uuid(), 200.0)


def test_a_token_is_shown_where_one_is_asked_for(made, zeusd) -> None:
    zeusd.token = "secret"
    with pytest.raises(SetterUnavailable, match=r"asks for a token; set ZEUSD_TOKEN"):
        Zeusd(zeusd.address).require({})
    with pytest.raises(LimitRefused, match=r"does not take the token \(ZEUSD_TOKEN\)"):
        limits(made, zeusd).set_limit_w(made.uuid(), 200.0)
    with pytest.raises(LimitRefused, match=r"grants no gpu-control to the token"):
        limits(made, zeusd, "other").set_limit_w(made.uuid(), 200.0)
    Zeusd(zeusd.address, "secret").require({})
    limits(made, zeusd, "secret").set_limit_w(made.uuid(), 200.0)
    assert made.requested_mw() == 200_000


@pytest.mark.slow
def test_a_gpu_that_it_does_not_have_is_not_set(made, zeusd) -> None:
    del zeusd.pci[2]
    device = made.device()
    with pytest.raises(SetterUnavailable, match=r"does not have GPU 0 \(0000:1b:00\.0\)"):
        Zeusd(zeusd.address).require(device.pci_addresses())
    with pytest.raises(LimitRefused, match="does not have it"):
        limits(made, zeusd).set_limit_w(made.uuid(), 200.0)
    assert [path for _, path, _ in zeusd.asked] == ["/discover"] * 2


def test_when_it_dies_in_the_middle_that_is_said_and_it_is_found_again_afterwards(made, zeusd) -> None:
    zeusd.mute = True
    port = limits(made, zeusd)
    with pytest.raises(LimitRefused, match="cannot be asked"):
        port.set_limit_w(made.uuid(), 200.0)
    zeusd.mute = False
    port.set_limit_w(made.uuid(), 200.0)
    assert made.requested_mw() == 200_000


@pytest.mark.parametrize("found", ["no object", {"gpus": 3}, {"gpus": [{"id": 0}], "enabled_api_groups": []}])
def test_whatever_else_answers_there_is_not_taken_for_zeusd(zeusd, found) -> None:
    zeusd.discovered = found
    with pytest.raises(SetterUnavailable, match="does not answer as zeusd does"):
        Zeusd(zeusd.address).require({})


def test_where_there_is_none_it_is_said_to_be_absent(tmp_path: Path) -> None:
    with pytest.raises(SetterAbsent, match="no zeusd serves"):
        Zeusd(str(tmp_path / "zeusd.sock")).require({})


def test_it_is_asked_over_tcp_as_well_but_of_this_machine_alone(made) -> None:
    with serving(zeusd_of(made)) as one:
        limits(made, one).set_limit_w(made.uuid(), 200.0)
        assert made.requested_mw() == 200_000
    for address in ("192.0.2.1:4938", "node7:4938", "127.0.0.1"):
        with pytest.raises(SetterUnavailable, match="another machine's zeusd would set another machine's limits"):
            Zeusd(address).require({})


def test_its_address_is_where_its_own_client_looks_for_it() -> None:
    assert usual_address({}) == "/run/zeusd/zeusd.sock"
    assert usual_address({"ZEUSD_HOST_PORT": "127.0.0.1:4938"}) == "127.0.0.1:4938"
    assert usual_address({"ZEUSD_SOCK_PATH": "/a", "ZEUSD_HOST_PORT": "127.0.0.1:4938"}) == "/a"


def test_the_watchdog_finds_the_way_from_the_journal(made, zeusd) -> None:
    port = outside_limits(f"zeusd:{zeusd.address}", None)
    port.set_limit_w(made.uuid(), 200.0)
    assert port.requested_w(made.uuid()) == 200.0
    assert made.requested_mw() == 200_000
