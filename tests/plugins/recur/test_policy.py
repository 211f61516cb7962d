"""The choice of a batch size, given what earlier recurrences came to."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autocap.errors import UsageError
from autocap.plugins.recur.policy import Choice, Outcome, Recurrence, Rules, arms_of, belief, choose

SIZES = (16, 32, 64, 128, 256)
RULES = Rules(batch_sizes=SIZES, default=64)
MOVING = Rules(batch_sizes=SIZES, default=64, window=5)
REACHED, STOPPED, FAILED, RUNNING, LOST, SHORT = (
    Outcome.REACHED,
    Outcome.STOPPED,
    Outcome.FAILED,
    Outcome.RUNNING,
    Outcome.LOST,
    Outcome.OUT_OF_MEMORY,
)


def past(*runs: tuple[int, float | None] | tuple[int, float | None, Outcome]) -> list[Recurrence]:
    """Recurrences of (batch size, cost, outcome); a target was reached where none is named."""
    made = []
    for number, (size, cost, *outcome) in enumerate(runs):
        made.append(Recurrence(number=number, batch_size=size, outcome=(*outcome, REACHED)[0], cost=cost))
    return made


def chosen(runs: list[Recurrence], rules: Rules = RULES, seed: int = 0) -> Choice:
    return choose(runs, rules, np.random.default_rng(seed))


def played(costs: Callable[[int, int], float], rules: Rules, count: int, seed: int, noise: float = 0.05) -> list[int]:
    """The batch sizes of so many recurrences whose cost is costs(recurrence, batch size), with noise."""
    rng, runs = np.random.default_rng(seed), list[Recurrence]()
    for number in range(count):
        choice = choose(runs, rules, rng)
        cost = costs(number, choice.batch_size) * (1 + noise * float(rng.standard_normal()))
        stopped = choice.most_cost is not None and cost > choice.most_cost
        outcome, spent = (STOPPED, choice.most_cost) if stopped else (REACHED, cost)
        runs.append(Recurrence(number=number, batch_size=choice.batch_size, outcome=outcome, cost=spent))
    return [run.batch_size for run in runs]


def test_the_default_comes_first_and_without_a_limit() -> None:
    assert chosen([]) == Choice(batch_size=64, most_cost=None, phase="exploring", why="the default comes first")


def test_exploration_goes_on_beside_what_may_be_the_best_and_stops_where_it_surely_is_not() -> None:
    runs = past((64, 100.0))
    visited = []
    for cost in (70.0, 150.0, 69.0, 300.0):
        choice = chosen(runs)
        if choice.phase != "exploring":
            break
        visited.append(choice.batch_size)
        runs += [Recurrence(number=len(runs), batch_size=choice.batch_size, outcome=REACHED, cost=cost)]
    assert visited == [32, 16]  # 16 cost twice what 32 did, and 64 is too dear for anything beyond it to be tried
    assert chosen(runs).phase == "sampling"


def test_a_run_may_cost_the_threshold_times_the_cheapest_mean() -> None:
    runs = past((64, 100.0), (32, 110.0), (64, 120.0))
    assert chosen(runs).most_cost == pytest.approx(2 * 110)
    assert chosen(past((64, -3.0))).most_cost is None  # prices may be below nothing


@pytest.mark.parametrize("outcome", [STOPPED, FAILED])
def test_what_has_not_reached_the_target_is_pruned_with_all_behind_it(outcome: Outcome) -> None:
    runs = past((64, 100.0), (32, 200.0, outcome), (128, 200.0, outcome))
    assert {chosen(runs, seed=seed).batch_size for seed in range(50)} == {64}
    assert reasons(runs)[64] is None
    assert reasons(runs)[16] == reasons(runs)[256] == "not tried: what lies before it costs too much"
    assert reasons(runs)[32] == (
        "its runs ended without the target" if outcome is FAILED else "a run cost too much and was stopped"
    )


def test_where_the_default_fails_the_others_are_tried_nearest_first() -> None:
    runs = past((64, 10.0, FAILED))
    assert (chosen(runs).batch_size, chosen(runs).most_cost) == (32, None)
    runs += past((32, 10.0, FAILED), (128, None, LOST))
    assert chosen(runs).batch_size == 128
    everything = past(*((size, 10.0, FAILED) for size in SIZES))
    assert chosen(everything).why == "none has reached the target so far"
    assert chosen(everything).batch_size == 64


def reasons(runs: list[Recurrence]) -> dict[int, str | None]:
    return {one.batch_size: one.pruned for one in belief(runs, RULES)}


@pytest.mark.parametrize("cost", [None, 120.0])
def test_a_lost_run_says_nothing(cost: float | None) -> None:
    runs = past((64, 100.0), (32, cost, LOST))
    assert chosen(runs) == chosen(past((64, 100.0)))
    assert belief(runs, RULES) == belief(past((64, 100.0)), RULES)


def test_one_that_is_lost_again_and_again_waits_for_ever_longer_and_hides_nothing_behind_it() -> None:
    runs, tried = past((64, 100.0)), list[int]()
    for _ in range(20):
        tried.append(chosen(runs).batch_size)
        outcome, cost = (LOST, None) if tried[-1] == 32 else (REACHED, 100.0)
        runs.append(Recurrence(number=len(runs), batch_size=tried[-1], outcome=outcome, cost=cost))
    places = [place for place, size in enumerate(tried) if size == 32]
    assert places[:3] == [0, 1, 2]
    gaps = np.diff(places[2:])
    assert len(gaps) >= 2
    assert (np.diff(gaps) > 0).all()
    assert {16, 128, 256} < set(tried)
    assert (reasons(runs)[32] or "").startswith(f"its last {len(places)} runs were lost; it is tried again after ")
    assert reasons([*runs, *past((32, 90.0))])[32] is None  # it was not the batch size


def test_where_half_of_all_runs_are_lost_a_few_in_a_row_are_nothing_special() -> None:
    usual = [(64, 100.0), (64, None, LOST)] * 6
    runs = past(*usual, *[(32, None, LOST)] * 3)
    assert chosen(runs).batch_size == 32
    assert reasons(runs)[32] is None
    known = past(*usual, (32, 60.0), *[(32, None, LOST)] * 5)
    assert reasons(known)[32] is None


def test_a_lost_run_that_had_cost_far_too_much_is_not_made_again() -> None:
    runs = past((64, 100.0), (32, 170.0, LOST))
    assert chosen(runs).batch_size == 128
    assert reasons(runs)[32] == "a run had cost too much when it was lost"
    assert reasons(runs)[16] == "not tried: what lies before it costs too much"


def test_memory_that_twice_did_not_suffice_closes_that_batch_size_and_all_larger_ones_for_a_while() -> None:
    once = past((64, 100.0), (32, 100.0), (16, 100.0), (128, None, SHORT))
    assert chosen(once).batch_size == 128
    assert reasons(once)[128] is None
    twice = numbered(*once, *past((128, None, SHORT)))
    assert {chosen(twice, seed=seed).batch_size for seed in range(20)} == {16, 32, 64}
    assert reasons(twice)[128] == "memory ran out more than once; it is tried again after 8 more recurrences"
    assert reasons(twice)[256] == "not tried: batch size 128 ran out of memory"
    larger = numbered(
        *once, *past((256, None, SHORT))
    )  # one each: what the smaller one lacked the larger lacks as well
    assert reasons(larger)[128] is None
    assert (reasons(larger)[256] or "").startswith("memory ran out more than once")
    assert reasons(numbered(*twice, *past((256, 90.0))))[128] is None  # it was somebody else's memory


def test_a_batch_size_that_lacked_memory_is_tried_again_in_intervals_that_double() -> None:
    def closed(runs: list[Recurrence], times: int) -> list[Recurrence]:
        """With so many runs more while 128 is closed."""
        for _ in range(times):
            assert chosen(runs).batch_size <= 64
            runs = numbered(*runs, *past((64, 100.0)))
        assert chosen(runs).batch_size == 128
        return runs

    runs = closed(past((64, 100.0), (32, 100.0), (16, 100.0), (128, None, SHORT), (128, None, SHORT)), 8)
    closed(numbered(*runs, *past((128, None, SHORT))), 16)
    assert chosen(numbered(*runs, *past((128, 90.0)))).batch_size == 256
    default = past((64, None, SHORT), (64, None, SHORT), *[(32, 200.0)] * 7)  # so it is where the default lacked it
    assert reasons(default)[64] == "memory ran out more than once; it is tried again after the next recurrence"
    assert reasons(numbered(*default, *past((32, 200.0))))[64] is None


def numbered(*runs: Recurrence) -> list[Recurrence]:
    return [replace(run, number=number) for number, run in enumerate(runs)]


def test_a_run_whose_search_took_nobody_knows_how_much_is_made_again_although_it_seems_dear() -> None:
    runs = [Recurrence(number=0, batch_size=64, outcome=REACHED, cost=140.0, search_cost=None)]
    runs += [replace(run, number=number + 1) for number, run in enumerate(past(*[(32, 100.0)] * 6, (16, 150.0)))]
    runs += [replace(run, number=number + 8) for number, run in enumerate(past((128, 300.0)))]
    surely = [replace(runs[0], cost=119.0, search_cost=0.0), *runs[1:]]
    again, never = ([chosen(some, seed=seed).batch_size for seed in range(200)].count(64) for some in (runs, surely))
    assert reasons(runs)[64] is reasons(surely)[64] is None
    assert again > 10 > 2 * never


def test_what_the_search_for_a_cap_took_is_left_out_of_what_batch_sizes_are_compared_by() -> None:
    plain = Recurrence(number=1, batch_size=64, outcome=REACHED, cost=100.0, cost_stderr=1.0)
    runs = [replace(plain, number=0, cost=140.0, search_cost=40.0), plain]
    assert belief(runs, RULES)[2].mean == pytest.approx(100.0)
    assert chosen(runs).most_cost == pytest.approx(200.0)


def test_a_search_of_unknown_cost_is_guessed_by_the_others_and_makes_a_run_count_less() -> None:
    def searched(number: int, size: int, cost: float, took: float | None) -> Recurrence:
        return Recurrence(number=number, batch_size=size, outcome=REACHED, cost=cost, search_cost=took)

    known = [searched(number, 64, 100.0 + 30.0, 30.0) for number in range(6)]
    guessed = belief([*known, searched(6, 32, 130.0, None)], RULES)[1]
    surely = belief([*known, searched(6, 32, 130.0, 30.0)], RULES)[1]
    assert guessed.mean == pytest.approx(100.0, rel=0.02)
    assert guessed.stderr > 1.2 * surely.stderr
    paired = belief([*(searched(number, 64, 100.0, 0.0) for number in range(5)), searched(5, 64, 130.0, None)], RULES)
    assert paired[2].mean == pytest.approx(100.0, rel=0.02)


def test_while_one_is_tried_for_the_first_time_others_get_the_best_so_far() -> None:
    assert chosen(past((64, None, RUNNING))).batch_size == 64
    runs = past((64, 100.0), (32, 80.0), (16, None, RUNNING))
    choice = chosen(runs)
    assert (choice.batch_size, choice.why) == (32, "the best so far, while 16 is being tried")
    again = past((64, 100.0), (32, 80.0), (32, None, RUNNING))
    assert chosen(again).batch_size == 16  # a second run of one that is known holds nobody up
    failed = past((64, 9.0, FAILED), (32, None, RUNNING))
    assert chosen(failed).batch_size == 128


def test_a_target_missed_now_and_then_costs_what_was_spent_for_each_one_reached() -> None:
    (one,) = (one for one in belief(past((64, 100.0), (64, 30.0, FAILED), (64, 110.0)), RULES) if one.n)
    assert (one.batch_size, one.n, one.mean) == (64, 2, pytest.approx(120.0))


def test_errors_shrink_with_runs_and_grow_with_the_scatter_of_all() -> None:
    def error(runs: list[Recurrence]) -> float:
        return arms_of(runs, RULES)[2].stderr

    calm = past((64, 100.0), (64, 101.0), (64, 99.0), (64, 100.0))
    assert error(calm) < error(calm[:2]) < error(calm[:1]) == pytest.approx(10.0)
    assert belief(calm[:2], RULES)[2].stderr == error(calm[:2])
    assert belief(calm[:1], RULES)[2].stderr is None, "what is only taken to be so is not stated"
    wild = past((32, 50.0), (32, 100.0), (32, 150.0))
    assert error(past((64, 100.0)) + wild) > 2 * error(calm[:1])
    coarse = [Recurrence(number=0, batch_size=64, outcome=REACHED, cost=100.0, cost_stderr=30.0)]
    assert error(coarse) == pytest.approx(np.hypot(30.0, 10.0))


@pytest.mark.parametrize("seed", range(10))
def test_it_comes_to_run_the_cheapest(seed: int) -> None:
    costs = {16: 300.0, 32: 190.0, 64: 150.0, 128: 100.0, 256: 120.0}
    sizes = played(lambda _, size: costs[size], RULES, 30, seed)
    assert sizes[15:].count(128) >= 12


@pytest.mark.parametrize("seed", range(5))
def test_three_at_a_time_come_to_run_the_cheapest_as_well(seed: int) -> None:
    costs = {16: 300.0, 32: 190.0, 64: 150.0, 128: 100.0, 256: 120.0}
    rng, runs, began = np.random.default_rng(seed), list[Recurrence](), list[int]()
    for number in range(40):
        size = choose(runs, RULES, rng).batch_size
        began.append(size)
        runs.append(Recurrence(number=number, batch_size=size, outcome=RUNNING))
        if number >= 2:  # the one before the last two ends
            cost = costs[began[number - 2]] * (1 + 0.05 * float(rng.standard_normal()))
            runs[number - 2] = replace(runs[number - 2], outcome=REACHED, cost=cost)
    assert began[:3] == [64, 64, 64]
    assert began[25:].count(128) >= 12


@pytest.mark.parametrize("seed", range(5))
def test_with_a_window_it_follows_a_cost_that_has_moved(seed: int) -> None:
    def costs(number: int, size: int) -> float:
        best = 32 if number < 20 else 128
        return 100.0 * (1 + 0.25 * abs(np.log2(size / best)))

    sizes = played(costs, MOVING, 60, seed)
    assert sizes[8:20].count(32) >= 8
    assert sizes[40:].count(128) >= 12


def test_with_a_window_a_failure_is_forgotten_in_the_end() -> None:
    failed = past((64, 100.0), (32, 50.0, FAILED))
    later = failed + past(*[(64, 100.0)] * 6)
    assert 32 not in {chosen(later, RULES, seed).batch_size for seed in range(20)}
    assert chosen(later, MOVING).batch_size == 32


def test_the_same_past_and_seed_give_the_same_choice() -> None:
    runs = past((64, 100.0), (32, 98.0), (16, 210.0), (128, 97.0), (256, 150.0))
    assert [chosen(runs, seed=seed) for seed in range(9)] == [chosen(runs, seed=seed) for seed in range(9)]
    assert {chosen(runs, seed=seed).batch_size for seed in range(40)} == {32, 64, 128}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_sizes": ()}, "batch sizes () are no ascending list of distinct whole numbers above 0"),
        ({"batch_sizes": (64, 32)}, "batch sizes (64, 32) are no ascending list"),
        ({"window": 0}, "a window of 0 recurrences holds none; pass 1 or more"),
    ],
)
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Rules(**{"batch_sizes": SIZES, "default": 64, **wrong})  # type: ignore[arg-type]


def test_a_cost_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="recurrence 0 cost nan ± None, which is no number"):
        past((64, float("nan")))
