"""What `python -m bench transfer` says, and that the product's constants are those that it fits."""

from dataclasses import astuple

import pytest

from autocap.plugins.predict.rule import FITTED
from bench.transfer import command
from bench.transfer.cases import cap_cases, cap_pairs, time_cases
from bench.transfer.rules import METRICS, regrets


def test_the_cases_are_those_of_the_published_data() -> None:
    assert len(cap_pairs()) == 16
    assert len(time_cases()) == 416
    assert all(case.share[-1] == pytest.approx(1) for case in cap_cases())


@pytest.mark.slow
def test_two_standard_deviations_hold_and_the_constants_are_those_fitted(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    out = capsys.readouterr().out
    fitted = next(line for line in out.splitlines() if line.startswith("Fitted to all"))
    numbers = [float(part.split()[-1]) for part in fitted.replace("Fitted to all: ", "").split(",")]
    assert numbers == pytest.approx(astuple(FITTED), rel=0.01)


def test_the_rule_chooses_better_caps_than_no_cap_and_by_edp_than_the_same_share() -> None:
    pairs = cap_pairs()
    mean = {
        name: regrets(name, "EDP", pairs).mean for name in ("default cap", "same share of the limit", "autocap predict")
    }
    assert mean["autocap predict"] < min(mean["default cap"], mean["same share of the limit"])
    assert set(METRICS) == {"E", "EDP", "EDS(2)"}
