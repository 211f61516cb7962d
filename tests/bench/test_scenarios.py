"""`python -m bench scenarios`: what is drawn, what is played, what counts as a promise kept, and that another value of
a threshold changes what a job does."""

import json
import math
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest

from autocap.testing.simulated.job import WorkloadChange
from autocap.testing.simulated.node import LimitChange, Spell
from bench.scenarios import ceilings, command, noisy, step_lengths
from bench.scenarios.command import main, promises, report
from bench.scenarios.noisy import NoisyRow
from bench.scenarios.runs import Row, constrained, draw, play, starved
from bench.scenarios.step_lengths import StepRow
from bench.simulation.clock import Starvation

KEPT = Row(
    seed=0, metric="eds", jitter=0.01, constrained=False, starved=False, held=True, kept_w=180.0, regret_pct=0.2,
    over_pct=-5.0, due=True, noticed_after=12.0, retunes=0, quiet=20_000.0, saving_off=0.5, excess_pct=None, back=True,
    fault=False, ended_in="HOLDING", story="",
)  # fmt: skip
LIMITED = replace(KEPT, constrained=True, due=False, noticed_after=None, excess_pct=-1.0)


def broken(*rows: Row) -> list[str]:
    return [text for text, kept in promises(rows) if not kept]


def test_all_that_real_jobs_do_is_among_the_scenarios() -> None:
    drawn = [draw(seed) for seed in range(200)]
    assert len({scenario.profile.name for scenario in drawn}) == 12
    assert any(scenario.job.change for scenario in drawn)
    assert any(scenario.foreign for scenario in drawn)
    assert any(scenario.node.hot for scenario in drawn)
    assert any(scenario.node.silent for scenario in drawn)
    assert any(scenario.node.leakage for scenario in drawn)
    assert any(len(scenario.job.episodes) == 2 for scenario in drawn)
    assert max(scenario.job.jitter for scenario in drawn) > 0.09
    assert draw(7) == draw(7)


@pytest.mark.parametrize(
    ("worse", "words"),
    [
        (replace(KEPT, regret_pct=1.6), "kept cap within 1.5 % of the best: 0.0 %"),
        (replace(KEPT, over_pct=0.6), "kept cap above the arrival limit's cost: worst +0.60 %"),
        (replace(KEPT, noticed_after=61.0), "noticed within 60 iterations and the time it has to last in 0 of 1"),
        (replace(KEPT, noticed_after=None), "noticed within 60 iterations and the time it has to last in 0 of 1"),
        (replace(KEPT, retunes=5), "searches anew without a change: 5 in 40000"),
        (replace(KEPT, saving_off=2.5), "reported saving within two standard errors of the truth: 50.0 %"),
        (replace(KEPT, back=False), "limits not back: 1"),
    ],
)
def test_each_promise_that_is_broken_is_said(worse: Row, words: str) -> None:
    assert broken(KEPT, LIMITED) == []
    (said,) = broken(worse, LIMITED)
    assert words in said
    assert any(line.startswith("✗") for line in report([worse, LIMITED]))


def test_of_too_few_jobs_only_what_they_tell_is_said() -> None:
    ended_early = replace(KEPT, held=False, regret_pct=None, over_pct=None, saving_off=None, due=False)
    for rows in ([ended_early], [KEPT], [LIMITED], [replace(ended_early, starved=True)]):
        assert broken(*rows) == []
        assert "nan" not in "".join(report(rows))
    said = [text for text, _ in promises([ended_early])]
    assert said[0] == "jobs that lasted beyond CONFIRMING: 0 of 1"
    assert not [text for text in said if "worst" in text]


def test_a_job_slower_than_allowed_is_said() -> None:
    (said,) = broken(KEPT, replace(LIMITED, excess_pct=0.1))
    assert said.startswith("--max-slowdown 5 %: 1 jobs, 1 beyond it, worst +0.10 %")


def short(seed: int) -> Row:
    scenario = draw(seed)
    job = replace(
        scenario.job, iterations=500, warm_up_iterations=0, start_s=1.0, jitter=0.01, episodes=(), stall_chance=0.0,
        change=WorkloadChange(at=300, time=1.4),
    )  # fmt: skip
    return play(replace(scenario, job=job, node=replace(scenario.node, changes=(), hot=(), silent=(), leakage=0.0)))


