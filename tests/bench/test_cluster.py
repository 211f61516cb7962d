"""Pretended clusters: boards that are one machine together, what judges a job on them, and Slurm itself where it is."""

import gzip
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.metrics import Metric
from autocap.testing.nvml import FileBoard
from autocap.testing.nvml.board import requested
from autocap.testing.nvml.physics import Physics
from bench.cluster import deaths, layout, ray_nodes, slurm, up
from bench.cluster.command import main
from bench.cluster.job import times_of
from bench.cluster.jobs import Counted, Row, complaints, counted, oracle
from bench.cluster.layout import Cluster, ClusterError, found

PROFILE = "quadro-rtx-6000/alexnet"
START_S = 1.0


def made(folder: Path, nodes: int) -> list[FileBoard]:
    whole = up.whole_machine(PROFILE, cards=4, spread=0.03, seed=3)
    return up.create([folder / f"{nodes}-{number}.json" for number in range(nodes)], whole)


def begin(board: FileBoard, job: str = "a") -> None:
    board.update(lambda state: replace(state, start_s=START_S, job=job))


def ends_s(board: FileBoard, until_s: float = 30.0) -> tuple[float, ...]:
    clock = VirtualClock()
    clock.wait_until(until_s)
    physics = Physics(clock)
    physics.sync(board.whole()[0])
    return physics.ends_s()


@pytest.mark.slow
def test_nodes_are_one_machine_to_their_job(tmp_path) -> None:
    (alone,), several = made(tmp_path, 1), made(tmp_path, 2)
    for board in (alone, *several):
        begin(board)
    # The same card is limited: the fourth of all, the second of the second node.
    alone.update(lambda state: requested(state, 3, 120_000, 10.0))
    several[1].update(lambda state: requested(state, 1, 120_000, 10.0))
    assert ends_s(several[0]) == ends_s(several[1]) == ends_s(alone)
    assert several[1].whole()[1] == 2
    lengths = [after - before for before, after in zip(ends_s(alone), ends_s(alone)[1:], strict=False)]
    assert sum(lengths[-20:]) > 1.1 * sum(lengths[:20])  # all wait for that one


def test_a_job_begins_once_it_has_come_to_every_node(tmp_path) -> None:
    first, second = made(tmp_path, 2)
    begin(first)
    assert first.whole()[0].start_s is None
    begin(second, job="of another day")
    assert first.whole()[0].start_s is None
    begin(second)
    assert first.whole()[0].start_s == second.whole()[0].start_s == START_S


def test_changes_that_come_later_are_taken_in_as_if_they_had_been_known(tmp_path) -> None:
    first, second = made(tmp_path, 2)
    begin(first)
    begin(second)
    clock = VirtualClock()
    physics = Physics(clock)
    for number in range(60):
        clock.wait_until(0.5 * number)
        if number == 20:
            second.update(lambda state: requested(state, 0, 130_000, 10.012))
        if number == 30:
            first.update(lambda state: requested(state, 1, 150_000, 15.012))
        physics.sync(first.whole()[0])
        physics.steps()
    clock.wait_until(30.0)
    assert physics.ends_s() == pytest.approx(ends_s(second), abs=1e-9)


@pytest.mark.slow
def test_the_oracle_finds_no_better_cap_than_its_best() -> None:
    judge = oracle(PROFILE, cards=4, spread=0.03, seed=2, metric=Metric(name="energy"))
    (best_w, *_) = judge.best.setting
    assert judge.regret_pct(best_w) == 0
    assert min(judge.regret_pct(cap_w) for cap_w in (best_w - 10, best_w - 5, best_w + 5, best_w + 10)) > 0
    at_best = judge.job_regret_pct(period_s=judge.best.period_s, energy_j=judge.best.energy_per_iteration_j)
    assert at_best == pytest.approx(0)
    assert judge.job_regret_pct(period_s=judge.found.period_s, energy_j=judge.found.energy_per_iteration_j) > 10


@pytest.mark.parametrize(("lost", "off_s"), [(0, 0.0), (1, 0.2)])
def test_a_step_that_was_lost_is_seen_in_the_times_of_the_counts(tmp_path, lost, off_s) -> None:
    """Iterations of 1 s, then of 1.5 s; from the tenth on some are lost. Ranks are late by up to 0.1 s."""
    ends = [float(number) for number in range(1, 11)] + [10 + 1.5 * number for number in range(1, 11)]
    places = [tmp_path / "node1.json", tmp_path / "node2.json"]
    for place, late_s in zip(places, (0.0, 0.1), strict=True):
        times_of(place).write_text("".join(f"{end + late_s}\n" for end in ends))
    lines = ["t_s,steps,step_t_s"]
    for number, end in enumerate(ends, 1):
        lines.append(f"{end + 100.2},{number - lost * (number > 10)},{end + 100.1}")
    with gzip.open(tmp_path / "samples.csv.gz", "wt") as file:
        file.write("\n".join(lines))
    result = {"states": [{"name": "BASELINE", "start_s": 103.2}], "totals": {"iterations": 17.0 - lost}}
    found = counted(tmp_path, result, places)
    assert found.total == found.seen
    assert (found.off_s == pytest.approx(0, abs=1e-6)) if off_s == 0 else (found.off_s > off_s)


