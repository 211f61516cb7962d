import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autocap.errors import UsageError
from autocap.metrics import Metric
from autocap.records import TrialState
from bench.strategies import command as strategies
from bench.strategies import curve_cases
from bench.strategies.curve_cases import metric_named
from bench.strategies.curve_set import PUBLISHED
from bench.strategies.curves import COLUMNS, CapCurve, built_in, read

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


def test_the_command_writes_the_rows_of_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "curves.csv", [CURVE])
    out = tmp_path / "rows.json"
    argv = ["--curves", str(tmp_path / "curves.csv"), "--strategies", "model,golden", "--quick", "--json", str(out)]
    assert strategies.main(argv) == 0
    rows = json.loads(out.read_text())
    assert len(rows) == 2 * 3
    assert all(list(row) == FIELDS.split() for row in rows)
    assert "| model | energy | 1 | 1 |" in capsys.readouterr().out
