"""Cards whose firmware takes limits in steps, and drivers that ignore a set now and then: in virtual time."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from autocap.errors import LimitClamped, LimitRefused
from autocap.limits import Fate, ForeignLimit, Guardian, settle
from autocap.limits.asking import Waiting
from autocap.limits.journal import Entry
from autocap.limits.recovery import put_back
from autocap.testing.nvml import Limits, Steps, Way, times
from bench.faults.virtual import Script, Unwatched
from tests.doubles.nvml_stand import Stand, one_card, stand

ARRIVAL_MW = 251_007


def steps(lag_s: float, way: Way = Way.DOWN, *, of_all: bool = False) -> Steps:
    return Steps(step_mw=25_000, lag_s=lag_s, way=way, untouched_mw=() if of_all else (ARRIVAL_MW,))


@contextmanager
def guarded(made: Stand, folder: Path) -> Iterator[Guardian]:
    device = made.device()
    with Guardian(
        kind="nvml", gpus=device.gpus, limits=device.limits(), job=None, state_dir=folder, start_watch=Unwatched,
        clock=Waiting(now=made.clock.now, pause=times(made.clock)["pause"]),
    ) as guardian:  # fmt: skip
        yield guardian


def beats(made: Stand, guardian: Guardian, seconds: float) -> None:
    for _ in range(round(seconds / 0.35)):
        made.advance(0.35)
        guardian.beat()


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("lag_s", [0.0, 0.001, 0.008, 0.05, 0.3, 0.9])
def test_what_the_card_makes_of_our_limit_is_ours_whenever_it_comes_and_the_limit_found_is_put_back(
    tmp_path: Path, lag_s: float, way: Way
) -> None:
    with stand(one_card(arrival_mw=ARRIVAL_MW, steps=steps(lag_s, way))) as made:
        with guarded(made, tmp_path) as guardian:
            for cap_w in (170.0, 190.0, 150.0, 251.007, 163.0):
                guardian.set_caps([cap_w])
                beats(made, guardian, 2.5)
                asked_mw = round(1000 * cap_w)
                assert made.requested_mw() == steps(lag_s, way).made_of(asked_mw)
            (restored,) = guardian.restore()
            assert restored.restored
        made.advance(3.0)
        assert made.requested_mw() == ARRIVAL_MW
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.0, 0.004, 0.02, 0.4, 0.8, 1.2])
@pytest.mark.parametrize("lag_s", [0.0, 0.008, 0.3, 0.9])
def test_whenever_the_owner_dies_its_entry_has_the_limit_found_put_back(tmp_path, lag_s, after_s) -> None:
    """As a watchdog does it, and `autocap restore`: from the entry as it stood at that moment."""
    clock = Script()
    with stand(one_card(arrival_mw=ARRIVAL_MW, steps=steps(lag_s)), clock=clock) as made:
        ports = made.device().limits()
        entries: list[Entry] = []
        with guarded(made, tmp_path) as guardian:
            guardian.set_caps([170.0])
            until_s = made.clock.now() + after_s
            while made.clock.now() < until_s:
                made.advance(min(0.2, until_s - made.clock.now()))
                guardian.beat()
            entries.append(guardian._guarded[0].entry)
            made.advance(lag_s + 0.01)  # dead by then: what the card does next nobody has seen
            assert made.requested_mw() == 150_000
            done = put_back(ports, entries[0])
            assert (done.outcome.value, done.final_w) == ("restored", 251.007)


def test_a_card_that_does_not_take_the_limit_found_at_once_is_left_alone(tmp_path: Path) -> None:
    with (
        stand(one_card(arrival_mw=ARRIVAL_MW, steps=steps(0.0, of_all=True))) as made,
        guarded(made, tmp_path) as guardian,
        pytest.raises(LimitRefused, match=r"cap 251\.007 W was clamped by GPU 0 to 250 W"),
    ):
        guardian.rehearse()


@pytest.mark.parametrize("lag_s", [0.008, 0.3])
def test_a_limit_found_that_the_card_takes_in_steps_too_is_asked_for_and_what_it_makes_of_it_is_said(
    tmp_path: Path, lag_s: float
) -> None:
    with stand(one_card(arrival_mw=ARRIVAL_MW, steps=steps(lag_s, of_all=True))) as made:
        with guarded(made, tmp_path) as guardian:
            guardian.rehearse()
            beats(made, guardian, 1.5)
            guardian.set_caps([170.0])
            beats(made, guardian, 1.5)
            guardian.restore()
            beats(made, guardian, 1.5)
            guardian.set_caps([190.0])
            guardian.restore()
            beats(made, guardian, 1.5)
            (restored,) = guardian.restore()
        assert restored.note == f"{made.uuid()}: 251.007 W was put back, of which the device makes 250 W"
        assert made.requested_mw() == 250_000
        assert made.board.read().changes[-1].limit_mw == ARRIVAL_MW
    assert not list(tmp_path.glob("*.json"))  # nothing better is to be had


@pytest.mark.parametrize("by_another_mw", [222_222, 200_000, 150_000])
def test_a_limit_that_another_tool_sets_just_after_ours_is_asked_against_once_and_stays_theirs(
    tmp_path: Path, by_another_mw: int
) -> None:
    with stand(one_card(arrival_mw=ARRIVAL_MW)) as made:
        with guarded(made, tmp_path) as guardian:
            guardian.set_caps([170.0])
            made.advance(0.3)
            made.request(by_another_mw)
            beats(made, guardian, 0.7)
            with pytest.raises(ForeignLimit, match=f"is {by_another_mw / 1000:g} W, where 170 W is ours"):
                guardian.set_caps([185.0])
            assert made.requested_mw() == by_another_mw
        assert made.requested_mw() == by_another_mw


def test_what_comes_later_than_a_second_is_somebody_elses_also_where_a_step_would_explain_it(tmp_path: Path) -> None:
    with stand(one_card(arrival_mw=ARRIVAL_MW)) as made:
        with guarded(made, tmp_path) as guardian:
            guardian.set_caps([170.0])
            beats(made, guardian, 1.5)
            made.request(150_000)
            sets = len(made.board.read().changes)
            with pytest.raises(ForeignLimit, match="is 150 W, where 170 W is ours"):
                guardian.set_caps([185.0])
            assert len(made.board.read().changes) == sets
        assert made.requested_mw() == 150_000


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_sets_that_are_ignored_now_and_then_are_asked_for_again_also_when_limits_are_put_back(tmp_path, share) -> None:
    made = one_card(arrival_mw=ARRIVAL_MW, ignored_share=share)
    with stand(made) as node, guarded(node, tmp_path) as guardian:
        for number in range(20):
            guardian.set_caps([150.0 + number])
            assert node.requested_mw() == 150_000 + 1000 * number
            assert guardian.restore()[0].restored
            assert node.requested_mw() == ARRIVAL_MW


def test_a_set_that_is_ignored_each_time_is_asked_for_again_at_growing_intervals_and_then_refused(tmp_path) -> None:
    with stand(one_card(arrival_mw=ARRIVAL_MW, limits=Limits.IGNORED)) as made, guarded(made, tmp_path) as guardian:
        began_s = made.clock.now()
        with pytest.raises(LimitRefused, match=r"cap 170 W was ignored by GPU 0, which stays at 251\.007 W"):
            guardian.set_caps([170.0])
        assert made.clock.now() - began_s > 0.05 + 0.1 + 0.2


def test_a_limit_that_somebody_sets_while_ours_is_ignored_is_theirs(tmp_path: Path) -> None:
    clock = Script()
    with (
        stand(one_card(arrival_mw=ARRIVAL_MW, limits=Limits.IGNORED), clock=clock) as made,
        guarded(made, tmp_path) as guardian,
    ):
        clock.at(clock.now() + 0.15, lambda: made.request(222_222))
        clock.at(clock.now() + 0.16, lambda: made.change(limits=Limits.SETTABLE))
        with pytest.raises(ForeignLimit, match=r"is 222\.222 W"):
            guardian.set_caps([170.0])
        assert made.requested_mw() == 222_222


def test_an_entry_left_in_steps_is_settled_by_the_next_start(tmp_path: Path) -> None:
    with stand(one_card(arrival_mw=ARRIVAL_MW, steps=steps(0.008), ignored_share=0.3)) as made:
        with guarded(made, tmp_path) as guardian:
            guardian.set_caps([170.0])
            (name,) = (path.name for path in tmp_path.glob("*.json"))
            left = (tmp_path / name).read_bytes()
        made.request(170_000)
        made.advance(1.0)
        dead = left.replace(b'"start_ticks": ', b'"start_ticks": 1')  # of its owner
        (tmp_path / name).write_bytes(dead)
        assert [one.outcome for one in settle(tmp_path)] == [Fate.RESTORED]
        assert made.requested_mw() == ARRIVAL_MW


@pytest.mark.parametrize("away_mw", [-7_000, 11_000])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_a_card_that_takes_another_limit_now_and_then_has_ours_in_the_end_and_the_one_found(
    tmp_path: Path, share: float, away_mw: int
) -> None:
    with stand(one_card(arrival_mw=ARRIVAL_MW, wrong_share=share, wrong_mw=away_mw)) as made:
        with guarded(made, tmp_path) as guardian:
            taken = 0
            for cap_w in (170.0, 190.0, 150.0, 251.007, 163.0, 201.0, 155.5, 222.0):
                with suppress(LimitClamped):  # another one twice in a row: the card may be like that
                    guardian.set_caps([cap_w])
                taken += made.requested_mw() == round(1000 * cap_w)
                beats(made, guardian, 2.0)
            assert taken >= 6
            (restored,) = guardian.restore()
            assert restored.restored
        assert made.requested_mw() == ARRIVAL_MW
