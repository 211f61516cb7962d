import json

import pytest

from bench.strategies import command as strategies
from bench.strategies import job_cases
from bench.strategies.curve_cases import Searched
from tests.bench.test_curves import FIELDS


def job(strategy: str = "depo-golden", **how: object) -> job_cases.JobCase:
    usual: dict[str, object] = {"metric": "eds", "seed": 0, "progress": "steps", "iterations": 1000}
    return job_cases.JobCase(curve="quadro-rtx-6000/vgg19", k=2.0, strategy=strategy, noise=0.01, **(usual | how))


@pytest.fixture(scope="module")
def finished() -> Searched:
    return job_cases.run(job())


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


def test_the_command_runs_jobs_and_writes_the_rows_of_the_contract(tmp_path, capsys) -> None:
    out = tmp_path / "rows.json"
    argv = ["--mode", "jobs", "--strategies", "depo-golden", "--metrics", "eds", "--quick", "--json", str(out)]
    assert strategies.main(argv) == 0
    rows = json.loads(out.read_text())
    assert len(rows) == 3
    assert all(list(row) == FIELDS.split() for row in rows)
    assert "| depo-golden | eds | 3 |" in capsys.readouterr().out
