"""Windows that hold checkpoints: the detector cuts them out, and what is left is one pattern."""

import numpy as np
import pytest

from autocap.progress.period import Verdict, count, detect
from autocap.progress.period.estimate import Floats
from autocap.progress.period.series import pauses

STEP_S, READ_S = 0.42, 0.105
LOW, HIGH = (96.0, 74.0), (235.0, 232.0)


def interrupted(
    gaps_s: dict[int, float], levels_w: tuple[float, float], span_s: float, seed: int
) -> tuple[Floats, Floats, Floats]:
    """Steps of four readings each, their time scattering by 5 % and their dips in depth, and before some of them a
    checkpoint of two levels; when each step began, and the readings with their stamps."""
    rng = np.random.default_rng(seed)
    steps = int(span_s / STEP_S) + 20
    lengths_s = STEP_S * np.exp(0.05 * rng.standard_normal(steps))
    stood_s = np.array([gaps_s.get(number, 0.0) for number in range(steps)])
    begun_s = np.cumsum(np.concatenate(([0.0], lengths_s[:-1]))) + np.cumsum(stood_s)
    edges_s = np.column_stack((begun_s - stood_s, begun_s - stood_s / 2, begun_s, begun_s + 0.7 * lengths_s)).ravel()
    dips_w = 225 - rng.uniform(60, 120, steps)
    watts = np.column_stack((*np.broadcast_arrays(*levels_w, 225.0, dips_w),)).ravel()
    fine_s = np.arange(0.0, span_s, 0.005)
    fine_w = watts[np.searchsorted(edges_s, fine_s, side="right") - 1]
    t_s = np.arange(0.2, span_s, READ_S) + rng.normal(0, 0.002, len(np.arange(0.2, span_s, READ_S)))
    energy = np.concatenate(([0.0], np.cumsum(fine_w)))
    passed = np.append(fine_s, span_s)
    means_w = (np.interp(t_s, passed, energy) - np.interp(t_s - 0.1, passed, energy)) / (0.1 / 0.005)
    return begun_s, t_s, means_w + rng.normal(0, 0.5, len(t_s))


@pytest.mark.parametrize("levels_w", [LOW, HIGH])
@pytest.mark.parametrize("gaps_s", [{22: 8.0}, {12: 6.0, 34: 7.0, 58: 6.5}])
def test_a_checkpoint_hides_no_steps_whatever_it_draws(gaps_s: dict[int, float], levels_w: tuple[float, float]) -> None:
    begun_s, t_s, power_w = interrupted(gaps_s, levels_w, 10.0 + sum(gaps_s.values()) * 2, seed=1)
    estimate = detect(t_s, power_w, update_s=READ_S)
    assert estimate.verdict is Verdict.PERIODIC
    multiple = round(estimate.period_s / STEP_S)
    assert multiple in (1, 2)
    inside = begun_s[(begun_s > estimate.start_s) & (begun_s < estimate.end_s)]
    stood_s = sum(gap_s for number, gap_s in gaps_s.items() if inside[0] < begun_s[number] < inside[-1])
    realised_s = (inside[-1] - inside[0] - stood_s) / (len(inside) - 1)
    assert estimate.period_s / multiple == pytest.approx(realised_s, rel=0.02)
    cycles = count(estimate, t_s, power_w, update_s=READ_S, window_s=0.0)
    for number, gap_s in gaps_s.items():
        middle_s = begun_s[number] - gap_s / 2
        assert any(start_s < middle_s < end_s for start_s, end_s in cycles.excluded) or middle_s > t_s[-1]
    counted_s = float(np.ptp(cycles.t_s)) - sum(end_s - start_s for start_s, end_s in cycles.excluded)
    assert float(cycles.count[-1]) * multiple * realised_s == pytest.approx(counted_s, rel=0.1)


def test_checkpoints_that_come_regularly_are_not_the_iteration() -> None:
    for seed in range(2):
        gaps_s = dict.fromkeys(range(8, 400, 12), 4.0)
        _, t_s, power_w = interrupted(gaps_s, LOW, 90.0, seed)
        estimate = detect(t_s, power_w, update_s=READ_S)
        assert estimate.verdict is not Verdict.PERIODIC or (estimate.period_s or 0.0) < 3 * STEP_S


def test_the_phases_of_an_iteration_are_no_interruptions() -> None:
    t_s = np.arange(0.0, 130.0, 0.1)
    power_w = np.select([t_s % 9.0 < 3.0, t_s % 9.0 < 4.0], [90.0, 150.0], 200.0)
    assert not pauses(t_s, power_w).within.any()
    assert not pauses(t_s[:300], power_w[:300]).within.any()  # too few cycles to be seen, all the same


def test_an_iteration_that_waits_for_long_is_one() -> None:
    """Its wait outlasts whatever else it does, and comes so often that it may be a part of it."""
    t_s = np.arange(0.0, 130.0, 0.1)
    rng = np.random.default_rng(3)
    done = 200 + 40 * np.sign(np.sin(2 * np.pi * np.cumsum(rng.uniform(0.5, 2.0, 60)) / 4))
    power_w = np.where(t_s % 9.0 < 3.0, 90.0, done[(t_s % 9.0 / 0.15).astype(int)]) + rng.normal(0, 0.5, len(t_s))
    assert not pauses(t_s, power_w).few
    estimate = detect(t_s, power_w, update_s=0.1)
    assert estimate.period_s == pytest.approx(9.0, rel=0.01)


@pytest.mark.parametrize("values", [[100.0], [100.0, 200.0], [100.0] * 50, [1.0, 2.0] * 40])
def test_few_or_still_readings_are_no_interruption(values: list[float]) -> None:
    assert not pauses(np.arange(len(values)) * 0.1, np.array(values)).within.any()
