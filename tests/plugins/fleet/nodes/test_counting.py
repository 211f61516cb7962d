"""What is counted on the nodes, and what here."""

import pytest

from autocap.plugins.fleet.nodes.place import ClusterCounter, of_agents
from autocap.records import SensorInfo

SENSOR = SensorInfo(update_s=0.1, window_s=0.0, settle_s=0.2)


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
