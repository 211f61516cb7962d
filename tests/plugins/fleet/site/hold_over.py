"""A program: a whole site over pretended nodes, by the carrier of the tests.

python -m tests.plugins.fleet.site.hold_over FOLDER NODE,NODE WATTS
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from autocap.plugins.fleet.config import BudgetConfig
from autocap.plugins.fleet.manager.supervising import supervised
from autocap.plugins.fleet.nodes.channel import Channel, EngineJob
from autocap.plugins.fleet.site.opening import Reached, hold
from autocap.plugins.fleet.site.reach import node_command

CARRIER = str(Path(__file__).parent / "carrier.py")


class FakeReach:
    def __init__(self, folder: str, plan: BudgetConfig) -> None:
        self._folder, self._plan = folder, plan

    def open(self, names: Sequence[str]) -> Channel:
        argv = [sys.executable, CARRIER, self._folder, ",".join(names), "--", *node_command(self._plan)]
        return Channel(argv, job=EngineJob(id="1", nodes=tuple(names)))


def main(folder: str, names: str, watts: str) -> int:
    plan = BudgetConfig(watts=float(watts), out=Path(folder, "record"))
    reached = Reached(names=tuple(names.split(",")), reach=FakeReach(folder, plan))
    return supervised(lambda leash, resumed: hold(plan, reached, leash, resumed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
