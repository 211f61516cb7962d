"""A node's manager under a supervisor, as a process of the engine's step."""

import argparse
import os
import sys
from collections.abc import Sequence

from autocap.config import ACTUATOR, NODE_POWER, values
from autocap.job.blas_threads import one_thread
from autocap.plugins.fleet.manager.supervising import supervised
from autocap.plugins.fleet.nodes.agent.spare import awaited


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m autocap.plugins.fleet.site.node", description=__doc__)
    parser.add_argument("--number", type=int, default=int(os.environ.get("SLURM_PROCID", "0")))
    parser.add_argument("--spare", action="store_true", help="be ready, and begin once a line says number and node")
    parser.add_argument("--gpus", type=values.gpu_list)
    parser.add_argument("--floor", type=values.positive("watts"))
    parser.add_argument("--actuator", type=values.actuator, default=ACTUATOR)
    parser.add_argument("--node-power", type=values.node_power, default=NODE_POWER)
    parser.add_argument("--group", type=values.word)
    given = parser.parse_args(argv)
    number, node = given.number, os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    with one_thread():
        from autocap.plugins.fleet.manager.plan import BudgetPlan
        from autocap.plugins.fleet.site.node.opening import manage_part
    if given.spare:
        if (told := awaited(sys.stdin.fileno())) is None:
            return 0
        number, node = told.number, told.node
    plan = BudgetPlan(
        watts=None,
        gpus=given.gpus,
        actuator=given.actuator,
        node_power=given.node_power,
        floor_w=given.floor,
        group=given.group,
    )
    out = os.dup(sys.stdout.fileno())  # for lines of the protocol alone: whatever else is printed goes elsewhere
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return supervised(lambda leash, resumed: manage_part(plan, number, node, out, leash, resumed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
