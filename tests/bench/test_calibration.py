from collections.abc import Sequence

import numpy as np
import pytest

from autocap.errors import UsageError
from autocap.metrics import Metric
from autocap.records import Prediction
from autocap.strategies.golden import Golden
from autocap.strategies.grid import CapGrid
from bench.simulation.jobs import new_strategy
from bench.strategies import command as strategies
from bench.strategies import curve_cases
from bench.strategies.curve_cases import without
from bench.strategies.curve_set import curve_set
from bench.strategies.curves import Calibration, columns, drive, judge
from tests.bench.test_curves import case as case_of
from tests.doubles.feeds import prediction

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


def test_the_command_searches_with_the_prior_that_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--leave-out", "flat,slack", "--strategies", f"{__name__}:Modest", "--metrics", "edp", "--quick"]
    assert strategies.main(argv) == 0
    assert f"| {__name__}:Modest | edp | 20 | 20 |" in capsys.readouterr().out
    curve = curve_set(0, 1, ["flat"])[0]
    case = case_of("golden", "edp", curve=curve, leave_out=True)
    with pytest.raises(UsageError, match="names no families"):
        curve_cases.run(case)