@pytest.mark.slow
def test_a_change_of_the_workload_is_timed_in_iterations() -> None:
    row = short(1)
    assert row.due
    assert row.noticed_after is not None
    assert 0 < row.noticed_after <= 60
    assert row.retunes == 0
    assert row.back


@pytest.mark.slow
def test_somebody_elses_limit_counts_as_back_and_a_limited_job_as_measured_against_the_same_job_alone() -> None:
    scenario = draw(2)
    job = replace(scenario.job, iterations=150, warm_up_iterations=0, start_s=1.0, episodes=(), change=None)
    node = replace(scenario.node, changes=(LimitChange(t_s=20.0, cap_w=200.0),), hot=(), silent=())
    row = play(constrained(replace(scenario, job=job, node=node)))
    assert row.ended_in == "DONE"
    assert row.back
    assert row.regret_pct is None
    assert row.excess_pct is not None
    assert row.excess_pct < 1.0


def test_starvation_is_drawn_beside_what_was_drawn_before() -> None:
    drawn = [starved(draw(seed)) for seed in range(60)]
    assert all(replace(one, starvation=None).job == draw(one.seed).job for one in drawn)
    assert starved(draw(7)) == starved(draw(7))
    spells = [one.starvation.spells for one in drawn if one.starvation is not None]
    assert len(spells) == 60
    assert any(math.isinf(some[0].end_s) for some in spells)
    assert any(len(some) > 1 for some in spells)
    assert any(not one.node.energy_counter for one in drawn)


@pytest.mark.slow
def test_a_starved_job_is_tuned_all_the_same() -> None:
    scenario = starved(draw(4))
    job = replace(scenario.job, iterations=1500, warm_up_iterations=0, start_s=1.0, jitter=0.01, episodes=(),
                  stall_chance=0.0, change=None)  # fmt: skip
    starvation = Starvation(
        spells=(Spell(start_s=0.0, end_s=math.inf),), gap_s=0.3, spread=1.2, bursts=0.3, held_up=0.1
    )
    node = replace(scenario.node, changes=(), hot=(), silent=(), leakage=0.0, energy_counter=True)
    row = play(replace(scenario, job=job, node=node, starvation=starvation))
    assert row.starved
    assert row.ended_in == "HOLDING"
    assert row.regret_pct is not None
    assert row.regret_pct < 1.5
    assert row.retunes == 0
    assert not row.fault
    assert row.back


def test_what_went_wrong_on_a_starved_machine_is_said_by_itself() -> None:
    hungry, limited = replace(KEPT, starved=True, fault=True), replace(LIMITED, starved=True)
    assert broken(KEPT, LIMITED, hungry, limited) == ["internal faults: 1"]
    (said,) = broken(KEPT, LIMITED, replace(hungry, fault=False, regret_pct=1.6), limited)
    assert said.startswith("kept cap within 1.5 % of the best: 0.0 %")


TOLD = NoisyRow(
    seed=0, profile="card/net", metric="edp", jitter=0.1, noise=0.2, decided=True, kept_w=150.0, reason=None,
    regret_pct=1.0, beyond_pct=3.0, energy_off=0.5, time_off=-1.0, table_off=(0.1,) * 19 + (2.5,), story="",
)  # fmt: skip


@pytest.mark.parametrize(
    ("worse", "words"),
    [
        (replace(TOLD, energy_off=3.0), "energy of kept caps, within two standard errors of the truth: 95.0 %"),
        (replace(TOLD, table_off=(2.5,) * 40), "energy and time in the table of measured caps, within two"),
        (replace(TOLD, beyond_pct=21.0), "kept caps that take 20 points more time than was said: 1 (0 aimed at)"),
        (replace(TOLD, kept_w=None, regret_pct=None), "no cap kept: 1, with the reason in 0 (all aimed at)"),
    ],
)
def test_what_is_said_of_jobs_on_noisy_machines_is_held_against_the_truth(worse: NoisyRow, words: str) -> None:
    said = {text for text, _ in noisy.promises([TOLD] * 19 + [worse])}
    assert [text for text in said if text.startswith(words)]
    kept = {text for text, fine in noisy.promises([TOLD] * 19 + [replace(TOLD, energy_off=3.0, time_off=3.0)]) if fine}
    assert len(kept) == 6 + 1
    if worse.energy_off != 3.0:
        assert not noisy.promised([TOLD] * 19 + [worse])


