"""The bench of recurring jobs: its tables, what a run costs, Zeus's rule as published, and its command."""

import numpy as np
import pytest

from autocap.plugins.recur.policy import Outcome
from bench.recurring.command import main
from bench.recurring.job import Job, Plan, Run, Searched, Troubles, Uncapped, ZeusScan
from bench.recurring.rules import Case, Zeus, play
from bench.recurring.workloads import DRIFTS, factors, made_up, prices, rising, workloads

RESNET, ENERGY, COST = workloads()["resnet50"], prices()["energy"], prices()["zeus"]
HELD = len(RESNET.grid) - 1


def came_to(outcome: Outcome, cost: float, time_s: float = 1.0) -> Run:
    return Run(outcome=outcome, cost=cost, counts=cost, time_s=time_s)


def job(*, capped: bool = False, drift: str = "none") -> Job:
    return Job(RESNET, COST, drift, 50, capped=capped)


def test_the_tables_are_those_that_were_published() -> None:
    power_w, time_s = RESNET.power_and_time
    place = RESNET.batch_sizes.index(192)
    assert (power_w[place, HELD], time_s[place, HELD]) == (pytest.approx(220.49), pytest.approx(3529.6))
    assert RESNET.per_epoch(COST)[place, HELD] == pytest.approx((0.5 * 220.49 + 0.5 * 250) * 3529.6)
    assert RESNET.mean_epochs.tolist() == [np.inf, 32.2, 25.0, 21.2, 20.8]
    assert COST.metric.name == "cost"
    for one in workloads().values():
        powers_w, times_s = one.power_and_time
        assert (np.diff(powers_w) > -1e-9).all()
        assert (np.diff(times_s) < 1e-9).all()


def test_what_falls_is_pooled_with_its_neighbours() -> None:
    assert rising(np.array([1.0, 3.0, 2.0, 2.5, 4.0])).tolist() == [1.0, 2.5, 2.5, 2.5, 4.0]
    assert rising(np.array([3.0, 2.0, 1.0])).tolist() == [2.0, 2.0, 2.0]


def test_a_run_costs_its_windows_and_then_the_cap_that_is_held() -> None:
    rng = np.random.default_rng(1)
    place = RESNET.batch_sizes.index(360)
    some = [job().run(0, place, Plan(windows=(), held=HELD), None, rng).cost for _ in range(400)]
    assert np.mean(some) == pytest.approx(job().costs[0, place], rel=0.01)
    epoch = job().per_epoch(place, HELD)
    scanned = Plan(windows=((0, float(RESNET.power_and_time[1][place, 0])),), held=HELD)
    extra = job().per_epoch(place, 0) - epoch  # the first epoch at the lowest cap
    more, less = (
        [job().run(0, place, plan, None, np.random.default_rng(seed)).cost for seed in range(50)]
        for plan in (scanned, Plan(windows=(), held=HELD))
    )
    assert np.mean(more) - np.mean(less) == pytest.approx(extra, rel=0.01)


def test_a_run_is_stopped_at_its_limit_and_gives_up_after_its_last_epoch() -> None:
    rng, plan = np.random.default_rng(1), Plan(windows=(), held=HELD)
    stopped = job().run(0, 2, plan, 5.0, rng)
    assert (stopped.outcome, stopped.cost, stopped.counts) == (Outcome.STOPPED, 5.0, 5.0)
    failed = job().run(0, 0, plan, None, rng)  # 64, which no published run brought to the target
    assert failed.outcome is Outcome.FAILED
    assert failed.cost == pytest.approx(RESNET.max_epochs * job().per_epoch(0, HELD), rel=0.1)


def test_drift_moves_the_best_batch_size_and_leaves_its_own_epochs() -> None:
    for drift in DRIFTS:
        made = factors(RESNET, 4, drift, 50)
        assert (made[:, 4] == 1).all()
        assert (made[0] == 1).all()
        assert (made[-1, :4] < 1).all() == (drift != "none")
    assert job(drift="sudden").costs.argmin(axis=1).tolist() == [4] * 25 + [3] * 25


