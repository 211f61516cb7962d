"""A node's manager under a supervisor, as a process of the engine's step."""

import argparse
import json
import os
import sys
from collections.abc import Sequence

from autocap.job.blas_threads import one_thread
from autocap.plugins.fleet.config import BudgetConfig
from autocap.plugins.fleet.manager.supervising import supervised
from autocap.plugins.fleet.nodes.agent.standard_streams import awaited, own_stdout
from autocap.wire.codec import decode


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m autocap.plugins.fleet.multinode.node", description=__doc__)
    parser.add_argument("--number", type=int, default=int(os.environ.get("SLURM_PROCID", "0")))
    parser.add_argument("--spare", action="store_true", help="be ready, and begin once a line says number and node")
    parser.add_argument("--config", metavar="JSON", type=json.loads, required=True, help="of the budget, as encoded")
    given = parser.parse_args(argv)
    number, node = given.number, os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    with one_thread():
        from autocap.plugins.fleet.multinode.node.opening import manage_part
    if given.spare:
        if (told := awaited()) is None:
            return 0
        number, node, _ = told
    config = decode(BudgetConfig, given.config)
    out = own_stdout()
    return supervised(lambda parent_fd, resumed: manage_part(config, number, node, out, parent_fd, resumed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
