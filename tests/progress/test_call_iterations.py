"""Calls of which many make an iteration, and calls that cost too much to be counted all the time; the kernel itself is
a double here.

How many calls make an iteration, on sequences whose answer is known.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from autocap.devices.model.sensor import PRESETS
from autocap.job.processes import ProcessId
from autocap.progress.calls.counter import CallCounter
from autocap.progress.calls.iterations import CallStamps, is_even, is_fair, repetition
from autocap.progress.calls.target import CallTarget
from autocap.progress.counter import IterationCounter
from autocap.records import Sample
from tests.doubles import called

ROOT = ProcessId(1, 1)
LAUNCHES = CallTarget(library="libcuda.so", symbol="cuLaunchKernel", what="call of cuLaunchKernel in libcuda.so")
_SAMPLE_S = 0.1
REMARK = "40 calls of cuLaunchKernel are taken for an iteration, as they repeat after so many"


class Launching:
    """A job whose processes launch so many kernels an iteration. iterations: that each has begun."""

    def __init__(self, calls: int, iteration_s: float, *, processes: int = 1, cost_s: float = 1e-6) -> None:
        threads = [called.CalledThread() for _ in range(processes)]
        ranks = [None] if processes == 1 else range(processes)
        made = {n + 1: called.CalledProcess({n + 1: threads[n]}, rank=rank) for n, rank in enumerate(ranks)}
        self.job = called.CalledJob(made, cost_s=cost_s)
        self._threads, self._calls, self.iteration_s = threads, calls, iteration_s
        self._rng, self._next_s, self._coming = np.random.default_rng(1), self.job.now_s, list[float]()
        self.iterations = 0

    def until(self, t_s: float) -> None:
        """What happens until then."""
        while self._next_s <= t_s:
            gaps_s = 2e-5 * self._rng.lognormal(0.0, 0.2, self._calls)
            self._coming += (self._next_s + np.cumsum(gaps_s)).tolist()
            self._next_s += self.iteration_s * self._rng.normal(1.0, 0.01)
            self.iterations += 1
        happened = [at_s for at_s in self._coming if at_s <= t_s]
        self._coming = self._coming[len(happened) :]
        for thread in self._threads:
            thread.calls_s += happened
        self.job.now_s = t_s

    def wait(self, seconds: float) -> None:
        self.until(self.job.now_s + seconds)


def counting(launching: Launching) -> CallCounter:
    counter = CallCounter(LAUNCHES, launching.job, launching.job.now, launching.wait)
    counter.watch(ROOT)
    return counter


def samples(launching: Launching, source: CallCounter | IterationCounter, seconds: float) -> Iterator[Sample]:
    end_s = launching.job.now_s + seconds
    while launching.job.now_s < end_s:
        launching.wait(_SAMPLE_S)
        yield called.counted_sample(launching.job, source)
    called.await_dropped_calls()


@pytest.mark.parametrize("processes", [1, 2])
def test_an_iteration_is_as_many_launches_as_repeat(processes: int) -> None:
    launching = Launching(40, 0.2, processes=processes)
    counter = counting(launching)
    seen = [sample.steps for sample in samples(launching, counter, 30.0)]
    first = next(n for n, steps in enumerate(seen) if steps is not None)
    assert first * _SAMPLE_S < 4.0
    begun, last = seen[first], seen[-1]
    assert (last.t_s - begun.t_s) / (last.count - begun.count) == pytest.approx(0.2, rel=0.01)
    assert last.count == pytest.approx(launching.iterations, abs=2)
    assert counter.remarks == (REMARK,)
    assert counter.trouble is None


def test_until_that_is_known_nothing_is_counted_and_it_is_said_why() -> None:
    launching = Launching(40, 0.2)
    with called.iteration_counter("calls:libcuda.so:cuLaunchKernel", launching.job, pause=launching.wait) as source:
        source.follow(ROOT)
        progress = source.progress(PRESETS["a100"].info())
        said = {progress.trouble for sample in samples(launching, source, 4.0) if not progress.marks(sample)}
        assert "how many calls of cuLaunchKernel make an iteration is not known yet" in said
        assert (progress.trouble, progress.kind) == (None, "calls")
        assert source.remarks == (REMARK,)


@pytest.mark.parametrize("scatter", [0.01, 0.4])
def test_a_function_that_is_called_once_an_iteration_is_one(scatter: float) -> None:
    job, rng = called.CalledJob({1: called.CalledProcess({1: called.CalledThread()})}), np.random.default_rng(1)
    counter = CallCounter(LAUNCHES, job, job.now, job.pause)
    counter.watch(ROOT)
    for _ in range(60):
        job.now_s += 0.5 * rng.lognormal(0.0, scatter)
        job.processes_by_pid[1].threads[1].call(job.now_s)
        counter.read(0.0)
    reading = counter.read(0.0)
    assert reading.count == pytest.approx(60, abs=2)
    assert counter.remarks == ()


def test_bursts_in_which_nothing_repeats_are_left_to_the_period() -> None:
    job, rng = called.CalledJob({1: called.CalledProcess({1: called.CalledThread()})}), np.random.default_rng(1)
    with called.iteration_counter("calls:libcuda.so:cuLaunchKernel", job) as source:
        source.follow(ROOT)
        progress = source.progress(PRESETS["a100"].info())
        for _ in range(300):
            job.now_s += rng.exponential(0.3)
            for at in range(rng.integers(1, 60)):
                job.processes_by_pid[1].threads[1].call(job.now_s + 2e-5 * at)
            assert not progress.marks(called.counted_sample(job, source))
        assert progress.kind == "period"
        assert source.fault == (
            "calls are not counted: cuLaunchKernel is called in bursts in which nothing repeats, so how many calls "
            "make an iteration is not known; choose a function that is called once an iteration, so iterations are "
            "looked for in the power"
        )


def test_where_too_many_calls_came_at_once_the_next_iteration_is_known_again() -> None:
    stamps = CallStamps()
    stamps.add([1.0, 2.0], 2)
    assert (stamps.first, stamps.of(2), stamps.of(3)) == (1, 2.0, None)
    stamps.add(None, 2000)
    assert (len(stamps), stamps.of(2)) == (0, None)
    stamps.add([3.0], 2001)
    assert (stamps.first, stamps.of(2001)) == (2001, 3.0)
    for count in range(2002, 50_000):
        stamps.add([float(count)], count)
    assert 16_000 < len(stamps) < 33_000
    assert stamps.of(49_999) == 49_999.0


class TestCallsThatCostTooMuch:
    """To be counted all the time: 400 a second, 4 us each, are 0.16 % of it."""

    @staticmethod
    def launching() -> Launching:
        return Launching(40, 0.1, cost_s=4e-6)

    def test_they_are_counted_all_the_time_while_they_are_needed(self) -> None:
        launching = self.launching()
        counter = counting(launching)
        assert all(sample.steps is None or not sample.uncounted for sample in samples(launching, counter, 30.0))
        (_, said) = counter.remarks
        assert said.startswith("counting the calls of cuLaunchKernel takes 0.1")
        assert "% of the job's time, so while a cap is held they are counted for " in said

    def test_else_for_as_much_of_it_as_they_may_cost_and_nothing_stays_open_in_between(self) -> None:
        launching = self.launching()
        counter = counting(launching)
        list(samples(launching, counter, 30.0))
        counter.need(needed=False)
        uncounted = []
        for sample in samples(launching, counter, 120.0):
            uncounted.append(sample.uncounted)
            assert bool(launching.job.watched) or sample.uncounted
        list(samples(launching, counter, 0.0))
        assert 1 - np.mean(uncounted) == pytest.approx(0.1 / 0.16, abs=0.1)

    def test_the_count_goes_on_where_it_stood(self) -> None:
        launching = self.launching()
        counter = counting(launching)
        (*_, before) = samples(launching, counter, 30.0)
        counter.need(needed=False)
        (*_, without) = samples(launching, counter, 2.0)
        counter.need(needed=True)
        after = [sample.steps for sample in samples(launching, counter, 10.0) if sample.steps is not None]
        assert without.uncounted
        assert before.steps.count <= without.steps.count <= before.steps.count + 1
        counts = [steps.count for steps in after]
        assert counts[0] == without.steps.count
        assert counts == sorted(counts)
        assert counts[-1] - counts[0] == pytest.approx(100, abs=3)
        assert not any(steps.suspended for steps in after)

    def test_what_costs_little_again_is_counted_all_the_time(self) -> None:
        launching = self.launching()
        counter = counting(launching)
        list(samples(launching, counter, 30.0))
        counter.need(needed=False)
        launching.iteration_s = 0.5
        list(samples(launching, counter, 60.0))
        assert not any(sample.uncounted for sample in samples(launching, counter, 30.0))


Floats = npt.NDArray[np.float64]
_WAIT_S = 0.05  # for the device, once an iteration


def kernels(count: int, seed: int) -> Floats:
    """The gaps between the launches of a network's kernels: tens of microseconds, each its own."""
    return np.exp(np.random.default_rng(seed).normal(-10.0, 0.6, count))


