"""What runs on a node is ready before it is known which of them that is: a line says it, `NUMBER NODE PIDS…`."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """number, node: as messages have it, and its name. pids: of the job's processes there, as its engine has them."""

    number: int
    node: str
    pids: tuple[int, ...]


def awaited(fd: int) -> Told | None:
    """The first line of our input, no byte beyond it; `None` where it ends before."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(fd, 1)
        if not byte:
            return None
        line += byte
    number, node, *pids = line.decode().split()
    return Told(number=int(number), node=node, pids=tuple(map(int, pids)))
