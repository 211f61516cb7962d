"""A program: a whole site over pretended nodes, by a carrier that does what srun does.

python -m tests.plugins.fleet.multinode.hold_over hold FOLDER NODE,NODE WATTS
python -m tests.plugins.fleet.multinode.hold_over carry FOLDER NODE,NODE COMMAND…

The latter carries lines as `srun --label --input=all` does, to a node's end on each of some pretended nodes, with the
board of a node in FOLDER/NODE.json. Every second node's end is told which node's it is by a line, as over Ray.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from autocap.plugins.fleet.config import BudgetConfig
from autocap.plugins.fleet.manager.supervising import supervised
from autocap.plugins.fleet.multinode.node_allocator import hold, node_command
from autocap.plugins.fleet.nodes.channel import Channel, EngineJob
from autocap.testing.nvml import environment


def over(folder: str, names: str, watts: str) -> int:
    plan = BudgetConfig(watts=float(watts), out=Path(folder, "record"))

    def reach(some: Sequence[str]) -> Channel:
        argv = [sys.executable, "-m", __spec__.name, "carry", folder, ",".join(some), *node_command(plan)]
        return Channel(argv, job=EngineJob(id="1", nodes=tuple(some)))

    return supervised(lambda parent_fd, resumed: hold(plan, names.split(","), reach, parent_fd, resumed))


def carry(folder: str, names: str, *command: str) -> int:
    ends = []
    for number, name in enumerate(names.split(",")):
        own = {"AUTOCAP_STATE_DIR": f"{folder}/state-{name}"}
        if not (spare := number % 2):
            own |= {"SLURMD_NODENAME": name, "SLURM_PROCID": str(number)}
        env = environment(Path(folder, f"{name}.json"), {**os.environ, **own})
        argv = [*command, *["--spare"] * spare]
        end = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        if spare and end.stdin is not None:
            end.stdin.write(f"{number} {name} \n".encode())
        ends.append(end)
    for number, end in enumerate(ends):
        threading.Thread(target=label, args=(number, end)).start()
    while data := os.read(0, 1 << 16):
        for end in ends:
            if end.poll() is None and end.stdin is not None:
                end.stdin.write(data)
    for end in ends:
        if end.stdin is not None:
            end.stdin.close()
        end.wait()
    return 0


def label(number: int, end: "subprocess.Popen[bytes]") -> None:
    """Each of its lines, in one write; and what srun's task says of one that ended otherwise."""
    for line in end.stdout:
        os.write(1, b"%d: %s" % (number, line))
    if status := end.wait():
        os.write(1, b'%d: {"says":"lost","with":{"why":"its agent ended with status %d"}}\n' % (number, status))


if __name__ == "__main__":
    mode, *words = sys.argv[1:]
    sys.exit({"hold": over, "carry": carry}[mode](*words))