def launches(iterations: Sequence[Sequence[Floats]], rng: np.random.Generator, scatter: float = 0.3) -> Floats:
    """When kernels were launched: each iteration is stretches of gaps, and the host waits before each stretch."""
    gaps = []
    for stretch in (one for iteration in iterations for one in iteration):
        gaps.append(stretch * np.exp(rng.normal(0.0, scatter, stretch.size)))
        gaps[-1][0] = _WAIT_S * np.exp(rng.normal(0.0, 0.1))
    return np.cumsum(np.concatenate(gaps))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("calls", [7, 100, 700])
def test_the_same_launches_in_each_iteration(calls: int, rng: np.random.Generator) -> None:
    found = repetition(launches([[kernels(calls, 1)]] * (8 + 140 // calls), rng))
    assert found.calls == calls
    assert 0.25 < found.first / calls < 0.75  # the waits are at the beginning of each


@pytest.mark.parametrize("more_or_less", [2, 8])
def test_a_few_launches_more_or_less(more_or_less: int, rng: np.random.Generator) -> None:
    counts = 100 + rng.integers(-more_or_less, more_or_less + 1, 30)
    found = repetition(launches([[np.resize(kernels(100, 1), count)] for count in counts], rng))
    assert found.calls == pytest.approx(counts[1:-1].mean(), abs=0.02 * 100)


def test_gradient_accumulation_is_one_iteration(rng: np.random.Generator) -> None:
    micro, update = kernels(40, 1), kernels(20, 2)
    found = repetition(launches([[micro] * 4 + [update]] * 12, rng))
    assert found.calls == 4 * 40 + 20


@pytest.mark.parametrize("more_or_less", [0, 1])
def test_two_kinds_of_iterations_in_turn_are_one(more_or_less: int, rng: np.random.Generator) -> None:
    """As of a generator and a discriminator."""
    counts = np.array([50, 70]) + rng.integers(-more_or_less, more_or_less + 1, (30, 2))
    both = [[np.resize(kernels(70, kind), count) for kind, count in enumerate(pair)] for pair in counts]
    found = repetition(launches(both, rng))
    assert found.calls == pytest.approx(120, abs=1)


def test_pauses_and_an_evaluation_in_between(rng: np.random.Generator) -> None:
    training = [[kernels(100, 1)]] * 15
    before, after = (np.diff(launches(training, rng)) for _ in range(2))
    evaluation = np.diff(launches([[kernels(33, 3)]] * 10, rng))
    found = repetition(np.cumsum(np.concatenate([before, [20.0], evaluation, [3.0], after])))
    assert found.calls == 100


def test_kernels_that_the_device_paces_need_no_wait(rng: np.random.Generator) -> None:
    gaps = np.tile(np.exp(np.random.default_rng(3).normal(-7.0, 0.4, 80)), 10) * np.exp(rng.normal(0, 0.15, 800))
    found = repetition(np.cumsum(gaps))
    assert found.calls == 80


def _lognormal(rng: np.random.Generator) -> Floats:
    return rng.lognormal(-5.0, 2.0, 2000)


def _heavy(rng: np.random.Generator) -> Floats:
    return rng.pareto(1.2, 500) * 1e-3 + 1e-6


def _bursts(rng: np.random.Generator) -> Floats:
    return np.where(rng.random(2000) < 0.02, 0.05, 1e-5) * rng.lognormal(0.0, 0.3, 2000)


def _slowing(rng: np.random.Generator) -> Floats:
    return np.exp(np.cumsum(rng.normal(0.0, 0.1, 1000)) - 7.0)


def _varying(rng: np.random.Generator) -> Floats:
    counts = 100 + rng.integers(-40, 41, 30)
    return np.diff(launches([[np.resize(kernels(140, 1), count)] for count in counts], rng))


@pytest.mark.parametrize("gaps", [_lognormal, _heavy, _bursts, _slowing, _varying])
def test_nothing_is_found_where_nothing_repeats(gaps: Callable[[np.random.Generator], Floats]) -> None:
    found = [repetition(np.cumsum(gaps(np.random.default_rng(seed)))) for seed in range(20)]
    assert found == [None] * 20


def test_too_few_calls_tell_nothing(rng: np.random.Generator) -> None:
    assert repetition(launches([[kernels(7, 1)]] * 9, rng)) is None
    assert not is_even(np.arange(5.0))
    assert not is_fair(np.arange(5.0))


def test_even_calls_are_told_from_bursts(rng: np.random.Generator) -> None:
    even, uneven = np.cumsum(rng.normal(0.3, 0.01, 12)), np.cumsum(rng.lognormal(-1.0, 0.4, 60))
    assert (is_even(even), is_even(uneven)) == (True, False)
    assert is_fair(even)
    assert is_fair(uneven)
    assert not is_fair(launches([[kernels(100, 1)]] * 8, rng))
    assert not is_even(launches([[kernels(100, 1)]] * 8, rng))


def test_a_host_that_others_hold_up_hides_no_repetition() -> None:
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        gaps = np.where(np.arange(30) % 3 == 0, 8e-4, 3e-4) * rng.lognormal(0.0, 0.02, (60, 30))
        gaps[:, 0] = 0.15
        gaps += np.where(rng.random((60, 30)) < 0.08, rng.uniform(0.001, 0.07, (60, 30)), 0.0)
        found.append(repetition(np.cumsum(gaps)))
    assert sum(one is not None and one.calls == 30 for one in found) >= 15
    assert all(one is None or one.calls % 15 == 0 for one in found)
