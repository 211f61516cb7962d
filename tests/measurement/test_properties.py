"""What holds for any samples and any measurements: energy adds up, windows agree with themselves, pools lie between."""

import math

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from autocap.events import State
from autocap.measurement.batches import as_at, pool
from autocap.measurement.drift import changed_since
from autocap.measurement.energy import EnergyMeter, disturbance, node_power_w
from autocap.measurement.metering import Metering
from autocap.measurement.probe import Probe, ProbeRules
from autocap.measurement.steadiness import SteadinessWatch
from autocap.measurement.totals import RunningTotals
from autocap.measurement.window import Window
from autocap.progress import Mark
from autocap.records import Cost, Measurement, Reading, Sample, TrialState
from tests.doubles import arbitrary
from tests.doubles.feeds import Meter

CAP = (200.0,)


def used_j(samples: list[Sample]) -> float:
    meter = EnergyMeter()
    for sample in samples:
        meter.add(sample)
    return meter.energy_j


def with_marks(samples: list[Sample], ends: list[bool]) -> list[tuple[Sample, list[Mark]]]:
    """Iterations that end at some of the samples."""
    count, fed = 0, []
    for sample, ended in zip(samples, ends, strict=False):
        count += ended
        fed.append((sample, [Mark(t_s=sample.t_s, iterations=float(count))] if ended else []))
    return fed


flags = st.integers(0, 2**60 - 1).map(lambda bits: [bool(bits >> place & 1) for place in range(60)])


@given(arbitrary.samples())
def test_energy_never_falls(samples: list[Sample]) -> None:
    meter, before_j = EnergyMeter(), 0.0
    for sample in samples:
        meter.add(sample)
        assert meter.energy_j >= before_j
        before_j = meter.energy_j


@given(arbitrary.samples(fewest=3), st.data())
def test_energy_of_two_stretches_adds_up_to_that_of_both(samples: list[Sample], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(samples) - 1))
    assume(disturbance(samples[at]) is None)  # counters go on over a gap, which a meter that begins in it cannot know
    assert used_j(samples) == pytest.approx(used_j(samples[: at + 1]) + used_j(samples[at:]))


@given(arbitrary.samples(gaps=False, counts=False, nodes=False))
def test_energy_lies_between_the_lowest_and_the_highest_power(samples: list[Sample]) -> None:
    powers_w = [sum(reading.power_w or 0.0 for reading in sample.readings) for sample in samples]
    span_s = samples[-1].t_s - samples[0].t_s
    assert min(powers_w) * span_s <= used_j(samples) * (1 + 1e-9) + 1e-9
    assert used_j(samples) <= max(powers_w) * span_s * (1 + 1e-9) + 1e-9


@given(arbitrary.samples())
def test_the_nodes_power_is_no_less_than_its_part(samples: list[Sample]) -> None:
    for sample in samples:
        power_w = node_power_w(sample)
        if power_w is not None:
            assert power_w >= sample.node.power_w


@given(arbitrary.samples(fewest=20, most=60), flags)
def test_a_window_agrees_with_itself_and_knows_when_it_is_broken(samples: list[Sample], ends: list[bool]) -> None:
    window, meter = Window(CAP), Meter()
    fed = [meter.of(sample, marks) for sample, marks in with_marks(samples, ends)]
    for one in fed:
        window.add(one)
    found = window.measure(4)
    if found is None:
        return
    assert found.duration_s == pytest.approx(found.iterations * found.period_s)
    assert found.energy_per_iteration_j == pytest.approx(found.power_w * found.period_s)
    assert found.valid == all(one.disturbed is None for one in fed)
    assert found.duration_s <= window.span_s * (1 + 1e-9)
    assert math.isfinite(found.period_rel_stderr + found.energy_rel_stderr + found.power_rel_stderr)


