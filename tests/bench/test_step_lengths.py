"""`python -m bench scenarios --step-lengths`: what is drawn and tuned, and what counts as the promise kept."""

from dataclasses import replace

from bench.scenarios.step_lengths import StepRow, play, promised, report

GOOD = StepRow(
    seed=0, profile="a/b", metric="eds", step_s=12.0, steps=400, jitter=0.01, kept_w=170.0, regret_pct=0.1,
    search_s=1800.0, said=None,
)  # fmt: skip


def test_a_job_is_drawn_from_its_seed_and_tuned() -> None:
    row = play(7)
    assert (row.profile, round(row.step_s, 2)) == ("tesla-v100/inception3", 0.60)
    assert row.kept_w is not None
    assert promised([row])


def test_every_job_must_keep_a_cap_and_all_but_a_twentieth_a_good_one() -> None:
    poor, untuned = replace(GOOD, seed=1, regret_pct=1.2), replace(GOOD, seed=2, kept_w=None, regret_pct=None)
    assert promised([GOOD] * 19 + [poor])
    assert not promised([GOOD] * 18 + [poor])
    assert not promised([GOOD] * 40 + [untuned])
    lines = list(report([GOOD, poor, replace(untuned, search_s=3000.0)]))
    row = "3 | 2 | 1 | 0.65 / 1.20 | 30.0 / 46.0 / 50.0 |"
    assert lines[2:4] == [f"| 6 to 20 | {row}", f"| all | {row}"]
    assert [line.split(":")[0] for line in lines[4:]] == ["  seed 1", "  seed 2"]
