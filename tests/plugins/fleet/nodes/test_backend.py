"""Whole sessions whose devices are on other nodes, and what is counted there and here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autocap.plugins.fleet.nodes.backend import ClusterCounter, of_agents
from autocap.records import SensorInfo

SENSOR = SensorInfo(update_s=0.1, window_s=0.0, settle_s=0.2)


def session(tmp_path: Path, mode: str, *words: str) -> tuple[dict[str, Any], list[str], str]:
    """result.json, what the agents did, and what was printed."""
    out = tmp_path / "run"
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "AUTOCAP_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.plugins.fleet.nodes.live_run", mode, str(out), *words],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stories = [line.removeprefix("story ") for line in done.stdout.splitlines() if line.startswith(("story", "begin"))]
    return json.loads((out / "result.json").read_text()), stories, done.stderr


def check(result: dict[str, Any], stories: list[str]) -> None:
    gpus = result["device"]["gpus"]
    assert [(gpu["node"], gpu["index"]) for gpu in gpus] == [("node1", 0), ("node1", 1), ("node2", 0), ("node2", 1)]
    assert all(gpu["restored"] and gpu["cap_final_w"] == gpu["cap_original_w"] == 250.0 for gpu in gpus)
    assert len(stories) == 2
    for story in stories:
        _, first, *between, last = story.split()
        assert (first, last) == ("rehearse", "end")
        assert "restore" in between


@pytest.mark.slow
def test_a_command_on_several_nodes(tmp_path: Path) -> None:
    result, stories, said = session(tmp_path, "run", "--", "sleep", "8")
    check(result, stories)
    assert (result["mode"], result["ended_because"]) == ("run", "the job ended")
    assert result["progress"]["kind"] == "steps"
    assert "Nodes" in said
    assert "node2" in said
    chosen = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    chosen = [event for event in chosen if event["event"] == "actuator_chosen"]
    assert [(event["name"], event["node"]) for event in chosen] == [("direct", "node1"), ("direct", "node2")]


@pytest.mark.slow
def test_a_job_that_runs_already_on_several_nodes(tmp_path: Path) -> None:
    result, stories, _ = session(tmp_path, "attach", "6")
    gpus = result["device"]["gpus"]
    assert [gpu["node"] for gpu in gpus] == ["node1", "node1", "node2", "node2"]
    assert all(gpu["restored"] for gpu in gpus)
    assert (result["mode"], result["command"], result["ended_because"]) == ("attach", ["slurm job 7"], "the job ended")
    assert len(stories) == 2


@pytest.mark.slow
def test_a_job_whose_nodes_are_known_once_it_runs(tmp_path: Path) -> None:
    given = tmp_path / "given"
    script = f'printf %s "$RAY_JOB_CONFIG_JSON_ENV_VAR" >{given}; exec sleep 8'
    result, [begin, *stories], _ = session(tmp_path, "ray", "--", "sh", "-c", script)
    check(result, stories)
    assert result["progress"]["kind"] == "steps"
    workers = json.loads(given.read_text())["runtime_env"]["env_vars"]
    assert begin == f"begin ray 0500 {workers['AUTOCAP_STEP_MAP']}"
    assert workers["PYTHONPATH"].endswith(":${PYTHONPATH}")


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "progress", "has_map"),
    [
        ("auto", True, "auto", "steps", True),
        ("steps", True, "steps", "steps", True),
        ("auto", False, "auto", "calls", False),
        ("calls", True, "calls", "calls", False),
        ("calls:libcuda.so.1:cuLaunchKernel", False, "calls:libcuda.so.1:cuLaunchKernel", "calls", False),
        ("period", True, "none", "period", False),
        ("speed", False, "none", "speed", False),
        ("none", True, "none", None, False),
    ],
)
def test_each_kind_is_counted_in_one_place(
    kind: str, ours: bool, theirs: str, progress: str | None, has_map: bool
) -> None:
    needs: list[bool] = []
    with ClusterCounter(kind, ours=ours, step_map_fd=None, tell=needs.append) as counter:
        counter.follow(None)
        assert of_agents(kind, None) == theirs
        assert of_agents(kind, 3) == "none"
        assert (counter.step_map is not None) == has_map
        environment = counter.environment({})
        assert ("AUTOCAP_STEP_MAP" in environment) == has_map
        assert not has_map or environment["AUTOCAP_STEP_MAP"] == counter.step_map
        assert counter.read(0.0, needed=False) is None
        assert needs == [False]
        if progress is not None:
            assert counter.progress(SENSOR).kind == progress


def test_what_the_output_counts_no_agent_counts() -> None:
    assert of_agents("regex:step", None) == "none"
