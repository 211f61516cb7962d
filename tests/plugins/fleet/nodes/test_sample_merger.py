"""Rows of several nodes become samples: energies exact, gaps where a node is silent, the slowest node's steps."""

import numpy as np
import pytest

from autocap.measurement.energy import EnergyMeter
from autocap.plugins.fleet.nodes.protocol import Row
from autocap.plugins.fleet.nodes.sample_merger import SampleMerger
from autocap.records import NodeReading, Reading, Sample, StepReading

WATTS = (150.0, 90.0, 310.0)


def row(t_s: float, node: int, steps: StepReading | None = None, beside: NodeReading | None = None) -> Row:
    reading = Reading(t_s=t_s, power_w=WATTS[node], energy_j=WATTS[node] * t_s, requested_w=200.0 + node)
    return Row(t_s=t_s, readings=(reading,), steps=steps, node=beside)


def taken(merger: SampleMerger, silent: frozenset[int] = frozenset()) -> list[Sample]:
    found = []
    while (sample := merger.next(silent)) is not None:
        found.append(sample)
    return found


def test_energy_of_steady_power_is_exact_whatever_the_times_of_the_rows() -> None:
    rng = np.random.default_rng(0)
    merger, ahead_s = SampleMerger([1, 1, 1]), (0.0, 1000.0, -55.5)
    for node in range(3):
        times_s = np.cumsum(rng.uniform(0.02, 0.2, 400))
        rows = [
            Row(
                t_s=float(t_s) + ahead_s[node],
                readings=(
                    Reading(t_s=float(t_s) + ahead_s[node], power_w=WATTS[node], energy_j=WATTS[node] * float(t_s)),
                ),
            )
            for t_s in times_s
        ]
        merger.add(node, 0, rows, ahead_s[node])
    samples, meter = taken(merger), EnergyMeter()
    for sample in samples:
        meter.add(sample)
        assert all(reading.t_s <= sample.t_s for reading in sample.readings)
    spanned_s = samples[-1].t_s - samples[0].t_s
    assert spanned_s > 30
    assert meter.energy_j == pytest.approx(sum(WATTS) * spanned_s, rel=1e-9)


def test_one_node_gives_its_own_rows() -> None:
    merger = SampleMerger([1])
    merger.add(0, 0, [row(1.0, 0), row(1.5, 0)], 0.0)
    assert [(sample.t_s, sample.readings[0].energy_j) for sample in taken(merger)] == [(1.0, 150.0), (1.5, 225.0)]
    merger.add(0, 1, [row(1.5, 0), row(2.0, 0)], 0.0)  # said again: taken once
    assert [sample.t_s for sample in taken(merger)] == [2.0]


def test_a_sample_waits_for_the_slowest_node_and_not_for_a_silent_one() -> None:
    merger = SampleMerger([1, 1])
    merger.add(0, 0, [row(0.1 * number, 0) for number in range(30)], 0.0)
    merger.add(1, 0, [row(0.05 + 0.1 * number, 1) for number in range(10)], 0.0)
    assert taken(merger)[-1].t_s == pytest.approx(0.9)
    gap = taken(merger, frozenset({1}))
    assert gap[-1].t_s == pytest.approx(2.9)
    assert {
        (sample.readings[1].power_w, sample.readings[1].energy_j, sample.readings[1].requested_w) for sample in gap
    } == {(None, None, None)}
    assert all(sample.readings[0].power_w == WATTS[0] for sample in gap)


def test_a_node_that_comes_back_does_not_fill_its_gap() -> None:
    merger = SampleMerger([1, 1])
    merger.add(0, 0, [row(0.1 * number, 0) for number in range(40)], 0.0)
    merger.add(1, 0, [row(0.1 * number, 1) for number in range(10)], 0.0)
    taken(merger)
    taken(merger, frozenset({1}))
    merger.add(1, 10, [row(0.1 * number, 1) for number in range(10, 45)], 0.0)
    merger.add(0, 40, [row(0.1 * number, 0) for number in range(40, 45)], 0.0)
    back = taken(merger)
    assert [sample.t_s for sample in back] == pytest.approx([4.0, 4.1, 4.2, 4.3, 4.4])
    assert all(sample.readings[1].power_w == WATTS[1] for sample in back)


def test_rows_that_are_missing_for_long_are_a_gap() -> None:
    merger = SampleMerger([1, 1])
    merger.add(0, 0, [row(0.1 * number, 0) for number in range(41)], 0.0)
    merger.add(1, 0, [row(0.1 * number, 1) for number in range(10)], 0.0)
    merger.add(1, 30, [row(0.1 * number, 1) for number in range(30, 41)], 0.0)
    known = [sample.t_s for sample in taken(merger) if sample.readings[1].power_w is not None]
    assert [t_s for t_s in known if 0.95 < t_s < 2.95] == []
    assert len(known) == 21


def test_what_was_read_before_a_cap_held_makes_no_sample() -> None:
    merger = SampleMerger([1, 1])
    for node in range(2):
        merger.add(node, 0, [row(0.1 * number + 0.01 * node, node) for number in range(20)], 0.0)
    assert merger.next() is not None
    merger.drop_before(1.5)
    assert min(sample.t_s for sample in taken(merger)) >= 1.5
    merger.add(0, 20, [row(1.4, 0)], 0.0)
    assert merger.next() is None


@pytest.mark.parametrize("slower", [StepReading(count=6, t_s=0.95), None])
def test_the_slowest_nodes_steps_count_and_nobodys_while_one_node_has_none(slower: StepReading | None) -> None:
    merger = SampleMerger([1, 1])
    for node, counted in enumerate((StepReading(count=7, t_s=0.9), slower)):
        merger.add(node, 0, [row(1.0, node, counted)], 0.0)
    assert merger.next().steps == slower


@pytest.mark.parametrize(("second_w", "sum_w"), [(300.0, 700.0), (None, None)])
def test_node_power_sums_and_is_unknown_with_one(second_w: float | None, sum_w: float | None) -> None:
    merger = SampleMerger([1, 1])
    for node, watts in enumerate((400.0, second_w)):
        merger.add(node, 0, [row(1.0, node, beside=NodeReading(t_s=0.9, power_w=watts, whole=True))], 0.0)
    sample = merger.next()
    assert (sample.node.power_w, sample.node.whole) == (sum_w, True)
