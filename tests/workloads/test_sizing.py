"""The batch size that makes an iteration as long as is wanted, on machines of any speed, with and without a thief."""

import random
from collections.abc import Callable

import pytest

from autocap.workloads.sizing import Sizing, fitting, quickest_s

WANTED_S = 0.1
SPEEDS = [0.2, 1.0, 1.7, 8.0, 50.0]  # of a slow virtual machine to many cores


def work_s(batch_size: int, speed: float) -> float:
    """A network's iteration: what its weights cost, and what each sample does; seconds."""
    return (0.012 + 0.004 * batch_size) / speed


class StolenCore:
    """A clock, and work on a core that somebody else takes half of in bursts of 0.2 s to 2 s, half of the time."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.now_s = 0.0
        self._stolen = self._rng.random() < 0.5
        self._until_s = self._rng.uniform(0, 2.0)

    def work(self, seconds: float) -> None:
        while seconds > 0:
            speed = 0.5 if self._stolen else 1.0
            slice_s = min(seconds / speed, self._until_s - self.now_s)
            self.now_s += slice_s
            seconds -= slice_s * speed
            if seconds > 1e-12:
                self._stolen = not self._stolen
                self._until_s = self.now_s + self._rng.uniform(0.2, 2.0)


@pytest.mark.parametrize("speed", SPEEDS)
def test_an_iteration_takes_what_was_wanted_or_one_sample_less(speed: float) -> None:
    found = fitting(lambda size: work_s(size, speed), WANTED_S, most=4096)
    alone = work_s(2, speed)
    assert found.seconds == pytest.approx(work_s(found.batch_size, speed))
    assert work_s(found.batch_size, speed) <= max(WANTED_S, alone)
    assert work_s(found.batch_size + 1, speed) > WANTED_S


def test_a_machine_too_slow_for_any_batch_gets_the_smallest_after_one_look() -> None:
    asked = []

    def took_s(size: int) -> float:
        asked.append(size)
        return 3.0

    assert fitting(took_s, WANTED_S, most=512) == Sizing(batch_size=2, seconds=3.0)
    assert asked == [2]


@pytest.mark.parametrize("most", [1, 3, 48])
def test_no_batch_is_larger_than_the_epoch(most: int) -> None:
    asked = []

    def took_s(size: int) -> float:
        asked.append(size)
        return 1e-6 * size

    assert fitting(took_s, WANTED_S, most=most).batch_size == most
    assert max(asked) == most


def test_a_batch_that_takes_no_longer_than_a_smaller_one_is_no_end() -> None:
    times = {2: 0.02, 4: 0.015, 8: 0.03, 16: 0.09, 32: 0.17}
    found = fitting(times.__getitem__, WANTED_S, most=512)
    assert found == Sizing(batch_size=18, seconds=pytest.approx(0.1))


def quickest_of(took_s: list[float]) -> tuple[float, int]:
    """What is made of iterations that take so long, and of how many of them."""
    now_s, done = 0.0, 0

    def iteration() -> None:
        nonlocal now_s, done
        now_s += took_s[min(done, len(took_s) - 1)]
        done += 1

    return quickest_s(iteration, lambda: now_s), done


def test_the_quickest_of_five_counts_and_the_first_does_not() -> None:
    assert quickest_of([0.01, 0.9, 0.5, 0.4, 0.7, 0.8]) == (pytest.approx(0.4), 6)


def test_short_iterations_are_looked_at_for_a_third_of_a_second() -> None:
    best_s, done = quickest_of([0.02])
    assert best_s == pytest.approx(0.02)
    assert 0.3 <= 0.02 * (done - 1) <= 0.34


@pytest.mark.parametrize("speed", SPEEDS)
def test_on_a_core_that_is_stolen_half_of_the_time_iterations_stay_between_half_and_all_that_was_wanted(speed) -> None:
    for seed in range(50):
        core = StolenCore(seed)

        def took_s(size: int, core: StolenCore = core) -> float:
            work: Callable[[], None] = lambda: core.work(work_s(size, speed))  # noqa: E731
            return quickest_s(work, lambda: core.now_s)

        found = fitting(took_s, WANTED_S, most=8192)
        alone, larger = work_s(2, speed), work_s(found.batch_size + 1, speed)
        assert work_s(found.batch_size, speed) <= max(1.05 * WANTED_S, alone)
        assert larger > 0.49 * WANTED_S
        assert core.now_s < 10.0  # a demonstration has minutes