def test_noisy_jobs_are_drawn_with_scatter_bursts_and_slow_starts() -> None:
    drawn = [noisy.draw(seed) for seed in range(100)]
    assert all(0.05 <= one.noise <= 0.40 and 0.05 <= one.job.jitter <= 0.40 for one in drawn)
    assert sum(bool(one.job.bursts) for one in drawn) > 80
    assert sum(one.job.warm_up_iterations > 10 for one in drawn) > 50
    for one in drawn:
        ends = [(burst.at, burst.until) for burst in one.job.bursts]
        assert all(after[0] >= before[1] for before, after in pairwise(ends))
    assert noisy.draw(7) == noisy.draw(7)


def test_ceilings_none_of_which_falls_while_something_is_searched_have_a_report() -> None:
    """As where few cases are drawn, or none with the default strategy."""
    row = ceilings.CeilingRow(
        seed=0, what="a-card/net eds2.0 golden holding", came=True, bound=True, decided=True, held_w=150.0,
        best_w=150.0, regret_pct=0.0, lost_points=None, tuning_s=0.0, walked=False, told_off=(), story="",
    )  # fmt: skip
    said = list(ceilings.report([row]))
    assert "  held cap within 0.5 % of the best under the ceiling: 1 of 1, mean 0.00 %, worst 0.00 %" in said
    assert not [line for line in said if "time lost" in line or "looks" in line or line.startswith("✗")]


@pytest.mark.slow
def test_another_value_of_a_threshold_changes_what_a_job_does(tmp_path: Path, capsys) -> None:
    out = tmp_path / "rows.json"
    words = ["--step-lengths", "--count", "1", "--seed-base", "5", "--json", str(out)]
    main([*words, "--tuning", "window_least_s=30", "--tuning", "confirm_rounds=4"])
    said = capsys.readouterr().out
    assert "window_least_s: 30 in place of 1 s" in said
    assert "confirm_rounds: 4 in place of 3 rounds" in said
    (tuned,), usual = json.loads(out.read_text()), asdict(step_lengths.play(5))
    assert tuned["seed"] == usual["seed"]
    assert tuned["search_s"] > 2 * usual["search_s"]
    assert command.known()["window_least_s"].value == 1.0  # of a worker alone


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "revisit_every=60",
            "unknown threshold 'revisit_every' (did you mean revisit_every_s?); `autocap config --all`",
        ),
        ("revisit_every_s", "'revisit_every_s' is not KEY=VALUE"),
        ("revisit_every_s=0", "cannot be '0'; give a number above 0, up to 1000000000 (built-in: 120 s)"),
        ("revisit_every_s=-1", "cannot be '-1'; give a number above 0"),
        ("revisit_every_s=nan", "cannot be 'nan'; give a number above 0"),
        ("confirm_rounds=2.5", "cannot be '2.5'; give a whole number from 1 to 1000000000 (built-in: 3 rounds)"),
    ],
)
def test_a_wrong_threshold_or_value_is_refused_with_what_is_allowed(given: str, message: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--quick", "--tuning", given])
    assert message in capsys.readouterr().err


GOOD = StepRow(
    seed=0, profile="a/b", metric="eds", step_s=12.0, steps=400, jitter=0.01, kept_w=170.0, regret_pct=0.1,
    search_s=1800.0, said=None,
)  # fmt: skip


@pytest.mark.slow
def test_a_job_is_drawn_from_its_seed_and_tuned() -> None:
    row = step_lengths.play(7)
    assert (row.profile, round(row.step_s, 2)) == ("tesla-v100/inception3", 0.60)
    assert row.kept_w is not None
    assert step_lengths.promised([row])


def test_every_job_must_keep_a_cap_and_all_but_a_twentieth_a_good_one() -> None:
    poor, untuned = replace(GOOD, seed=1, regret_pct=1.2), replace(GOOD, seed=2, kept_w=None, regret_pct=None)
    assert step_lengths.promised([GOOD] * 19 + [poor])
    assert not step_lengths.promised([GOOD] * 18 + [poor])
    assert not step_lengths.promised([GOOD] * 40 + [untuned])
    lines = list(step_lengths.report([GOOD, poor, replace(untuned, search_s=3000.0)]))
    row = "3 | 2 | 1 | 0.65 / 1.20 | 30.0 / 46.0 / 50.0 |"
    assert lines[2:4] == [f"| 6 to 20 | {row}", f"| all | {row}"]
    assert [line.split(":")[0] for line in lines[4:]] == ["  seed 1", "  seed 2"]
