"""On which nodes a Ray job is, from what its actors were given."""

from importlib import import_module
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
CPUS = {"CPU": 8.0}
GPUS = {"CPU": 8.0, "GPU": 4.0}


@pytest.mark.parametrize(
    ("actors", "offers", "nodes", "is_everywhere"),
    [
        ([("a", {"CPU": 1.0}), ("b", {"CPU": 1.0})], {"a": CPUS, "b": CPUS}, ["a", "b"], True),
        ([("a", {"CPU": 1.0})], {"a": CPUS, "b": CPUS}, ["a"], False),  # another may come
        ([("a", {"CPU": 1.0})], {"a": CPUS, "head": {}}, ["a"], True),
        ([("a", {"GPU": 2.0}), ("b", {"GPU": 1.0}), ("b", {"CPU": 1.0})], {"a": GPUS, "b": GPUS}, ["a", "b"], True),
        ([("b", {"GPU": 1.0}), ("c", {"CPU": 1.0})], {"b": GPUS, "c": CPUS}, ["b"], True),
        ([("b", {"CPU": 1.0})], {"b": GPUS}, ["b"], False),  # those with GPUs are yet to come
        ([("a", {})], {"a": CPUS}, ["a"], False),  # as a trainer's coordinator, before its workers
    ],
)
def test_nodes_are_those_that_were_given_gpus_or_else_cpus(actors, offers, nodes, is_everywhere) -> None:
    assert import_module("autocap.plugins.fleet.nodes.ray_jobs").where(actors, offers) == (nodes, is_everywhere)
