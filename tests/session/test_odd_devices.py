"""Whole jobs, in virtual time, on cards that take limits in steps, or whose driver ignores a set now and then; a driver
that is taken out and loaded again beneath a tuned job: NVML is opened again, and the caps are set again. A sensor that
says nothing for a moment, or a counter that stops: no gap is taken for a change of the job, and none keeps a cap from
being found."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autocap import events
from autocap.devices.model import profiles
from autocap.limits import ForeignLimit, Guardian
from autocap.limits.asking import Waiting
from autocap.testing.nvml import Episode, Fault, Machine, Steps, Trouble, Way, times
from bench.faults.virtual import ARRIVALS_MW, QUICK, Stage, Unwatched, play, usual
from tests.doubles.nvml_stand import one_card, stand


def both_cards(**changes: object) -> Callable[[Stage], None]:
    def inject(stage: Stage) -> None:
        for gpu in (0, 1):
            stage.card(gpu, **changes)

    return inject


def cards(**changes: object) -> Machine:
    """The usual two, like that also after the job."""
    return replace(usual(), cards=tuple(replace(card, **changes) for card in usual().cards))


@pytest.mark.slow
@pytest.mark.parametrize(("lag_s", "way"), [(0.0, Way.DOWN), (0.008, Way.DOWN), (0.008, Way.NEAREST), (0.6, Way.UP)])
def test_tuning_goes_on_at_what_the_cards_take_and_ends_with_a_kept_cap_and_the_limits_found(lag_s, way) -> None:
    firmware = Steps(step_mw=25_000, lag_s=lag_s, way=way, untouched_mw=ARRIVALS_MW)

    report = play(usual(), both_cards(steps=firmware))
    assert report.limits_mw == ARRIVALS_MW
    assert not report.restored_later
    assert report.left_behind == ()
    assert firmware.made_of(round(1000 * report.kept_w)) == 1000 * report.kept_w
    assert report.said[-1] == "the job ended"
    assert report.said[0].endswith("as steps of 25 W would")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refuses", "said"),
    [
        (False, "tuning anew: a device takes no limit below 193.7 W: it made that of 185 W"),
        (True, "tuning anew: GPU 0 refuses 185 W, which its driver says it takes"),
    ],
)
def test_a_floor_above_the_range_that_the_driver_states_is_the_ranges_end(refuses: bool, said: str) -> None:
    report = play(usual(), both_cards(floor_mw=193_700, floor_refuses=refuses))
    assert report.said == (said, "the job ended")
    assert report.kept_w == (215.0 if refuses else 193.7)
    assert (report.limits_mw, report.left_behind, report.restored_later) == (ARRIVALS_MW, (), False)


@pytest.mark.slow
@pytest.mark.parametrize("lag_s", [0.008, 0.5])
def test_a_floor_above_the_range_of_a_card_that_takes_steps_leaves_those_above_it(lag_s: float) -> None:
    firmware = Steps(step_mw=25_000, lag_s=lag_s)
    report = play(cards(arrival_mw=283_570, floor_mw=178_000, floor_refuses=True, steps=firmware), lambda stage: None)
    assert report.kept_w in (200.0, 250.0)
    assert (
        report.said[0] == "tuning anew: GPU 0 takes limits in steps: it made 275 W of 283.57 W, as steps of 25 W would"
    )
    assert "tuning anew: GPU 0 refuses 175 W, which its driver says it takes" in report.said
    assert report.left_behind == ()


@pytest.mark.slow
def test_a_cap_above_what_something_outside_holds_a_card_at_is_left_out_of_the_search() -> None:
    report = play(usual(), both_cards(ceiling_mw=230_000))
    assert (
        "tuning anew: something outside autocap holds a device at 230 W, so no cap above that is tried" in report.said
    )
    assert report.kept_w == 150.0
    assert report.said[-1] == "the job ended"
    assert (report.limits_mw, report.left_behind, report.restored_later) == (ARRIVALS_MW, (), False)


@pytest.mark.slow
def test_a_card_that_is_held_lower_from_outside_and_takes_steps_is_tuned_on_them() -> None:
    report = play(cards(ceiling_mw=281_000, steps=Steps(step_mw=25_000, lag_s=0.5)), lambda stage: None)
    assert report.kept_w == 150.0
    assert not any("somebody else" in text for text in report.said)
    assert report.left_behind == ()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 6])
def test_a_wrong_limit_where_a_card_of_steps_is_asked_once_more_makes_its_step_nobody_elses(seed: int) -> None:
    made = cards(steps=Steps(step_mw=25_000, lag_s=0.5), wrong_share=0.2, wrong_mw=-7_000)
    report = play(replace(made, seed=seed), lambda stage: None)
    assert report.kept_w == 150.0
    assert not any("somebody else" in text for text in report.said)


@pytest.mark.slow
def test_where_one_of_two_cards_takes_steps_both_get_what_it_takes() -> None:
    report = play(usual(), lambda stage: stage.card(1, steps=Steps(step_mw=25_000, untouched_mw=ARRIVALS_MW)))
    assert report.limits_mw == ARRIVALS_MW
    assert report.kept_w in (150.0, 175.0, 200.0, 225.0, 250.0)
    assert report.said[-1] == "the job ended"


@pytest.mark.slow
def test_a_driver_that_ignores_every_third_set_ends_no_tuning() -> None:
    report = play(usual(), both_cards(ignored_share=0.33))
    assert report.said == ("the job ended",)
    assert report.kept_w is not None
    assert report.limits_mw == ARRIVALS_MW
    assert not report.restored_later


@pytest.mark.slow
def test_steps_of_an_unusual_length_and_origin_are_learned_as_well() -> None:
    firmware = Steps(step_mw=50_000, from_mw=12_500, untouched_mw=ARRIVALS_MW)
    report = play(usual(), both_cards(steps=firmware))
    assert report.limits_mw == ARRIVALS_MW
    assert report.kept_w in (162.5, 212.5)
    assert report.left_behind == ()


ARRIVAL_MW = 251_007


@pytest.mark.slow
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


@pytest.mark.slow
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


ITERATIONS = 900  # of 0.06 s
PROFILE = profiles.load(usual().profile)


def episodes(trouble: Trouble, lasts_s: float, every_s: float) -> tuple[Episode, ...]:
    return (Episode(trouble=trouble, from_s=4.0, until_s=4.0 + lasts_s, every_s=every_s),)


ZEROS, STOPPED = "the power sensor of GPU 0 reads 0 W;", "the energy counter of GPU 0 has not moved for"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("met", "counter", "said"),
    [
        (episodes(Trouble.ZERO, 0.8, 3.0), True, [ZEROS]),
        (episodes(Trouble.ZERO, 0.8, 3.0), False, [ZEROS]),
        (episodes(Trouble.COUNTER_STANDS, 3.0, 7.0), True, []),
        (episodes(Trouble.COUNTER_SKIPS, 3.0, 7.0), True, []),
        ((Episode(trouble=Trouble.COUNTER_STANDS, from_s=30.0),), True, [STOPPED]),
        (
            (Episode(trouble=Trouble.COUNTER_STANDS, from_s=30.0), *episodes(Trouble.ZERO, 0.8, 3.0)),
            True,
            [ZEROS, STOPPED],
        ),
    ],
    ids=["zeros", "zeros, no counter", "counter stands", "counter skips", "counter stops", "both"],
)
def test_a_gap_of_a_sensor_is_bridged(met: tuple[Episode, ...], counter: bool, said: list[str]) -> None:
    made = replace(usual(), iterations=ITERATIONS)
    first, *others = (replace(card, energy_counter=counter) for card in made.cards)
    report = play(replace(made, cards=(replace(first, episodes=met), *others)), lambda stage: None)
    assert (report.kept_w, report.raised, report.hung) == (150.0, None, None)
    assert [text.startswith(start) for text, start in zip(report.said, [*said, "the job ended"], strict=True)] == [
        True
    ] * (len(said) + 1)
    (decided,) = [one.measurement for one in report.events if isinstance(one, events.Decided)]
    assert decided is not None
    true_j = 2 * float(PROFILE.power_w(150.0) * PROFILE.time_s(150.0))
    assert decided.energy_per_iteration_j == pytest.approx(true_j, rel=0.03)


@pytest.mark.slow
def test_a_window_goes_on_after_a_short_gap() -> None:
    made = replace(usual(), iterations=1500)
    first, second = (replace(card, energy_counter=False) for card in made.cards)
    cards = (replace(first, episodes=episodes(Trouble.ZERO, 0.8, 3.0)), second)
    tune = replace(QUICK, target_stderr=0.01, trial_s=20.0, caps_w=(150.0, 250.0))
    report = play(replace(made, cards=cards), lambda stage: None, tune=tune, sample_hz=None)
    assert (report.kept_w, report.said[-1]) == (150.0, "the job ended")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_sensor_that_sticks_for_seconds_beside_no_counter_is_no_change_of_the_job(seed: int) -> None:
    made = replace(usual(), iterations=1500, seed=seed)
    sticks = Episode(trouble=Trouble.STUCK, from_s=4.0 + seed, until_s=8.9 + seed, every_s=25.0)
    first, *others = (replace(card, energy_counter=False) for card in made.cards)
    made = replace(made, cards=(replace(first, episodes=(sticks,)), *others))
    report = play(made, lambda stage: None, sample_hz=None)
    assert report.said == ("the job ended",)
    assert report.kept_w is not None
