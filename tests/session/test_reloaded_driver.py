"""A driver that is taken out and loaded again beneath a tuned job: NVML is opened again, and the caps are set again."""

from dataclasses import replace
from pathlib import Path

import pytest

from autocap.limits import ForeignLimit, Guardian
from autocap.limits.asking import Waiting
from autocap.testing.nvml import Fault, times
from bench.faults.virtual import Unwatched, play, usual
from tests.doubles.nvml_stand import one_card, stand

ARRIVAL_MW = 251_007


@pytest.mark.parametrize("t_s", [4.0, 8.7, 9.0, 9.3, 14.0, 21.0])
def test_a_driver_that_is_loaded_again_costs_no_more_than_a_trial(t_s: float) -> None:
    report = play(replace(usual(), reloads=(t_s,)), lambda stage: None)
    assert report.raised is None
    assert report.hung is None
    assert report.kept_w == 150.0
    assert report.limits_mw == report.expected_mw
    assert not report.left_behind
    assert any("the driver was loaded again" in text for text in report.said)
    assert not any("somebody else" in text or "in steps" in text for text in report.said)


def test_one_that_cannot_be_opened_again_is_why_tuning_ends() -> None:
    gone = Fault(code=9, function="nvmlInitWithFlags", times=None, from_s=5.0)
    report = play(replace(usual(), reloads=(9.0,)), lambda stage: stage.fail(gone))
    assert report.ended
    assert "the NVIDIA driver was unloaded, and cannot be opened again" in report.said[-1]
    assert report.restored_later or report.limits_mw == report.expected_mw


@pytest.mark.parametrize("set_mw", [None, 222_000])
def test_only_the_default_is_taken_for_what_a_reload_has_left(tmp_path: Path, set_mw: int | None) -> None:
    with stand(one_card(arrival_mw=ARRIVAL_MW)) as made:
        device = made.device()
        with Guardian(
            kind="nvml", gpus=device.gpus, limits=device.limits(), job=None, state_dir=tmp_path,
            start_watch=Unwatched, clock=Waiting(now=made.clock.now, pause=times(made.clock)["pause"]),
        ) as guardian:  # fmt: skip
            guardian.set_caps([170.0])
            made.board.update(
                lambda state: replace(state, machine=replace(state.machine, reloads=(made.clock.now() + 1,)))
            )
            made.advance(2.0)
            if set_mw is not None:
                made.request(set_mw)
            device.read()
            assert guardian.beat()
            if set_mw is None:
                guardian.set_caps([180.0])
                assert made.requested_mw() == 180_000
            else:
                with pytest.raises(ForeignLimit):
                    guardian.set_caps([180.0])
        assert made.requested_mw() == (ARRIVAL_MW if set_mw is None else set_mw)


def test_a_reload_that_a_set_has_met_is_no_news_at_the_next_beat(tmp_path: Path) -> None:
    with stand(one_card(arrival_mw=ARRIVAL_MW)) as made:
        device = made.device()
        with Guardian(
            kind="nvml", gpus=device.gpus, limits=device.limits(), job=None, state_dir=tmp_path,
            start_watch=Unwatched, clock=Waiting(now=made.clock.now, pause=times(made.clock)["pause"]),
        ) as guardian:  # fmt: skip
            guardian.set_caps([170.0])
            made.board.update(
                lambda state: replace(state, machine=replace(state.machine, reloads=(made.clock.now() + 1,)))
            )
            made.advance(2.0)
            guardian.set_caps([180.0])
            assert made.requested_mw() == 180_000
            assert not guardian.beat()
        assert made.requested_mw() == ARRIVAL_MW
