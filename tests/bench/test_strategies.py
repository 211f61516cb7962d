"""`python -m bench strategies`: curves and their sets, searches on them and what their strategies say at the end, and
whole jobs."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autocap.errors import UsageError
from autocap.metrics import Metric
from autocap.records import Prediction, TrialState
from autocap.strategies.golden import Golden
from autocap.strategies.grid import CapGrid
from bench.simulation.jobs import new_strategy
from bench.strategies import command as strategies
from bench.strategies import curve_cases, job_cases
from bench.strategies.curve_cases import Searched, metric_named, without
from bench.strategies.curve_set import PUBLISHED, SETS, __main__, curve_set, named, of_families
from bench.strategies.curve_set.__main__ import table, traits
from bench.strategies.curves import COLUMNS, Calibration, CapCurve, built_in, columns, drive, judge, read
from tests.doubles.feeds import prediction

CURVE = CapCurve(
    name="five points",
    caps_w=(100, 140, 180, 220, 250),
    powers_w=(98, 135, 170, 200, 210),
    times_s=(2.0, 1.4, 1.1, 1.02, 1.0),
)
FIELDS = (
    "mode curve metric strategy seed probes final_cap_w regret_pct exploration_regret_pct iterations progress state"
)


def write(path: Path, curves: Sequence[CapCurve]) -> None:
    points = [(one.name, *row) for one in curves for row in zip(one.caps_w, one.powers_w, one.times_s, strict=True)]
    path.write_text("\n".join(",".join(map(str, row)) for row in (COLUMNS, *points)))


def case(strategy: str = "model", metric: str = "energy", seed: int = 0, **how: object) -> curve_cases.CurveCase:
    usual: dict[str, object] = {"curve": CURVE, "k": 2.0, "noise": 0.005}
    return curve_cases.CurveCase(metric=metric, strategy=strategy, seed=seed, **(usual | how))


def test_a_curve_goes_through_its_points_and_is_monotone_between_them() -> None:
    power_w, time_s = CURVE.at(CURVE.caps_w)
    assert power_w == pytest.approx(CURVE.powers_w)
    assert time_s == pytest.approx(CURVE.times_s)
    power_w, time_s = CURVE.at(CURVE.grid)
    assert np.all(np.diff(power_w) > 0)
    assert np.all(np.diff(time_s) < 0)


def test_a_curve_file_holds_a_row_for_each_point(tmp_path: Path) -> None:
    write(tmp_path / "curves.csv", [CURVE, *PUBLISHED])
    assert read(tmp_path / "curves.csv") == [CURVE, *PUBLISHED]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("curve,cap_w,power_w\na,100,90\n", "lacks a column; it needs curve, cap_w, power_w, time_s"),
        ("curve,cap_w,power_w,time_s\na,100,90,x\n", "could not convert string to float: 'x'"),
        ("curve,cap_w,power_w,time_s\na,100,90,1\n", "curve a needs two different caps or more, each once"),
        ("curve,cap_w,power_w,time_s\na,100,90,1\na,200,1e300,1\n", "a cap, power or time that is not from 1e-06 to"),
        ('curve,cap_w,power_w,time_s\n"' + "a" * 200_000 + '",100,90,1\n', "field larger than field limit"),
        ("curve,cap_w,power_w,time_s\n\x1b[2J,100,90,1\n", r"curve \\x1b\[2J needs two different caps or more"),
        ("curve,cap_w,power_w,time_s\na,100,90,1\na,200,0,1\n", "a cap, power or time that is not above 0"),
    ],
)
def test_a_file_without_curves_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "curves.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read(path)


def test_the_seed_curves_are_built_in() -> None:
    curves = built_in()
    assert len(curves) == 12
    assert {(curve.grid[0], curve.grid[-1], len(curve.grid)) for curve in curves} == {(100, 260, 33), (150, 300, 31)}


@pytest.mark.slow
def test_a_search_says_what_its_cap_and_its_trials_truly_cost() -> None:
    found = curve_cases.run(case(noise=0.0))
    assert found.row.probes == len(found.drive.trials)
    assert found.row.regret_pct == found.drive.regret_pct(found.row.final_cap_w) < 0.5
    assert found.drive.regret_pct(found.drive.grid[int(np.argmin(found.drive.costs))]) == 0.0
    excess = [found.drive.regret_pct(trial.setting) for trial in found.drive.trials]
    assert found.row.exploration_regret_pct == pytest.approx(np.mean(excess))


def test_trials_are_pruned_as_the_controller_prunes_them() -> None:
    trials = curve_cases.run(case("linear")).drive.trials
    assert {trial.state for trial in trials} == {TrialState.COMPLETE, TrialState.PRUNED}


def test_the_noise_is_of_the_seed_and_the_same_for_every_strategy() -> None:
    first, same = (curve_cases.run(case("linear", seed=3)).drive.trials for _ in range(2))
    assert first == same
    assert first != curve_cases.run(case("linear", seed=4)).drive.trials


@pytest.mark.slow
def test_a_family_has_its_row_below_the_row_of_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curves = [replace(CURVE, name=name) for name in ("tall-000", "tall-001", "wide/first")]
    write(tmp_path / "curves.csv", curves)
    argv = ["--curves", str(tmp_path / "curves.csv"), "--strategies", "golden", "--metrics", "edp", "--quick"]
    assert strategies.main([*argv, "--by-family"]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| golden")]
    assert [row[2:5] for row in rows] == [["all", "3", "3"], ["tall", "2", "2"], ["wide", "1", "1"]]
    assert strategies.main([*argv, "--families", "wide"]) == 0
    assert "| golden | edp | 1 | 1 |" in capsys.readouterr().out


def test_a_metric_may_carry_its_k() -> None:
    assert metric_named("eds_1.5", 2.0) == Metric(name="eds", k=1.5)
    assert metric_named("eds", 3.0) == Metric(name="eds", k=3.0)
    assert metric_named("edp", 3.0) == Metric(name="edp")


@pytest.mark.slow
def test_the_command_writes_the_rows_of_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "curves.csv", [CURVE])
    out = tmp_path / "rows.json"
    argv = ["--curves", str(tmp_path / "curves.csv"), "--strategies", "model,golden", "--quick", "--json", str(out)]
    assert strategies.main(argv) == 0
    rows = json.loads(out.read_text())
    assert len(rows) == 2 * 3
    assert all(list(row) == FIELDS.split() for row in rows)
    assert "| model | energy | 1 | 1 |" in capsys.readouterr().out


GRID = CapGrid((100.0, 105.0, 110.0, 115.0))
ENERGIES, TIMES = np.array([0.8, 0.7, 0.9, 1.0]), np.array([1.5, 1.2, 1.1, 1.0])


class Modest(Golden):
    """Golden section with a prior of two families, which claims to know no more than it should."""

    families = ("phases", "memory")

    def predict(self) -> Sequence[Prediction]:
        return [predicted(cap_w, 0.7, 1.2, 0.9) for cap_w in self.grid if cap_w not in self.findings]

    def expected_loss(self) -> tuple[float, float]:
        return 0.01, 0.02


def predicted(cap_w: float, energy: float, time: float, rel_error: float) -> Prediction:
    return prediction(cap_w, energy, time, energy_error=rel_error, time_error=rel_error / 2)


def test_predictions_are_judged_by_the_relative_errors_that_they_state() -> None:
    said = [predicted(100, 0.8, 1.5, 0.02), predicted(110, 0.9 / 1.03, 1.1 / 1.015, 0.02)]
    found = judge(said, None, GRID, ENERGIES, TIMES)
    assert found == Calibration(time_within=(0.5, 1.0), energy_within=(0.5, 1.0), loss_pct=None, loss_sd_pct=None)


def test_every_search_weighs_the_same_and_one_that_predicts_nothing_is_left_out() -> None:
    sure = Calibration(time_within=(0.0, 0.5), energy_within=(0.2, 0.4), loss_pct=0.1, loss_sd_pct=0.2)
    silent = Calibration(time_within=None, energy_within=None, loss_pct=0.3, loss_sd_pct=0.0)
    modest = Calibration(time_within=(1.0, 1.0), energy_within=(0.6, 1.0), loss_pct=None, loss_sd_pct=None)
    found = columns([(sure, 0.5), (silent, 0.4), (modest, 9.0)])
    assert found == ("50 / 75", "40 / 70", "0.20 / 50")
    assert columns([(modest, 9.0)])[2] == "–"


def test_a_search_is_judged_by_what_its_strategy_says_at_the_end() -> None:
    curve = curve_set(0, 1, ["large-250w"])[0]
    made = new_strategy(Modest, curve.grid)
    found = drive(made, curve, Metric(name="energy"), 0.005, np.random.default_rng(1)).calibration
    assert (found.loss_pct, found.loss_sd_pct) == (1.0, 2.0)
    assert found.covers(5.0)
    assert not found.covers(5.1)
    assert found.energy_within[0] <= found.energy_within[1] == 1.0


@pytest.mark.slow
def test_the_table_has_the_models_calibration_and_none_of_who_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--families", "a40", "--metrics", "energy", "--quick"]
    assert strategies.main([*argv, "--strategies", f"golden,model,{__name__}:Modest"]) == 0
    golden, model, modest = (line.split(" | ")[7:] for line in capsys.readouterr().out.splitlines()[2:5])
    assert golden == ["–", "–", "– |"]
    assert "–" not in model[:2]
    assert modest[2] == "1.00 / 100 |"


def test_left_out_is_what_stands_for_the_curves_family() -> None:
    assert without(f"{__name__}:Modest", "kernels").families == ("phases",)  # type: ignore[attr-defined]
    assert without(f"{__name__}:Modest", "a40").families == ("memory",)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("strategy", "family", "message"),
    [
        (
            f"{__name__}:Modest",
            "ours",
            "nothing in a prior is known to stand for curves of family ours; leave out one of",
        ),
        (f"{__name__}:Modest", "tesla-v100", "cannot leave out law, which .* its prior consists of phases, memory"),
    ],
)
def test_what_cannot_be_left_out_is_said(strategy: str, family: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        without(strategy, family)


@pytest.mark.slow
def test_the_command_searches_with_the_prior_that_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--leave-out", "flat,slack", "--strategies", f"{__name__}:Modest", "--metrics", "edp", "--quick"]
    assert strategies.main(argv) == 0
    assert f"| {__name__}:Modest | edp | 20 | 20 |" in capsys.readouterr().out
    curve = curve_set(0, 1, ["flat"])[0]
    lacking = case("golden", "edp", curve=curve, leave_out=True)
    with pytest.raises(UsageError, match="names no families"):
        curve_cases.run(lacking)


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


@pytest.mark.slow
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


def job(strategy: str = "depo-golden", **how: object) -> job_cases.JobCase:
    usual: dict[str, object] = {"metric": "eds", "seed": 0, "progress": "steps", "iterations": 1000}
    return job_cases.JobCase(curve="quadro-rtx-6000/vgg19", k=2.0, strategy=strategy, noise=0.01, **(usual | how))


@pytest.fixture(scope="module")
def finished() -> Searched:
    return job_cases.run(job())


@pytest.mark.slow
def test_a_job_says_what_it_cost_search_and_all_and_what_its_cap_costs(finished: Searched) -> None:
    row, drive = finished.row, finished.drive
    assert (row.mode, row.iterations, row.progress, row.state) == ("jobs", 1000, "steps", "confirmed")
    assert row.probes == len(drive.trials) == 6
    assert row.final_cap_w == drive.kept_w
    assert 0 <= drive.regret_pct(row.final_cap_w) < row.regret_pct < 3
    assert row.exploration_regret_pct == drive.exploration_regret_pct > 0


def test_a_trial_says_at_which_clock_it_was_made(finished: Searched) -> None:
    made = sorted(
        (trial.setting, trial.measurement.sm_clock_hz) for trial in finished.drive.trials if trial.measurement
    )
    clocks_hz = [clock_hz or 0.0 for _, clock_hz in made]
    assert 0.3e9 < clocks_hz[0] < clocks_hz[-1] <= 1.77e9
    assert clocks_hz == sorted(clocks_hz)


@pytest.mark.slow
def test_a_job_that_ends_before_its_search_keeps_the_cap_it_came_with() -> None:
    row = job_cases.run(job("linear", iterations=10)).row
    assert (row.state, row.final_cap_w) == ("unfinished", 260.0)
    assert row.iterations == 340  # 300 s of them


def test_a_period_is_within_reach_of_profiles_of_three_updates_or_more() -> None:
    assert len(job_cases.curves("steps")) == 12
    out_of_reach = {"quadro-rtx-6000/alexnet", "tesla-v100/alexnet"}  # 113 of 100 ms, and 51 of 20 ms
    assert set(job_cases.curves("steps")) - set(job_cases.curves("period")) == out_of_reach


def test_the_table_has_a_line_per_strategy_and_metric(finished: Searched) -> None:
    *_, line = job_cases.table([finished])
    regret, kept = finished.row.regret_pct, finished.drive.regret_pct(finished.row.final_cap_w)
    assert line == (f"| depo-golden | eds | 1 | 6.0 | {regret:.2f} / {regret:.2f} | 1 | {kept:.2f} / {kept:.2f} |")


@pytest.mark.slow
def test_the_command_runs_jobs_and_writes_the_rows_of_the_contract(tmp_path, capsys) -> None:
    out = tmp_path / "rows.json"
    argv = ["--mode", "jobs", "--strategies", "depo-golden", "--metrics", "eds", "--quick", "--json", str(out)]
    assert strategies.main(argv) == 0
    rows = json.loads(out.read_text())
    assert len(rows) == 3
    assert all(list(row) == FIELDS.split() for row in rows)
    assert "| depo-golden | eds | 3 |" in capsys.readouterr().out
