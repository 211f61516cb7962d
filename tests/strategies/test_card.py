"""What other jobs on the card have shown, as a part of the default strategy's prior."""

import math

import numpy as np
import pytest

from autocap.records import RelativeCurve, RelativePoint
from autocap.strategies.model import Model
from autocap.strategies.model.card import with_card
from autocap.strategies.model.shapes import shapes
from autocap.strategies.registry import find, knowing, option_values
from autocap.testing.curves import GRID, PHYSICAL, Curve, Search, measured, search
from autocap.testing.strategies import ENERGY
from bench.strategies.curve_cases import OTHER, SAME, CurveCase, others_of, recorded, run
from bench.strategies.curves import built_in

SETTINGS = np.arange(100.0, 261.0, 5.0)
AT = SETTINGS, 260.0, 230.0, None


def of(curve: Curve, *caps_w: float) -> RelativeCurve:
    """What a search has shown of it, without noise."""
    top_w = GRID[-1]
    points = [
        RelativePoint(
            cap=cap_w / top_w,
            power=curve.power_w(cap_w) / curve.power_w(top_w),
            time=curve.time_s(cap_w) / curve.time_s(top_w),
            power_rel_stderr=0.003,
            period_rel_stderr=0.007,
        )
        for cap_w in caps_w
    ]
    return RelativeCurve(draw=curve.power_w(top_w) / top_w, binding=None, points=tuple(points))


def found(curve: Curve, *elsewhere: RelativeCurve) -> Search:
    baseline = measured(curve, GRID[-1], stated=0.0025)
    strategy = knowing(Model, elsewhere)(
        grid=GRID,
        metric=ENERGY,
        baseline=baseline,
        rng=np.random.default_rng(0),
        history=(),
        options=option_values(Model, ()),
    )
    return search(strategy, curve, ENERGY, baseline, 0.005, seed=3)


def test_without_a_record_nothing_is_another() -> None:
    plain = shapes(*AT)
    assert with_card(plain, *AT, ()) is plain
    assert knowing(Model, ()) is Model
    assert knowing(find("golden"), (of(PHYSICAL[0], 150.0),)) is find("golden")  # which makes no use of it


def test_a_curve_that_was_seen_is_expected_again() -> None:
    curve = PHYSICAL[2]
    known = with_card(shapes(*AT), *AT, (of(curve, 120.0, 150.0, 190.0),))
    weight = np.exp(known.log_weight - known.log_weight.max())
    weight /= weight.sum()
    place = int(np.searchsorted(SETTINGS, 150.0))
    expected = float(weight @ known.log_time[:, place])
    plain = shapes(*AT)
    before = np.exp(plain.log_weight - plain.log_weight.max())
    truth = math.log(curve.time_s(150.0) / curve.time_s(260.0))
    assert abs(expected - truth) < abs(float(before @ plain.log_time[:, place] / before.sum()) - truth)
    assert np.isfinite(known.log_power).all()
    assert np.isfinite(known.log_time).all()


def test_a_job_that_draws_unlike_all_of_them_is_searched_as_if_there_were_no_record() -> None:
    low = next(curve for curve in PHYSICAL if curve.name == "draws little")
    high = next(curve for curve in PHYSICAL if curve.name == "compute-bound")
    assert found(low, of(high, 120.0, 150.0, 190.0)).asks == found(low).asks


def seen(*points: tuple[float, float, float]) -> RelativeCurve:
    """points: cap, power and time."""
    return RelativeCurve(
        draw=0.9,
        binding=True,
        points=tuple(
            RelativePoint(cap=cap, power=power, time=time, power_rel_stderr=0.0, period_rel_stderr=1.0)
            for cap, power, time in points
        ),
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "wild",
    [
        seen((0.02, 10.0, 100.0), (4.0, 0.01, 0.01)),
        seen((1.0, 0.5, 0.5)),  # the limit alone
        seen((0.5, 0.01, 100.0), (math.nextafter(0.5, 1), 10.0, 0.01)),
        seen((0.95, 0.5, 100.0), (0.952, 0.9, 1.0)),  # straight on, it would be beyond what a float holds
    ],
)
def test_points_far_from_reason_do_not_stop_a_search(wild: RelativeCurve) -> None:
    assert found(PHYSICAL[2], wild).kept_w is not None


def test_a_record_by_which_every_cap_is_slow_talks_no_job_out_of_a_search() -> None:
    curve = PHYSICAL[2]
    slow = seen(*((cap, 0.99, 100.0) for cap in (0.4, 0.6, 0.8, 0.9)))
    kept_w = found(curve, slow, slow).kept_w
    assert kept_w is not None
    assert curve.regret(ENERGY, kept_w) < 0.02


@pytest.mark.slow
def test_the_record_of_its_card_saves_trials_and_that_of_another_one_costs_little() -> None:
    curves = built_in()

    def mean(which: str | None) -> tuple[float, float]:
        """Of the trials, and of the regret in percent."""
        rows = [
            run(
                CurveCase(
                    curve=curve,
                    metric="edp",
                    k=2.0,
                    strategy="model",
                    seed=seed,
                    noise=0.005,
                    others=() if which is None else others_of(curve, curves, which),
                )
            ).row
            for curve in curves
            for seed in range(2)
        ]
        return float(np.mean([row.probes for row in rows])), float(np.mean([row.regret_pct for row in rows]))

    (alone, regret), (same, same_regret), (other, other_regret) = mean(None), mean(SAME), mean(OTHER)
    assert same <= alone - 0.5
    assert same_regret <= regret + 0.1
    assert other <= alone + 1
    assert other_regret <= regret + 0.1


def test_what_a_search_leaves_is_shares() -> None:
    curve = built_in()[0]
    left = recorded(curve, "energy", 2.0, 0, 0.005)
    assert 0 < left.draw < 1
    assert left.points
    assert all(0 < point.cap <= 1 and point.power < 1.01 for point in left.points)
