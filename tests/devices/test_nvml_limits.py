"""Setting limits through NVML on an emulated library: what holds, what does not, and what is said of it.

Every NVML error code has a name and a sentence.
"""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from autocap.devices import outside_limits
from autocap.devices.nvml.limits import HeldLimits, NvmlLimits
from autocap.devices.nvml.state import ERRORS, NvmlError, to_milliwatts, to_watts
from autocap.errors import DeviceError, LimitNotEnforced, LimitRefused
from autocap.limits import ForeignLimit, Guardian
from autocap.testing.nvml import Fault, Limits, machine
from bench.faults.virtual import Script, Unwatched
from tests.doubles.nvml_stand import PROFILE, Stand, one_card, stand

SET = "nvmlDeviceSetPowerManagementLimit"
LOST, TIMEOUT, UNKNOWN = 15, 10, 999


def test_every_milliwatt_survives_being_watts_in_between() -> None:
    assert all(to_milliwatts(to_watts(limit_mw)) == limit_mw for limit_mw in range(0, 1_200_000, 7))


@pytest.mark.parametrize("fields", [True, False])
def test_a_set_takes_no_longer_than_the_limit_needs_to_be_enforced(fields) -> None:
    with stand(one_card(limit_fields=fields, enforced_lag_s=0.05)) as made:
        limits = NvmlLimits(made.library)
        began_s = made.clock.now()
        limits.set_limit_w(made.uuid(), 200.0)
        assert made.clock.now() - began_s < 0.05 + 0.03
        assert limits.requested_w(made.uuid()) == 200.0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"limits": Limits.IGNORED}, "cap 200 W was ignored by GPU 0, which stays at 260 W; another tool"),
        ({"limits": Limits.CLAMPED, "clamp_mw": 225_000}, "cap 200 W was clamped by GPU 0 to 225 W"),
        ({"enforced_lag_s": 5.0}, "cap 200 W was requested of GPU 0, but 260 W is still enforced"),
    ],
    ids=["ignored", "clamped", "not in time"],
)
def test_a_limit_that_does_not_come_to_hold_is_recognised(changes, told) -> None:
    with stand(one_card(**changes)) as made, pytest.raises(LimitRefused, match=told):
        made.device().limits().set_limit_w(made.uuid(), 200.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after_s", "told"),
    [(0.0125, "clamped by GPU 0 to 222.222 W"), (0.0145, "of GPU 0, and at once somebody else requested 222.222 W")],
)
def test_a_limit_that_somebody_else_sets_before_ours_is_enforced_is_not_written_over(after_s, told) -> None:
    clock = Script()
    with stand(one_card(enforced_lag_s=0.156), clock=clock) as made:
        limits = made.device().limits()
        clock.at(clock.now() + after_s, lambda: made.request(222_222))
        with pytest.raises(LimitRefused, match=told):
            limits.set_limit_w(made.uuid(), 200.0)
        made.advance(1.0)
        assert made.requested_mw() == 222_222


def guarding(made: Stand, state_dir: Path) -> Guardian:
    device = made.device()
    return Guardian(
        kind="nvml", gpus=device.gpus, limits=device.limits(), job=None, state_dir=state_dir, start_watch=Unwatched
    )


def test_under_guard_a_limit_that_overtakes_ours_is_somebody_else_s_and_stays(tmp_path) -> None:
    clock = Script()
    with stand(one_card(enforced_lag_s=0.156, arrival_mw=237_123), clock=clock) as made:
        with guarding(made, tmp_path) as guardian:
            clock.at(clock.now() + 0.0145, lambda: made.request(222_222))
            with pytest.raises(ForeignLimit, match=r"is 222.222 W, where 200 W is ours: somebody else has changed it"):
                guardian.set_caps([200.0])
        assert made.requested_mw() == 222_222


