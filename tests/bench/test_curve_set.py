import numpy as np
import pytest

from autocap.errors import UsageError
from bench.strategies.curve_set import PUBLISHED, SETS, __main__, curve_set, named, of_families
from bench.strategies.curve_set.__main__ import table, traits
from bench.strategies.curves import CapCurve

# Medians of measured curves: the knee, time at 0.9, 0.8 and 0.7 of the knee's draw, the draw where energy is least, the
# energy there, draw over cap where the cap binds, and the lowest draw.
MEASURED = {
    "kernels": (0.88, (1.06, 1.13, 1.23), 0.62, 0.76, 0.98, 0.62),
    "unnamed-130w": (0.91, (1.10, 1.21, 1.47), 0.74, 0.90, 1.00, 0.35),
    "large-130w": (0.77, (1.24, 1.73, 2.47), 0.77, 0.79, 0.87, 0.46),
    "small-130w": (0.82, (1.05, 1.28, 1.83), 0.73, 0.77, 0.80, 0.43),
    "large-250w": (0.68, (1.16, 1.59, 2.22), 0.65, 0.69, 0.80, 0.43),
    "small-250w": (0.73, (1.04, 1.13, 1.45), 0.61, 0.65, 0.79, 0.45),
    "large-600w": (0.78, (1.06, 1.14, 1.28), 0.56, 0.71, 0.77, 0.29),
    "small-600w": (0.84, (1.07, 1.17, 1.34), 0.61, 0.78, 0.74, 0.47),
}
NEAR = 0.05


def test_made_up_curves_are_of_all_families_and_the_same_for_a_seed() -> None:
    curves = curve_set(5, 12)
    assert curves == curve_set(5, 12) != curve_set(6, 12)
    assert {curve.family for curve in curves} == set(SETS["made-up"])


@pytest.mark.parametrize("family", MEASURED)
def test_a_family_with_knees_looks_like_what_was_measured(family: str) -> None:
    found = [traits(curve) for curve in curve_set(0, 40, [family])]
    knee, slowed, optimum, energy, share, lowest = MEASURED[family]
    medians = [float(np.nanmedian([getattr(one, name) for one in found])) for name in ("knee", "optimum", "energy")]
    assert medians == pytest.approx((knee, optimum, energy), abs=NEAR)
    assert np.nanmedian([one.slowed for one in found], axis=0) == pytest.approx(slowed, rel=NEAR)
    assert np.nanmedian([one.share for one in found]) == pytest.approx(share, abs=NEAR / 2)
    assert np.median([one.lowest for one in found]) == pytest.approx(lowest, abs=NEAR)


def test_time_is_flat_above_the_knee_while_the_draw_falls_with_the_cap() -> None:
    for curve in curve_set(0, 20, ["large-250w", "small-250w"]):
        draws, times = np.array(curve.powers_w) / curve.powers_w[-1], np.array(curve.times_s) / curve.times_s[-1]
        flat = draws > 1.15 * traits(curve).knee
        assert flat.sum() >= 2
        assert np.all(np.abs(times[flat] - 1) < 0.04), "three run errors"
        caps = np.array(curve.caps_w)[flat] / curve.caps_w[-1]
        assert draws[flat] == pytest.approx(caps, abs=0.07)


def test_a_small_cards_limit_stops_acting_at_the_low_end() -> None:
    curves = curve_set(0, 10, ["large-130w"])
    lowest = [np.array(curve.powers_w)[np.array(curve.caps_w) <= 50] for curve in curves]
    assert all(draws_w.min() > 40 and np.ptp(draws_w) < 0.05 * draws_w.min() for draws_w in lowest)


def test_a_curve_with_a_knee_is_the_same_whatever_else_is_made() -> None:
    alone = curve_set(3, 2, ["slack"])
    assert alone == [curve for curve in curve_set(3, 22, ["knees"]) if curve.family == "slack"]


def test_a_set_stands_for_its_families_and_each_curve_comes_once() -> None:
    assert [curve.family for curve in named(["a40", "seed"])] == ["quadro-rtx-6000"] * 6 + ["tesla-v100"] * 6 + ["a40"]
    every = [curve.name for curve in named(["all", "knees"])]
    assert len(every) == len(set(every)) == 12 + 118 + 2 + 110 + 10


def test_a_family_that_no_curve_is_of_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"unknown family of curves 'a4'.*; choose of v100, a40"):
        of_families(PUBLISHED, ["a4"])


def test_the_program_has_a_line_for_each_of_the_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["--seed", "3", "--count", "4", "--families", "soft,v100"]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[:2] for line in lines] == [["| soft", "4"], ["| v100", "1"]]
    assert __main__.main(["--families", "seed"]) == 2
    said = "bench: unknown family of curves 'seed'; choose of made-up, knees, scatter, all"
    assert capsys.readouterr().err.startswith(said)


def test_a_curves_traits_are_those_of_its_points() -> None:
    curve = CapCurve(
        name="five/points", caps_w=(50, 60, 70, 80, 90, 100), powers_w=(40, 48, 56, 64, 72, 80),
        times_s=(5.0, 3.0, 2.2, 2.03, 2.0, 2.0),
    )  # fmt: skip
    found = traits(curve)
    assert found.knee == pytest.approx(0.8 - 0.1 * 0.015 / 0.085)
    assert (found.optimum, found.energy) == (0.7, pytest.approx(0.77))
    assert found.share == pytest.approx(0.8)
    assert (found.lowest, found.slowest) == (0.5, 2.5)
    assert list(table([curve]))[2].startswith("| five | 1 | 0.78 (0.78–0.78) | ")
