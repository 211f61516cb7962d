"""`autocap sweep --node-power` as a user meets it: real processes and a meter of the user's."""

import json
from pathlib import Path

import pytest

from autocap.testing.nvml import machine
from tests.cli.test_cli import Cli, Here, require_said
from tests.cli.test_gpu_jobs import Node
from tests.cli.test_sweep_command import EMULATED, NAP, SWEEP, naps, ran, rows

__all__ = ["naps"]  # the fixture

METER = "echo $$ >> meters; while [ ! -e dead ]; do cat watts; sleep 0.05; done"
BY_METER = ("--node-power", f"command:{METER}")


@pytest.fixture
def metered(naps: Cli) -> Cli:
    (naps.folder / "watts").write_text("700.5\n")
    return naps


@pytest.mark.slow
def test_one_meter_reads_the_node_through_the_whole_sweep(metered: Cli) -> None:
    options = ("--caps", "200", "--repeats", "2", "--no-warm-up", "--cool-down", "0.6", "--standard-idle", "300")
    done = metered(*SWEEP, *BY_METER, *options, "--json", "--", *NAP)
    assert done.returncode == 0, done.stderr
    (meter,) = (metered.folder / "meters").read_text().split()
    assert not Path("/proc", meter).exists()
    for row in rows(metered):
        assert float(row["power_w"]) == pytest.approx(700.5, rel=1e-3)
        assert float(row["energy_j"]) == pytest.approx(700.5 * float(row["time_s"]), rel=1e-3)
        assert 19.9 < float(row["gpus_power_w"]) < 40.0
    (panel,) = json.loads(done.stdout.splitlines()[-1])["panels"]
    node, baseline = panel["node"], panel["baseline"]["measurement"]
    assert (node["idle_w"], node["idle_source"], node["idle_seen_s"]) == (
        700.5,
        "estimated",
        pytest.approx(1.8, abs=0.4),
    )
    standard_j = baseline["energy_per_iteration_j"] - 400.5 * baseline["period_s"]
    assert node["standard"][0]["energy_per_iteration_j"] == pytest.approx(standard_j)
    assert [one["metric"] for one in panel["best_by_metric_gpu"]] == [one["metric"] for one in panel["best_by_metric"]]
    assert done.stderr.count("energy is the whole node's, as its meter reads it: command:") == 1
    assert "The GPUs' part of " in done.stderr
    page = (metered.folder / "run" / "report.html").read_text()
    assert "t rest the node draws 700 W" in page.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.slow
def test_a_meter_that_dies_costs_its_run_and_ends_the_sweep_which_goes_on_with_that_source_alone(metered, here) -> None:
    (metered.folder / "watts").write_text("5\n")  # an idle GPU draws 20
    (metered.folder / "end").write_text("if [ $(wc -l < ran) = 2 ]; then touch dead; sleep 0.2; fi")
    options = ("--caps", "200", "--repeats", "2", "--no-warm-up", "--", *NAP)
    first = here(*SWEEP, *BY_METER, *options)
    (metered.folder / "dead").unlink()
    other = here(*SWEEP, "--node-power", "500", *options)
    again = here(*SWEEP, *BY_METER, *options)
    assert (first.returncode, other.returncode, again.returncode) == (1, 1, 0), again.stderr
    assert "has ended with status 0; until it tells the node's power again nothing is measured" in first.stderr
    assert "failed 2 times: the node's power was not read while it ran; let it run for longer" in first.stderr
    assert first.stderr.count("autocap: warning: the node's meter reads 5 W while the GPUs alone draw 2") == 1
    assert "runs left: 2" in first.stderr
    assert f"with another plan: node_power was command:{METER} and is 500; give its options to go on" in other.stderr
    assert len(ran(metered)) == 2 + 2 + 2
    assert sorted(row["repeats"] for row in rows(metered)) == ["1", "2"]
    assert "the node's power was not known for 0." in again.stderr


@pytest.mark.slow
def test_a_meter_that_gives_nothing_is_said_before_the_first_run(cli: Cli, here: Here) -> None:
    done = here("sweep", *EMULATED, "--node-power", "command:exit 4", "--", "touch", "started")
    require_said(done, 1, "it ended with status 4 before its first reading")
    assert not (cli.folder / "started").exists()
    assert not (cli.folder / "autocap-runs").exists()


@pytest.mark.slow
def test_the_gpus_are_read_between_the_runs_where_the_source_is_of_the_rest_alone(tmp_path: Path) -> None:
    node = Node(tmp_path, machine("quadro-rtx-6000/resnet50", gpus=1))
    try:
        done = node(
            "sweep", "--node-power", "300", "--observe", "--repeats", "2", "--no-warm-up", "--cool-down", "1.2",
            "--out", "run", "--json", "--", "sleep", "0.4",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (panel,) = json.loads(done.stdout.splitlines()[-1])["panels"]
        assert panel["node"]["idle_w"] == pytest.approx(320.0, abs=3.0)
        # 20 W of it are the GPU's; a busy machine reads it late, which shows in a run of 0.4 s.
        assert panel["baseline"]["measurement"]["power_w"] == pytest.approx(320.0, abs=8.0)
        assert "energy is the whole node's: the GPUs' and beside it 300 W" in done.stderr
    finally:
        node.end()