@pytest.mark.slow
def test_under_guard_many_gpus_are_awaited_at_once_and_one_that_is_overtaken_meanwhile_stays(tmp_path) -> None:
    clock, gpus = Script(), 8
    with stand(replace(machine(PROFILE, gpus=gpus), enforced_lag_s=0.156), clock=clock) as made:
        with guarding(made, tmp_path) as guardian:
            began_s = clock.now()
            guardian.set_caps([200.0] * gpus)
            assert clock.now() - began_s < gpus * 0.012 + 0.156 + 0.03
            clock.at(clock.now() + gpus * 0.012 + 0.05, lambda: made.request(222_222, gpu=6))
            with pytest.raises(ForeignLimit, match=r"is 222.222 W, where 180 W is ours"):
                guardian.set_caps([180.0] * gpus)
        assert [made.requested_mw(gpu) for gpu in range(gpus)] == [*[260_000] * 6, 222_222, 260_000]


@pytest.mark.slow
def test_a_limit_that_is_clamped_while_it_is_put_back_is_put_back_once_it_is_not(tmp_path) -> None:
    with stand(one_card(arrival_mw=237_123)) as made:
        with guarding(made, tmp_path) as guardian:
            guardian.set_caps([200.0])
            made.change(limits=Limits.CLAMPED, clamp_mw=225_500)
            (restored,) = guardian.restore()
            assert "237.123 W could not be put back" in (restored.note or "")
            made.change(limits=Limits.SETTABLE)
        assert made.requested_mw() == 237_123


def test_a_limit_that_is_clamped_by_the_rehearsal_is_put_back_all_the_same(tmp_path) -> None:
    with stand(one_card(arrival_mw=237_123, limits=Limits.CLAMPED, clamp_mw=225_500)) as made:
        with guarding(made, tmp_path) as guardian:
            with pytest.raises(LimitRefused, match=r"cap 237.123 W was clamped by GPU 0 to 225.5 W"):
                guardian.rehearse()
            made.change(limits=Limits.SETTABLE)
        assert made.requested_mw() == 237_123


def test_a_limit_above_what_something_else_allows_is_recognised() -> None:
    with stand(one_card(ceiling_mw=210_000)) as made:
        limits = made.device().limits()
        limits.set_limit_w(made.uuid(), 200.0)
        said = r"cap 250 W was requested of GPU 0, but 210 W is enforced; .*--max-cap 210"
        with pytest.raises(LimitRefused, match=said):
            limits.set_limit_w(made.uuid(), 250.0)


def test_an_outside_limiter_does_not_keep_a_limit_from_being_put_back() -> None:
    with stand(one_card(ceiling_mw=210_000)) as made:
        NvmlLimits(made.library).set_limit_w(made.uuid(), 150.0)
        with_library = outside_limits("nvml", None)
        with_library.set_limit_w(made.uuid(), 260.0)
        assert with_library.requested_w(made.uuid()) == 260.0
        with_library.close()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("code", "name"), [(TIMEOUT, "TIMEOUT"), (UNKNOWN, "UNKNOWN"), (77, "UNLISTED")])
def test_a_set_that_fails_once_is_tried_again_and_one_that_fails_twice_is_refused(code, name, times) -> None:
    told = pytest.raises(LimitRefused, match=rf"setting GPU 0 to 200 W failed with {name} \({code}\)")
    with stand() as made:
        made.fail(Fault(code=code, function=SET, times=times))
        with told if times == 2 else nullcontext():
            NvmlLimits(made.library).set_limit_w(made.uuid(), 200.0)
        assert made.requested_mw() == (260_000 if times == 2 else 200_000)


def test_a_lost_gpu_is_not_tried_again() -> None:
    with stand() as made:
        limits = NvmlLimits(made.library)
        limits.set_limit_w(made.uuid(), 200.0)
        made.fail(Fault(code=LOST, function=SET, times=1))
        with pytest.raises(NvmlError, match=r"setting GPU 0 to 150 W failed with GPU_IS_LOST"):
            limits.set_limit_w(made.uuid(), 150.0)


