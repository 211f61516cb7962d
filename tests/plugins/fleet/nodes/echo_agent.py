"""Speaks as an agent does, and nothing more: answers words, and leaves a file that says how it came to leave.

python echo_agent.py FOLDER [--number N | --spare]
"""

import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from autocap.plugins.fleet.nodes.protocol import (
    VERSION,
    Command,
    CommandKind,
    Done,
    FromAgent,
    Heartbeat,
    HeartbeatReply,
    Hello,
    addressed,
    line_of,
)

SILENCE_S = 2.0


def say(message: FromAgent) -> None:
    os.write(1, line_of(message))


def leave(number: int, why: str) -> NoReturn:
    time.sleep(0.5)  # as putting a limit back takes
    leaving = Path(sys.argv[1]) / f"leaving-{number}"
    leaving.write_text(why)
    leaving.rename(leaving.with_name(f"left-{number}"))  # who sees it sees all of it
    os._exit(0)


def own_number() -> int:
    if "--spare" not in sys.argv:
        return int(sys.argv[sys.argv.index("--number") + 1] if "--number" in sys.argv else os.environ["SLURM_PROCID"])
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1) or leave(-1, "end of input")
    return int(line.split()[0])


def main() -> None:
    number = own_number()
    signal.signal(signal.SIGTERM, lambda *_: leave(number, "told to"))
    node = os.environ.get("SLURMD_NODENAME", os.environ.get("RAY_NODE_ID", ""))
    say(Hello(version=VERSION, autocap_version="", node=node, pid=os.getpid(), boot_id="", clock_id=""))
    held = b""
    while True:
        if not select.select([0], [], [], SILENCE_S)[0]:
            leave(number, "silence")
        data = os.read(0, 1 << 16)
        if not data:
            leave(number, "end of input")
        *lines, held = (held + data).split(b"\n")
        for line in lines:
            message, to = addressed(line)
            if to is not None and number not in to:
                continue
            if isinstance(message, Heartbeat):
                say(HeartbeatReply(number=message.number, heard_s=0.0, said_s=0.0))
            elif isinstance(message, Command):
                say(Done(number=message.number, why="".join(f"{cap:08.1f} " for cap in message.caps_w)))
                if message.what is CommandKind.END:
                    leave(number, "at the end")


if __name__ == "__main__":
    main()
