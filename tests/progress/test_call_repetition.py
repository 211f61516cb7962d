"""How many calls make an iteration, on sequences whose answer is known."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from autocap.progress.calls.iterations import is_even, is_fair, repetition

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