@given(
    st.lists(st.sampled_from([0.01, 0.5, 5.0, 60.0]), min_size=4, max_size=40),
    st.integers(1, 300),
    st.sampled_from([2, 4, 8]),
)
@example([0.5] * 9 + [60.0], 300, 8)
def test_a_window_of_samples_far_apart_and_bunched_has_finite_errors_or_none(gaps_s, per_minute, batches) -> None:
    window, meter, t_s, count = Window(CAP), Meter(), 0.0, 0
    for gap_s in gaps_s:
        t_s += gap_s
        done = int(t_s * per_minute / 60)
        marks = [Mark(t_s=t_s, iterations=float(done))] if done > count else []
        count = done
        reading = Reading(t_s=t_s, power_w=200.0, energy_j=200.0 * t_s)
        window.add(meter.of(Sample(t_s=t_s, readings=(reading,)), marks))
    found = window.measure(batches)
    if found is not None:
        assert math.isfinite(found.period_rel_stderr + found.energy_rel_stderr + found.power_rel_stderr)


@given(arbitrary.samples(fewest=20, most=60), flags, st.floats(min_value=1.0, max_value=100.0))
def test_a_probe_ends_with_a_measurement_that_is_valid_or_with_a_reason(samples, ends, limit_s) -> None:
    rules = ProbeRules(settle_s=0.5, target_stderr=0.1, limit_s=limit_s, min_batches=4)
    probe, meter = Probe(CAP, rules, lambda found: Cost(value=1.0, stderr=found.period_rel_stderr)), Meter()
    for sample, marks in with_marks(samples, ends):
        result = probe.add(meter.of(sample, marks))
        if result is not None:
            assert (result.measurement is None) == (result.state is TrialState.FAILED) == (result.cost is None)
            assert result.reason is not None or result.state is TrialState.COMPLETE
            assert result.measurement is None or result.measurement.valid
            assert disturbance(sample) is None or result.state is TrialState.FAILED
            return


@given(
    arbitrary.samples(fewest=5, most=60),
    flags,
    st.lists(st.sampled_from(State), min_size=3, max_size=3).map(lambda some: 20 * some),
)
def test_no_part_of_the_totals_is_more_than_the_whole(samples, ends, states) -> None:
    totals, metering, steady = RunningTotals(), Metering(), SteadinessWatch(CAP)
    totals.open()
    for (sample, marks), state in zip(with_marks(samples, ends), states, strict=False):
        metered = metering.meter(sample, marks, "steps", CAP)
        steady.add(metered)
        totals.add(metered, state)
    tally = totals.tally(samples[-1].t_s)
    assert 0 <= tally.exploration_s <= tally.elapsed_s + 1e-6
    assert 0 <= tally.exploration_energy_j <= tally.energy_j * (1 + 1e-9) + 1e-6
    assert 0 <= tally.paused_s <= tally.counted_s + 1e-6
    assert tally.counted_s <= tally.elapsed_s + 1e-6
    assert tally.counted_j <= tally.energy_j * (1 + 1e-9) + 1e-6


@pytest.mark.slow
@given(st.lists(arbitrary.measurements(cap_w=200.0), min_size=1, max_size=4))
def test_a_pool_lies_between_its_parts_and_is_no_less_exact_than_the_worst_or_than_they_scatter(parts) -> None:
    whole = pool(parts)
    for name in ("period_s", "energy_per_iteration_j", "power_w"):
        values = [getattr(part, name) for part in parts]
        assert min(values) * (1 - 1e-9) <= getattr(whole, name) <= max(values) * (1 + 1e-9)
    for name, of in (("period_rel_stderr", "period_s"), ("energy_rel_stderr", "energy_per_iteration_j")):
        worst = max(getattr(part, name) for part in parts)
        apart = [abs(getattr(part, of) / getattr(whole, of) - 1) for part in parts]
        assert getattr(whole, name) <= max(worst, math.sqrt(2) * max(apart)) * (1 + 1e-9)
    assert whole.iterations == pytest.approx(sum(part.iterations for part in parts))


@pytest.mark.slow
@given(arbitrary.measurements(), arbitrary.measurements())
def test_moved_to_another_time_and_back_a_measurement_is_what_it_was(one: Measurement, then: Measurement) -> None:
    first = then if one.gpu is None else one
    moved = as_at(as_at(one, then, first), first, then)
    assert moved.period_s == pytest.approx(one.period_s)
    assert moved.energy_per_iteration_j == pytest.approx(one.energy_per_iteration_j)
    assert moved.power_w == pytest.approx(one.power_w)
    assert as_at(then, then, one).period_s == pytest.approx(one.period_s)


@given(arbitrary.measurements())
def test_a_measurement_is_never_of_another_workload_than_itself(one: Measurement) -> None:
    assert changed_since(one, one, "here") is None