def test_zeus_explores_down_and_up_twice_and_stops_before_the_epoch_that_is_too_much() -> None:
    uncapped = job()
    rule = Zeus(uncapped, Uncapped(RESNET), np.random.default_rng(0), None)
    visited = []
    costs = {256: 100.0, 192: 90.0, 128: 300.0, 360: 95.0}
    for _ in range(9):
        batch, _, most = rule.next()
        size = RESNET.batch_sizes[batch]
        visited.append(size)
        assert most is None or most <= 2 * 90.0 + 2 * 10.0
        rule.tell(batch, came_to(Outcome.STOPPED if size == 128 else Outcome.REACHED, costs[size]))
    # Downwards until 128 is stopped, upwards; again from the best of the first round, 192; then sampling.
    assert visited[:7] == [256, 192, 128, 360, 192, 256, 360]
    epoch = uncapped.per_epoch(3, HELD)
    rule = Zeus(uncapped, Uncapped(RESNET), np.random.default_rng(0), None)
    rule.tell(3, came_to(Outcome.REACHED, 10.3 * epoch))
    batch, _, most = rule.next()
    assert most == pytest.approx(20.6 * epoch // uncapped.per_epoch(batch, HELD) * uncapped.per_epoch(batch, HELD))


@pytest.mark.slow
def test_caps_are_scanned_or_searched_once_and_then_held() -> None:
    lowest = RESNET.per_epoch(ENERGY)[3].min()
    for made, windows in ((ZeusScan, 7), (Searched, 3)):
        plans = []
        for seed in range(8):
            caps = made(RESNET, ENERGY, np.random.default_rng(seed))
            plans.append((caps.plan(3), caps.plan(3)))
        assert min(len(first.windows) for first, _ in plans) >= windows
        fewer = [len(first.windows) - len(later.windows) for first, later in plans]
        assert sum(fewer) > 0
        assert made is Searched or min(fewer) > 0
        assert max(RESNET.per_epoch(ENERGY)[3, later.held] for _, later in plans) < 1.05 * lowest


def test_the_default_has_the_regret_of_its_own_cost() -> None:
    case = Case(workload=RESNET, price=COST, drift="none", capped=True)
    uncapped, best = job().costs[0, RESNET.default], job(capped=True).costs.min()
    regret = np.mean([play(case, "default", seed, 50).regret for seed in range(10)])
    assert regret == pytest.approx(uncapped / best - 1, abs=0.01)


def test_of_a_lost_run_only_what_the_best_would_not_have_cost_as_well_counts() -> None:
    uncapped = job()

    def lost_of(cost: float, count: int) -> list[Run]:
        troubles = [Troubles("crashes", uncapped, seed) for seed in range(count)]
        fates = [one.befall(0, 2, came_to(Outcome.REACHED, cost), None) for one in troubles]
        return [one for one in fates if one.outcome is Outcome.LOST]

    lost = lost_of(8e7, 40)
    assert 10 <= len(lost) <= 30
    for one in lost:
        assert 0 < one.cost < 8e7
        assert one.counts == pytest.approx(one.cost * (1 - uncapped.oracle[0] / 8e7))
    assert any(one.counts < 0 for one in lost_of(1.0, 9))  # chance alone is no regret
    assert Troubles("crashes", uncapped, 0).stretch == pytest.approx(1.5)  # one run in two, half of it, is lost


def test_first_runs_are_dear_once_and_most_can_tell_how_much() -> None:
    troubles = Troubles("dear", job(), 3)
    first, later = (troubles.befall(0, 2, came_to(Outcome.REACHED, 100.0), None) for _ in range(2))
    assert 105.0 <= first.cost <= 160.0
    assert first.counts == later.cost == 100.0
    assert first.search == pytest.approx(first.cost - 100.0, rel=0.4)
    assert Troubles("untold", job(), 3).befall(0, 2, came_to(Outcome.REACHED, 100.0), None).search is None


def test_too_little_memory_ends_the_largest_at_once_and_never_the_default() -> None:
    for seed in range(20):
        troubles, largest = Troubles("memory", job(), seed), len(RESNET.batch_sizes) - 1
        for batch, always in ((RESNET.default, False), (largest, None)):
            fates = [troubles.befall(0, batch, came_to(Outcome.REACHED, 1.0), None).outcome for _ in range(20)]
            short = fates.count(Outcome.OUT_OF_MEMORY)
            assert short < 10 if always is False else short in range(10) or short == 20


@pytest.mark.slow
def test_made_up_trainings_are_solvable_and_their_own() -> None:
    for seed in range(20):
        workload = made_up(seed)
        assert np.isfinite(workload.mean_epochs[workload.default])
        case = Case(workload=workload, price=COST, drift="none", capped=False)
        assert play(case, "autocap", seed, 5).missed == 0
    assert made_up(1).batch_sizes != made_up(2).batch_sizes


@pytest.mark.slow
def test_the_command_prints_a_line_for_each_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--caps", "out", "--seeds", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.count("|") for line in lines[:4]] == [12] * 4
    assert "autocap's mean regret is above Zeus's in 0, beyond two errors in 0" in lines[-1]


@pytest.mark.slow
def test_troubles_have_a_line_each_and_are_held_against_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--caps", "out", "--seeds", "2", "--recurrences", "20", "--troubles", "crashes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| none", "| crashes"]
    assert "| 1.00 ± 0.00 | 1.00 |" in lines[2]