@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize("code", [TIMEOUT, UNKNOWN])
def test_whichever_call_fails_once_the_limit_is_set_or_the_failure_said(after, code) -> None:
    with stand(one_card(limit_fields=False)) as made:
        limits = NvmlLimits(made.library)
        made.fail(Fault(code=code, after=after))
        said = ""
        try:
            limits.set_limit_w(made.uuid(), 200.0)
        except DeviceError as error:
            said = str(error)
        assert "failed with" in said or (said == "" and made.requested_mw() == 200_000)


def test_a_gpu_that_takes_no_limit_says_so_when_it_is_set_all_the_same() -> None:
    with stand(one_card(limits=Limits.UNSUPPORTED)) as made:
        limits = NvmlLimits(made.library)
        assert limits.requested_w(made.uuid()) is None
        with pytest.raises(LimitRefused, match=r"GPU 0 takes no power limit \(laptops, virtual GPUs and MIG do not\)"):
            limits.set_limit_w(made.uuid(), 200.0)


def test_infinite_watts_are_no_limit_even_where_the_range_is_unknown() -> None:
    with (
        stand(one_card(missing=("nvmlDeviceGetPowerManagementLimitConstraints",))) as made,
        pytest.raises(LimitRefused, match=r"cap inf W is no power limit"),
    ):
        NvmlLimits(made.library).set_limit_w(made.uuid(), float("inf"))


@pytest.mark.parametrize(
    ("cap_w", "told"),
    [(99.9, "cap 99.9 W is below the 100 W minimum of GPU 0"), (260.1, "cap 260.1 W is above the 260 W maximum")],
)
def test_a_cap_outside_the_range_is_refused_before_the_driver_sees_it(cap_w: float, told: str) -> None:
    with stand(one_card()) as made:
        with pytest.raises(LimitRefused, match=told):
            NvmlLimits(made.library).set_limit_w(made.uuid(), cap_w)
        assert made.requested_mw() == 260_000


def test_whether_a_limit_holds_that_somebody_else_requested_is_seen_by_reading_it_and_needs_no_rights() -> None:
    with stand(one_card(limits=Limits.REFUSED, ceiling_mw=220_000)) as made:
        held = HeldLimits(made.library)
        made.request(200_456)
        made.advance(0.1)
        held.verify(made.uuid(), 200.456)
        with pytest.raises(LimitRefused, match=r"cap 210 W was clamped by GPU 0 to 200\.456 W"):
            held.verify(made.uuid(), 210.0)
        made.request(240_000)
        with pytest.raises(LimitNotEnforced, match="but 220 W is enforced"):
            held.verify(made.uuid(), 240.0)
        HeldLimits(made.library, requested_alone=True).verify(made.uuid(), 240.0)


CODES = {
    value: name.removeprefix("NVML_ERROR_")
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
}


def test_the_table_names_every_code_of_the_binding_as_the_binding_does() -> None:
    assert {code: name for code, (name, _) in ERRORS.items()} == CODES


@pytest.mark.parametrize("code", sorted(CODES), ids=CODES.get)
def test_a_message_says_what_failed_by_which_name_and_what_to_do(code) -> None:
    text = str(NvmlError("reading the power of GPU 3", code))
    assert text.startswith(f"reading the power of GPU 3 failed with {CODES[code]} ({code}): ")
    assert "\n" not in text
    assert len(text.split(": ", 1)[1]) > 20


def test_a_code_that_is_newer_than_the_table_is_said_to_be_one() -> None:
    assert "UNLISTED (4711): this code is newer than autocap" in str(NvmlError("reading", 4711))


def test_what_is_lost_is_not_merely_absent() -> None:
    both = [code for code in CODES if NvmlError("", code).lost and NvmlError("", code).absent]
    assert both == []