def test_boards_in_the_place_of_others_have_their_time(tmp_path: Path) -> None:
    origins_s = {board.read().origin_s for _ in range(2) for board in made(tmp_path, 2)}
    assert len(origins_s) == 1


def test_what_is_not_as_asked_is_said() -> None:
    good = Row(
        where="one node", seed=1, kept_w=115, best_w=115, kept_pct=0.0, job_pct=1.4, ranks=(2500,),
        counted=Counted(total=2400, seen=2400, off_s=0.001), took_s=336.0, after_s=1.0,
    )  # fmt: skip
    slurm_row = replace(good, where="slurm", job_pct=1.8, ranks=(2500,) * 4)
    assert complaints([good, slurm_row]) == []
    assert "behind" in " ".join(complaints([good, replace(slurm_row, job_pct=2.0)]))
    assert "within" in " ".join(complaints([good, replace(slurm_row, kept_pct=0.6)]))
    lost = replace(slurm_row, counted=Counted(total=2399, seen=2400, off_s=0.001))
    assert "exactly" in " ".join(complaints([good, lost]))


@pytest.mark.parametrize(("engine", "package"), [("slurm", "slurm-client"), ("ray", "ray>=2.60")])
def test_what_is_not_installed_is_named(engine, package, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("shutil.which", lambda *args, **kwargs: None)
    monkeypatch.setattr(ray_nodes, "find_spec", lambda name: None)
    assert main(["up", "--engine", engine, "--dir", str(tmp_path / "c")]) == 1
    assert package in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_a_folder_without_a_cluster_and_one_too_deep_for_its_sockets_are_refused(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(slurm, "missing", lambda: None)
    assert main(["down", "--dir", str(tmp_path)]) == 1
    assert "there is no cluster" in capsys.readouterr().err
    assert main(["up", "--dir", str(tmp_path / ("deep" * 12))]) == 1
    assert "bytes in its name" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["helper", "network", "raylet"])
def test_a_death_for_which_the_cluster_is_not_made_is_refused(kind: str, capsys) -> None:
    with pytest.raises(SystemExit):
        deaths.main(["--kinds", kind])
    there = capsys.readouterr().err.partition("choose of ")[2].split(", ")
    assert len(there) == 13  # and these two


def test_what_is_not_true_is_complained_of() -> None:
    said = ["autocap: warning: tuning ended, the job goes on: node2: nothing was heard from it for 60 s"]
    assert deaths._untrue(deaths.KINDS["agent"], said) is None
    assert deaths._untrue(deaths.KINDS["hiccup"], said) == f"it is not true that: {said[0]}"
    ended = [*said, "autocap: warning: tuning ended, the job goes on: node1: a signal has ended its agent"]
    assert deaths._untrue(deaths.KINDS["timelimit"], ended) == f"it is not true that: {ended[1]}"


@pytest.mark.skipif(slurm.missing() is not None, reason="Slurm is not installed here")
class TestUnderSlurm:
    @pytest.mark.slow
    def test_a_job_runs_on_all_nodes_and_nothing_is_left_of_them(self) -> None:
        with tempfile.TemporaryDirectory(prefix="act-") as folder:
            place = Path(folder, "c")
            own = [] if slurm.lacks_for_networks() else ["--networks"]
            assert main(["up", "--nodes", "2", "--profile", PROFILE, "--dir", str(place), *own]) == 0
            cluster = found(place)
            try:
                ran = subprocess.run(
                    ["srun", "-N2", "-n2", sys.executable, "-m", "bench.cluster.job", "--iterations", "5"],
                    env=up.environment(cluster),
                    capture_output=True,
                    text=True,
                    timeout=120,
                )
            finally:
                assert main(["down", "--dir", str(place)]) == 0
            done = [json.loads(line) for line in ran.stdout.splitlines()]
            assert sorted((one["node"], one["steps"]) for one in done) == [("node1", 5), ("node2", 5)], ran.stderr
            assert layout.of_cluster(cluster) == []
            assert not place.exists()
            assert not list(Path("/sys/class/net").glob(f"ac*{cluster.port}*"))
            assert not list(Path("/run/netns").glob(f"ac{cluster.port}-*"))

    @pytest.mark.slow
    def test_one_that_does_not_start_leaves_nothing_running(self, monkeypatch) -> None:
        with tempfile.TemporaryDirectory(prefix="act-") as folder:
            size = {"nodes": 2, "gpus": 1, "profile": PROFILE, "spread": 0.0}
            cluster = Cluster(engine="slurm", port=1, folder=str(Path(folder, "c")), **size)
            monkeypatch.setattr(slurm, "_READY_S", 1.0)
            monkeypatch.setattr(slurm, "_idle", lambda cluster: 0)
            with pytest.raises(ClusterError, match="was not ready within 1 s"):
                up.start(cluster)
            assert layout.of_cluster(cluster) == []
            up.stop(cluster)
