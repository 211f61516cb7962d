"""`python -m bench tables`: the published rows, and the sweep's core on the simulated device."""

from dataclasses import replace

import pytest

from autocap.devices.model import profiles
from autocap.metrics import Metric
from bench.__main__ import main as bench
from bench.simulation.sweep import Command, sweep
from bench.tables import command as tables
from bench.tables.fit_profiles import read_tables
from bench.tables.spent import PARTS, Jobs, spend


@pytest.mark.slow
def test_a_simulated_sweep_measures_what_the_profile_says() -> None:
    profile = profiles.load("quadro-rtx-6000/resnet50")
    panel = sweep(Command(profile=profile, iterations=40, jitter=0.01), repeats=2, seed=0)
    assert [row.cap_w for row in panel.rows] == [float(cap_w) for cap_w in range(260, 99, -5)]
    for row in panel.rows:
        assert row.repeats == 2
        assert row.measurement.period_s == pytest.approx(40 * profile.time_s(row.cap_w), rel=0.01)
        assert row.measurement.energy_per_iteration_j == pytest.approx(40 * profile.energy_j(row.cap_w), rel=0.025)
    assert panel.left_out == ()


@pytest.mark.slow
def test_alexnet_is_reproduced_and_the_row_that_contradicts_itself_is_listed(capsys) -> None:
    status = bench(["tables", "--networks", "Alexnet", "--repeats", "1"])
    out = capsys.readouterr().out
    assert status == 0
    assert "energy and time within 2 %: 10 of 10 rows" in out
    (missed,) = [line for line in out.splitlines() if line.startswith("  ")]
    assert missed.startswith("  Quadro RTX 6000, Alexnet, min EDS(k=1.5): published 140 W is 0.")
    (row,) = [line for line in out.splitlines() if line.startswith("| Alexnet | min E | 120 ")]
    assert "✗" not in row


@pytest.mark.slow
def test_an_energy_that_is_not_the_published_one_is_marked_and_fails(tmp_path, capsys) -> None:
    header, *published = tables.PUBLISHED.read_text().splitlines()
    some = [line for line in published if line.startswith("Quadro RTX 6000") and "Alexnet" in line]
    (tmp_path / "wrong.csv").write_text("\n".join([header, *some]).replace("2336.0", "2420.0") + "\n")
    status = tables.main(["--tables", str(tmp_path / "wrong.csv"), "--repeats", "1"])
    out = capsys.readouterr().out
    assert status == 1
    assert "energy and time within 2 %: 4 of 5 rows" in out
    (row,) = [line for line in out.splitlines() if line.startswith("| Alexnet | min E | 120 ")]
    assert "✗ | 12" in row


def test_every_published_row_has_its_energy() -> None:
    for table in read_tables(tables.PUBLISHED):
        assert table.energy_j == pytest.approx(table.power_w * table.time_s, rel=0.01)


@pytest.mark.slow
def test_what_a_job_spends_is_what_its_parts_spend() -> None:
    """Beyond the best static cap, to first order; and all of its time is in one of them."""
    found = spend("tesla-v100/alexnet", energy_of(120.0), seed=0)
    spent = dict(zip(PARTS, found.parts_pct, strict=True))
    assert found.kept
    assert sum(found.parts_pct) == pytest.approx(found.total_pct, abs=0.05)
    assert 120.0 < sum(found.parts_s) < 180.0  # a cap makes it longer
    assert spent["baseline"] > spent["confirmation"]  # a second at the default costs more than one near the best cap


@pytest.mark.slow
def test_iterations_that_scatter_by_themselves_are_no_reason_to_go_back_to_the_default_before_each_trial() -> None:
    found = [spend("quadro-rtx-6000/resnet50", energy_of(400.0, jitter=0.03), seed) for seed in (0, 1)]
    assert max(one.parts_s[PARTS.index("baseline")] for one in found) < 10.0


@pytest.mark.slow
def test_by_a_period_no_update_of_the_sensor_is_taken_for_other_work() -> None:
    jobs = replace(energy_of(400.0, progress="period"), metric=Metric(name="edp"))
    found = [spend("quadro-rtx-6000/vgg19", jobs, seed) for seed in (1, 2)]
    assert max(one.parts_s[PARTS.index("baseline")] for one in found) < 35.0


@pytest.mark.slow
def test_a_second_run_waits_at_a_good_cap() -> None:
    again = spend("tesla-v100/resnet50", energy_of(400.0, remembers=True), 0)
    assert again.kept
    assert again.parts_pct[PARTS.index("waiting")] < 0.05


def energy_of(seconds: float, *, jitter: float = 0.01, progress: str = "steps", remembers: bool = False) -> Jobs:
    return Jobs(metric=Metric(name="energy"), seconds=seconds, jitter=jitter, progress=progress, remembers=remembers)
