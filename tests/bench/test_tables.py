"""`python -m bench tables`: the published rows, and the sweep's core on the simulated device."""

import pytest

from autocap.devices.model import profiles
from bench.__main__ import main as bench
from bench.simulation.sweep import Command, sweep
from bench.tables import command as tables
from bench.tables.fit_profiles import read_tables


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
