"""The lock-step job on Ray: `python -m bench.cluster.ray_job`. The driver puts a rank, an actor, on each node."""

import argparse
import json
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from bench.cluster.job import Done, add_options, play


class Rank:
    """Of the job, on the node whose environment its worker has."""

    def play(self, iterations: int, job: str) -> Done:
        return play(iterations, job)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster.ray_job", description=__doc__)
    add_options(parser)
    args = parser.parse_args(argv)
    ray: Any = import_module("ray")  # half of it has no types
    on: Any = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    ray.init(log_to_driver=False)
    job, rank = uuid.uuid4().hex, ray.remote(num_cpus=1)(Rank)
    ranks = [
        rank.options(scheduling_strategy=on(node["NodeID"], soft=False)).remote()
        for node in sorted(ray.nodes(), key=lambda node: str(node["NodeName"]))
        if node["Alive"]
    ]
    for done in ray.get([one.play.remote(args.iterations, job) for one in ranks]):
        print(json.dumps(asdict(done)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
