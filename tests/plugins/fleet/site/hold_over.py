"""A program: a whole site over pretended nodes, by the carrier of the tests.

python -m tests.plugins.fleet.site.hold_over FOLDER NODE,NODE WATTS
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from autocap.plugins.fleet.config import BudgetConfig
from autocap.plugins.fleet.manager.supervising import supervised
from autocap.plugins.fleet.nodes.channel import Channel, EngineJob
from autocap.plugins.fleet.site.site import hold, node_command

CARRIER = str(Path(__file__).parent / "carrier.py")


def main(folder: str, names: str, watts: str) -> int:
    plan = BudgetConfig(watts=float(watts), out=Path(folder, "record"))

    def reach(some: Sequence[str]) -> Channel:
        argv = [sys.executable, CARRIER, folder, ",".join(some), "--", *node_command(plan)]
        return Channel(argv, job=EngineJob(id="1", nodes=tuple(some)))

    return supervised(lambda leash, resumed: hold(plan, names.split(","), reach, leash, resumed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
