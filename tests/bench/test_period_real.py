"""The real-like signals of `bench period`: they are as the logs of real cards are, and are judged by their truth."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autocap.testing.logged_sensors import LOGGED
from bench.period.command import main
from bench.period.evidence import COLUMNS, JUDGED, beats, look, windows
from bench.period.evidence import report as evidence_report
from bench.period.real_cases import RealRow, report
from bench.period.real_signals import (
    ABOVE,
    AT_MOST_ONE,
    BURSTS,
    FAMILIES,
    FAST,
    GLOO_125M,
    GLOO_350M,
    SMI_100MS,
    STARVED,
    Training,
    TrueLoad,
    Wave,
    poll,
)

STEADY = replace(GLOO_350M, checkpoints=replace(AT_MOST_ONE, length_s=(0.0, 0.0)))


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def steps_s(load: TrueLoad) -> np.ndarray:
    return np.diff(load.progress_t_s)[::2]


def correlation(values: np.ndarray, lag: int) -> float:
    return float(np.corrcoef(values[lag:], values[:-lag])[0, 1])


def test_step_times_scatter_as_gradient_accumulation_makes_them() -> None:
    scatter, opposite, alike = [], [], []
    for seed in range(8):
        times_s = np.log(steps_s(STEADY.power(900.0, rng(seed))))
        scatter.append(times_s.std())
        opposite.append(correlation(times_s, 5))
        alike.append(correlation(times_s, 10))
    assert 0.04 <= np.mean(scatter) <= 0.08
    assert -0.35 <= np.mean(opposite) <= -0.05  # the slow drift adds to both
    assert 0.19 <= np.mean(alike) <= 0.60


def test_a_step_is_no_longer_for_the_checkpoint_before_it() -> None:
    load = replace(GLOO_125M, checkpoints=BURSTS).power(60.0, rng())
    assert 0.5 < steps_s(load).min() <= steps_s(load).max() < 1.0
    gaps_s = np.diff(load.progress_t_s)[1::2]
    writing = gaps_s > 1e-9
    assert 0 < writing.mean() < 0.5
    assert gaps_s[writing].min() > 2.0
    assert np.isin(load.power_w, [96.0, 74.0]).any()


def test_a_checkpoint_may_draw_more_than_training() -> None:
    load = replace(GLOO_125M, checkpoints=ABOVE, top_w=(220.0, 220.0)).power(60.0, rng())
    assert load.power_w.max() == 235.0


@pytest.mark.parametrize("load", [GLOO_125M, Wave(period_s=0.02)])
def test_true_power_covers_its_time_without_a_hole(load: Training | Wave) -> None:
    truth = load.power(30.0, rng())
    assert (truth.edges_s[0], truth.edges_s[-1]) == (0.0, 30.0)
    assert (np.diff(truth.edges_s) > 0).all()
    assert len(truth.edges_s) - 1 == len(truth.power_w) == len(truth.busy)


def test_a_reader_that_asks_for_100_ms_gets_105_and_now_and_then_much_more() -> None:
    gaps_s = np.diff(SMI_100MS.looks_s(3000.0, rng()))
    assert np.median(gaps_s) == pytest.approx(0.1045, abs=0.0008)
    late = gaps_s > 0.12
    assert 0.005 < late.mean() < 0.016
    assert 2.6 < gaps_s.max() < 2.9
    assert np.quantile(gaps_s[late], 0.9) < 0.24


def test_a_starved_reader_waits_for_seconds_and_then_looks_several_times() -> None:
    gaps_s = np.diff(STARVED.looks_s(600.0, rng()))
    assert 2.0 < gaps_s.max() <= 5.0
    assert np.mean(gaps_s < 0.002) == pytest.approx(0.3, abs=0.05)


def test_a_log_holds_each_reading_until_the_next_and_its_fresh_ones_come_at_the_sensors_pace() -> None:
    log = poll(GLOO_350M.power(30.0, rng()), LOGGED["a100-logged"], FAST, rng(2))
    assert len(log.looks_s) == len(log.power_w) == len(log.utilisation)
    assert log.energy_j is None
    assert log.update_s == pytest.approx(0.101, rel=0.03)
    assert np.mean(np.diff(log.power_w) == 0) > 0.8


def test_utilisation_carries_the_step_and_counts_whole_per_cent() -> None:
    log = poll(STEADY.power(42.0, rng()), LOGGED["titan-x"], SMI_100MS, rng(2))
    ((at_s, busy),) = log.witnesses
    np.testing.assert_allclose(busy, np.round(busy, 2))
    assert (busy.min(), busy.max()) == (0.0, 1.0)
    step_s = log.signal.mean_iteration_s(float(at_s[0]), float(at_s[-1]))
    frequencies = np.arange(0.3, 1.5, 0.01)
    lines = np.abs(np.exp(-2j * np.pi * np.outer(frequencies, at_s)) @ (busy - busy.mean()))
    assert 1 / frequencies[np.argmax(lines)] == pytest.approx(step_s, rel=0.1)


def test_a_card_with_a_counter_has_its_power_counted_too() -> None:
    truth = GLOO_350M.power(30.0, rng())
    log = poll(truth, LOGGED["a100-logged"], FAST, rng(2), counter=True)
    assert log.counted is not None
    used_j = np.concatenate(([0.0], np.cumsum(truth.power_w * np.diff(truth.edges_s))))
    expected_j = np.diff(np.interp(log.looks_s[[0, -1]], truth.edges_s, used_j))[0]
    assert log.energy_j[-1] - log.energy_j[0] == pytest.approx(expected_j, abs=0.11 * 250)


def test_every_family_records_the_same_signal_for_the_same_seed() -> None:
    for family in FAMILIES:
        one, same = (family.record(3, 20.0, rng(5)).signal for _ in range(2))
        np.testing.assert_array_equal(one.power_w, same.power_w)
        assert 15.0 < one.t_s[-1] - one.t_s[0] <= 20.0
        assert (len(one.progress) > 0) >= family.steps


def test_names_of_families_are_their_own() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def row(family: str, **how: object) -> RealRow:
    usual: dict[str, object] = {
        "window_s": 20.0, "number": 0, "seed": 1, "called": True, "period_s": 0.7, "rel_stderr": 0.01, "true_s": 0.7,
        "multiple": 1, "error": 0.005, "verified": True, "cpu_s": 0.1, "reason": "",
    }  # fmt: skip
    return RealRow(family=family, **(usual | how))  # type: ignore[arg-type]


def test_what_is_called_is_right_only_near_a_multiple_of_a_step_that_is_there() -> None:
    assert row("gloo 125M").right
    assert row("gloo 125M", error=0.04).wrong
    assert row("wave of 20 ms", true_s=None, error=None).wrong
    assert not row("wave of 20 ms", called=False).wrong


def test_the_table_tells_multiples_refusals_and_wrong_ones_apart() -> None:
    rows = [
        row("gloo 125M"),
        row("gloo 125M", multiple=2, error=0.015),
        row("gloo 125M", called=False, verified=False),
        row("gloo 125M", error=0.3),
        row("wave of 20 ms", true_s=None, error=None, verified=False),
    ]
    lines = report(rows)
    line = next(line for line in lines if line.startswith("gloo 125M"))
    assert line.split()[2:] == ["4", "3", "2", "1", "0", "0", "1", "1", "1", "50", "100"]
    line = next(line for line in lines if line.startswith("wave of 20 ms"))
    assert line.split()[4:] == ["1", "1", "0", "0", "0", "0", "0", "1", "0", "-", "-"]


@pytest.mark.slow
def test_the_command_looks_at_the_families_that_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.json"
    assert main(["--real", "gloo 350M", "--quick", "--json", str(out)]) == 0
    rows = json.loads(out.read_text())
    assert [(row["family"], row["window_s"]) for row in rows] == [("gloo 350M", length) for length in (20, 40, 60)]
    right = sum(row["called"] and abs(row["error"]) < 0.03 for row in rows)
    assert right > 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("gloo 350M"))
    assert line.split()[4] == str(right)


def test_a_recording_knows_the_window_of_its_sensor() -> None:
    log = poll(GLOO_350M.power(6.0, rng()), LOGGED["rtx-4090-logged"], FAST, rng(2))
    assert log.window_s == 0.110


@pytest.mark.slow
def test_windows_are_judged_by_what_the_detector_was_given() -> None:
    rows = [look(window) for window in windows("judged", JUDGED, 3, 1, COLUMNS) if window.waveform == "a wait for data"]
    assert {row.window.column for row in rows} == set(COLUMNS)
    assert not [row for row in rows if row.wrong]
    by_column = {column: sum(row.called for row in rows if row.window.column == column) for column in COLUMNS}
    assert by_column["alone"] <= by_column["20 ms"] == by_column["trial"] == 3
    assert not any(row.proven for row in rows if row.window.column == "alone")
    assert sum(line.startswith("a wait for data") for line in evidence_report(rows)) == 1


@pytest.mark.slow
def test_a_fast_load_is_short_against_the_sensor_and_never_proven() -> None:
    fast = list(beats("judged", JUDGED, 3, 2, ("20 ms",)))
    assert all(window.period_s <= 3 * JUDGED.sensors[window.sensor].update_s for window in fast)
    assert not [window for window in fast if look(window).proven]
