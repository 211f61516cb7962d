"""What is known of a job's whole curve: between what was measured, beyond it, and for whoever shares a budget."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from autocap.controller.known import latest
from autocap.controller.known_curve import KnownCurve
from autocap.controller.ranking import Ranking
from autocap.controller.search import Search
from autocap.devices.model import profiles
from autocap.metrics import Metric
from autocap.records import Cost, Measurement, Prediction
from bench.simulation.jobs import exact
from tests.doubles.feeds import prediction

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
EDP, ENERGY = Metric(name="edp"), Metric(name="energy")


def shown(cap_w: float, error: float = 0.002) -> Measurement:
    return replace(exact(RESNET50, cap_w), period_rel_stderr=error, energy_rel_stderr=error)


def curve(*caps_w: float, baseline_w: float = 260.0, metric: Metric = EDP) -> KnownCurve:
    return KnownCurve.of(shown(baseline_w), [shown(cap_w) for cap_w in caps_w], (), metric)


@pytest.mark.parametrize("cap_w", [140.0, 175.0, 190.0, 230.0])
def test_between_what_was_measured_the_truth_lies_within_two_errors(cap_w: float) -> None:
    expected, truth = curve(120.0, 150.0, 200.0).expected(cap_w), exact(RESNET50, cap_w)
    assert expected.setting == (cap_w,)
    assert abs(expected.period_s / truth.period_s - 1) < 2 * expected.period_rel_stderr
    assert expected.power_w == pytest.approx(expected.energy_per_iteration_j / expected.period_s)


def test_what_was_measured_is_as_it_was_and_repeats_are_pooled() -> None:
    twice = KnownCurve.of(shown(260.0), [shown(150.0), shown(150.0)], (), EDP)
    assert twice.expected(150.0).period_s == pytest.approx(RESNET50.time_s(150.0))
    assert twice.expected(150.0).period_rel_stderr < curve(150.0).expected(150.0).period_rel_stderr


@pytest.mark.parametrize("caps_w", [(150.0,), (150.0, 160.0, 200.0), (130.0, 140.0)])
@pytest.mark.parametrize("cap_w", [105.0, 120.0])
def test_below_the_lowest_the_truth_lies_within_two_errors_which_grow(caps_w: tuple[float, ...], cap_w: float) -> None:
    known, truth = curve(*caps_w), exact(RESNET50, cap_w)
    lower = known.expected(cap_w)
    assert abs(math.log(lower.period_s / truth.period_s)) < 2 * lower.period_rel_stderr
    assert lower.period_rel_stderr > known.expected(cap_w + 5).period_rel_stderr > 0.01


def test_below_a_baseline_alone_time_grows_with_the_inverse_of_the_cap() -> None:
    assert curve().expected(200.0).period_s == pytest.approx(RESNET50.time_s(260.0) * 260 / 200)


def test_a_cap_that_was_measured_counts_as_measured_even_where_one_was_predicted() -> None:
    predicted = prediction(150.0, 0.5, 0.5, energy_error=0.1, time_error=0.1)
    other = replace(predicted, setting=170.0)
    both = KnownCurve.of(shown(260.0), [shown(150.0)], [predicted, other], EDP)
    assert both.expected(150.0).period_s == pytest.approx(RESNET50.time_s(150.0))
    assert both.expected(170.0).period_s == pytest.approx(0.5 * RESNET50.time_s(260.0))


@pytest.mark.parametrize(
    ("ceiling_w", "best_w"),
    [(260.0, 150.0), (200.0, 150.0), (150.0, 150.0), (140.0, 140.0), (125.0, 125.0), (90.0, 90.0)],
)
def test_the_best_below_a_ceiling_is_the_best_of_all_or_else_the_ceiling(ceiling_w: float, best_w: float) -> None:
    assert curve(120.0, 150.0, 200.0).best_w(ceiling_w, EDP) == best_w


def test_with_a_limit_on_slowdown_the_ceiling_is_best_where_nothing_below_is_within_it() -> None:
    limited = Metric(name="energy", max_slowdown=0.06)
    known = curve(120.0, 150.0, 200.0, 230.0)
    assert known.best_w(260.0, limited) == 200.0
    assert known.best_w(160.0, limited) == 160.0


def test_where_the_best_that_is_known_is_the_highest_of_all_a_higher_ceiling_is_taken_as_it_is() -> None:
    known = curve(150.0, 190.0, baseline_w=200.0, metric=Metric(name="eds", k=1.05))
    assert known.best_w(230.0, Metric(name="eds", k=1.05)) == 230.0
    assert known.best_w(230.0, ENERGY) == 150.0


def test_what_is_published_ends_at_what_is_asked_for() -> None:
    known = curve(120.0, 150.0, 200.0)
    points = known.published(260.0)
    assert [one.setting for one in points] == [120.0, 150.0]
    assert known.asked_w == 150.0
    assert points[1].time == pytest.approx(RESNET50.slowdown(150.0))
    assert points[1].period_rel_stderr == pytest.approx(2**0.5 * 0.002)  # the baseline's too


@pytest.mark.parametrize("caps_w", [(), (150.0,), (190.0, 150.0)])
def test_over_the_limit_found_it_is_told_what_a_baseline_below_it_misses_with_its_error(caps_w) -> None:
    fast = Metric(name="eds", k=1.01)
    points = curve(*caps_w, baseline_w=200.0, metric=fast).published(260.0)
    assert points[-1].setting == 260.0
    assert points[-1].time == points[-1].energy == 1.0
    for one in points:
        assert abs(one.time / float(RESNET50.slowdown(one.setting)) - 1) < 2 * one.period_rel_stderr


def test_a_job_that_asks_for_less_than_its_baselines_limit_is_not_published_above() -> None:
    points = curve(120.0, 150.0, baseline_w=200.0, metric=ENERGY).published(260.0)
    assert points[-1].setting <= 150.0


def time_at(known: KnownCurve, cap_w: float) -> float:
    """Over that of its baseline."""
    return known.expected(cap_w).period_s / known.baseline.period_s


def slowed(known: KnownCurve, times: float, error: float) -> KnownCurve:
    """A curve of a job that loses so many times as much. error: of what it loses, as a share."""
    lost = [1 + times * (one.time - 1) for one in known.points]
    errors = [max(0.001, error * (1 - 1 / time)) for time in lost]
    wrong = zip(known.points, lost, errors, strict=True)
    return replace(curve(120.0), points=tuple(replace(one, time=t, period_rel_stderr=e) for one, t, e in wrong))


def held(cap_w: float, time: float, error: float = 0.001) -> Prediction:
    return prediction(cap_w, 1.0, time, energy_error=1.0, time_error=error)


def test_what_is_held_bends_the_whole_curve_the_less_the_farther_a_cap_is() -> None:
    before = curve(120.0, 150.0, 200.0, 230.0)
    at_150 = float(RESNET50.slowdown(150.0))
    after = before.bent_to([held(150.0, 1.01 * at_150)] * 4)
    moved = {cap_w: after.expected(cap_w).period_s / before.expected(cap_w).period_s for cap_w in (150.0, 200.0, 260.0)}
    assert 1.006 < moved[150.0] < 1.01
    assert 1.0 < moved[200.0] < moved[150.0]
    assert moved[260.0] == pytest.approx(1.0, abs=1e-6)
    assert after.own_error(150.0) < before.own_error(150.0)


def test_a_few_caps_held_mend_a_curve_that_is_another_jobs() -> None:
    before = slowed(curve(120.0, 150.0, 190.0, 230.0), 3, 1.0)
    caps_w = (210.0, 190.0, 175.0, 165.0)
    after = before.bent_to([held(cap_w, float(RESNET50.slowdown(cap_w))) for cap_w in caps_w])
    for cap_w in (165.0, 180.0, 200.0):
        assert time_at(after, cap_w) == pytest.approx(float(RESNET50.slowdown(cap_w)), abs=0.003)
    assert time_at(after, 150.0) == pytest.approx(float(RESNET50.slowdown(150.0)), abs=0.05)


def test_a_curve_that_is_another_jobs_and_sure_of_itself_gives_way_to_what_several_caps_show() -> None:
    points = curve(110.0, 150.0, 190.0, 230.0).points
    sure = tuple(replace(one, time=1 + (one.time - 1) / 4, period_rel_stderr=0.01) for one in points)
    before = replace(curve(110.0), points=sure)
    caps_w = (120.0, 122.0, 126.0, 131.0)
    after = before.bent_to([held(cap_w, float(RESNET50.slowdown(cap_w))) for cap_w in caps_w])
    for cap_w in (120.0, 124.0, 131.0):
        assert time_at(after, cap_w) == pytest.approx(float(RESNET50.slowdown(cap_w)), abs=0.01)


def cliff(cap_w: float, steep: float = 1.5) -> float:
    """The time of a job that loses nothing down to 130 W, and half as much again with each 10 W below."""
    return steep ** max(0.0, (130 - cap_w) / 10)


def test_held_caps_say_where_the_cliff_is_of_a_curve_that_knows_none_beside_others_that_fit() -> None:
    points = tuple(replace(one, time=1.0, period_rel_stderr=0.01) for one in curve(100.0, 120.0, 140.0, 200.0).points)
    before = replace(curve(100.0), points=points)
    caps_w = (180.0, 170.0, 160.0, 150.0, 112.0, 110.0)
    after = before.bent_to([held(cap_w, cliff(cap_w)) for cap_w in caps_w])
    for cap_w in (150.0, 111.0, 110.0):
        assert time_at(after, cap_w) == pytest.approx(cliff(cap_w), rel=0.02)


@pytest.mark.parametrize("steep", [1.25, 1.5])
def test_below_what_a_search_has_shown_caps_held_show_a_cliff_and_what_was_measured_above_stays(steep: float) -> None:
    known = curve(125.0, 140.0, 170.0, 200.0).points
    points = tuple(replace(one, time=cliff(one.setting, steep), period_rel_stderr=0.003) for one in known)
    before = replace(curve(125.0), points=points)
    after = before.bent_to([held(cap_w, cliff(cap_w, steep)) for cap_w in (115.0, 111.0, 105.0, 112.0)])
    for cap_w in (105.0, 108.0, 111.0, 113.0, 115.0, 125.0, 140.0):
        assert time_at(after, cap_w) == pytest.approx(cliff(cap_w, steep), rel=0.015)


def test_what_a_lower_cap_takes_is_enough_for_a_higher_one_where_the_curve_is_another_jobs() -> None:
    before = slowed(curve(120.0, 150.0, 190.0, 210.0, 230.0), 4, 0.75)
    after = before.bent_to([held(cap_w, 1.02) for cap_w in (120.0, 121.0, 122.0)])
    for cap_w in (150.0, 190.0, 210.0):
        assert before.expected(cap_w).period_s > 1.05 * after.baseline.period_s
        assert after.expected(cap_w).period_s < 1.03 * after.baseline.period_s


def test_of_two_caps_whose_times_rise_with_the_cap_the_one_that_is_known_better_has_the_say() -> None:
    """Not the lower one: the trial of a cap far below says nothing against one that was held again and again."""
    points = tuple(replace(one, time=1.0, period_rel_stderr=0.005) for one in curve(120.0, 230.0).points[:-1])
    before = replace(curve(120.0, 230.0), points=(*points, curve(120.0).points[-1]))
    after = before.bent_to([held(230.0, 1.02, 0.002)] * 8)
    assert 1.014 < time_at(after, 230.0) < 1.021


@pytest.mark.parametrize("time", [0.3, 12.0])
def test_one_wild_measurement_moves_a_curve_by_little(time: float) -> None:
    before = curve(120.0, 150.0, 200.0)
    after = before.bent_to([held(150.0, time)])
    assert after.expected(150.0).period_s == pytest.approx(before.expected(150.0).period_s, rel=0.01)


def test_what_is_held_again_and_again_is_believed_however_sure_a_curve_that_is_another_jobs_is_of_itself() -> None:
    before = curve(120.0, 150.0, 200.0)
    for cap_w, time in ((62.2, 2.75), (122.0, 1.9)):  # below its lowest cap, and where it takes itself to know
        after = before.bent_to([held(cap_w, time)] * 3)
        assert time_at(after, cap_w) == pytest.approx(time, rel=0.01)
        stays = after.expected(150.0).period_s < 1.01 * before.expected(150.0).period_s
        assert stays is (cap_w < 120.0)


def test_of_what_was_held_the_oldest_goes_first_where_something_beside_it_was_held_later() -> None:
    caps = tuple(100.0 * 1.02**number for number in range(40))
    noted = tuple[float, ...]()
    for cap_w in (*caps[:10], *(400.0 + 0.1 * number for number in range(30))):
        noted = latest((*noted, cap_w), lambda one: one)
    assert noted[:10] == caps[:10]
    assert len(noted) == 24
    assert noted[-1] == pytest.approx(402.9)
    for cap_w in caps:  # none beside another
        noted = latest((*noted, 5 * cap_w), lambda one: one)
    assert noted == tuple(5 * cap_w for cap_w in caps[-24:])


def test_what_is_held_at_the_baselines_own_cap_of_which_alone_anything_is_known_changes_nothing() -> None:
    before = KnownCurve.of(shown(260.0), (), (), EDP)
    assert before.bent_to([held(260.0, 1.01)]) == before


def test_caps_that_a_strategy_has_fitted_are_off_together_and_those_that_stand_for_themselves_are_not() -> None:
    fitted = curve(120.0).points
    predicted = [replace(fitted[0], setting=cap_w, period_rel_stderr=0.002) for cap_w in (140.0, 147.0, 200.0, 230.0)]
    known = KnownCurve.of(shown(260.0), [shown(230.0)], predicted, EDP)
    assert known.alike(140.0, 147.0) > 0.9
    assert known.alike(140.0, 200.0) < 0.1
    assert known.alike(200.0, 230.0) == known.alike(200.0, 260.0) == 0.0

    def gain(one_w: float, other_w: float) -> Cost:
        search = SimpleNamespace(metric=ENERGY, first=known.baseline, curve=known)
        ranking = Ranking(
            cast(Search, search), limit_w=260.0, usual=ENERGY, confirmed=None, switching=0.0, per_second=0.0
        )
        return ranking.gain(one_w, other_w)

    assert gain(147.0, 140.0).stderr < 0.6 * gain(230.0, 140.0).stderr
