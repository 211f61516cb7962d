"""The bench of caps per GPU: one job judged by the truth, and the table."""

from dataclasses import replace

import pytest

from bench.pergpu import Case, Row, play, promised, table, truth

CASE = Case(metric="edp", seed=4, profile="quadro-rtx-6000/resnet50", gpus=2, spread=0.05, jitter=0.003)
ROW = Row(
    case=CASE,
    common_w=180.0,
    cap_w=(180.0, 165.0),
    kept=True,
    energy_pct=-3.0,
    time_pct=0.1,
    metric_pct=-2.9,
    energy_off=0.5,
    trials=4,
    search_s=600.0,
)


def test_the_truth_is_that_of_the_cards_that_were_drawn() -> None:
    alike = replace(CASE, spread=0.0)
    profile = alike.job.profile
    found = truth(alike, (180.0, 180.0))
    assert found.period_s == pytest.approx(profile.time_s(180.0), rel=1e-3)
    assert found.energy_per_iteration_j == pytest.approx(2 * profile.energy_j(180.0), rel=1e-2)
    slower = truth(alike, (180.0, 150.0))
    assert slower.period_s == pytest.approx(profile.time_s(150.0), rel=1e-3)
    assert truth(CASE, (180.0, 180.0)).period_s != pytest.approx(found.period_s, rel=1e-3)


@pytest.mark.slow
def test_a_job_is_played_and_judged() -> None:
    row = play(CASE)
    held, common = truth(CASE, row.cap_w), truth(CASE, (row.common_w,) * 2)
    assert row.time_pct == pytest.approx(100 * (held.period_s / common.period_s - 1))
    assert (row.energy_off is not None) is row.kept


def test_promises_are_kept_by_nine_in_ten_and_no_loss() -> None:
    good, slow, worse = ROW, replace(ROW, time_pct=0.4), replace(ROW, metric_pct=0.4)
    assert promised([good] * 9 + [slow], "edp")
    assert not promised([good] * 8 + [slow] * 2, "edp")
    assert not promised([good] * 9 + [worse], "edp")
    assert promised([replace(ROW, case=replace(CASE, spread=0.0), energy_pct=0.0)], "edp")  # alike: nothing to save


def test_the_table_has_a_line_a_metric() -> None:
    energy = replace(ROW, case=replace(CASE, metric="energy"), energy_off=3.0)
    *_, first, second = table([ROW, replace(ROW, energy_pct=0.0, kept=False, energy_off=None), energy])
    assert first == "| edp | 2 | 50 % | -1.50 ± 1.50 | +0.10 | -2.90 / -2.90 | 100 % of 1 | 4.0 | 600 |"
    assert second == "| energy | 1 | 100 % | -3.00 ± 0.00 | +0.10 | -2.90 / -2.90 | 0 % of 1 | 4.0 | 600 |"
