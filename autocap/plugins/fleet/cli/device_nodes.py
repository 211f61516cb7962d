"""`autocap devices --nodes`: on each node a process of ours says what `autocap devices` finds there.

`python -m autocap.plugins.fleet.cli.device_nodes` is that process.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

from autocap.cli.device_report import DeviceReport, here, report_of
from autocap.errors import EngineUnavailable
from autocap.plugins.fleet.nodes.agent.standard_streams import awaited, own_stdout
from autocap.plugins.fleet.nodes.protocol import Heartbeat, Listed, Lost, line_of

if TYPE_CHECKING:
    from autocap.plugins.fleet.nodes.agent_pool import Channel

_LISTER = (sys.executable, "-P", "-m", "autocap.plugins.fleet.cli.device_nodes")
_WITHIN_S = 60.0  # Ray's actors take seconds to start, and so do sensors to be watched
_LOOK_S = 0.1


def gathered(where: str, job: str | None) -> dict[str, DeviceReport | str]:
    """By the nodes' names what there is, or why that is not known. where, job: as --nodes and --job have them.

    Raises UsageError and EngineUnavailable, as a `Transport` does.
    """
    from autocap.plugins.fleet.nodes.transport import reached_by

    transport, address = reached_by(where)
    with closing(transport.carrier(address, job, driver=None, agent=_LISTER).open()) as channel:
        return heard(channel, time.sleep, time.monotonic)


def heard(
    channel: "Channel", pause: Callable[[float], object], now_s: Callable[[], float]
) -> dict[str, DeviceReport | str]:
    """What all nodes have said, or why they have not within a minute. Raises EngineUnavailable where it is not even
    known in that time which nodes there are."""
    end_s, found = now_s() + _WITHIN_S, dict[int, DeviceReport | str]()
    while (channel.job is None or len(found) < len(channel.job.nodes)) and now_s() < end_s:
        channel.send(Heartbeat(number=1, interval_s=1.0, counted=False))  # Ray's actors only answer
        for number, message in channel.receive():
            match message:
                case Listed(devices=devices):
                    found[number] = _report(devices)
                case Lost(why=why):
                    found.setdefault(number, why)
        pause(_LOOK_S)
    if channel.job is None:
        raise EngineUnavailable(f"the nodes are not known after {_WITHIN_S:g} s; -v shows what was heard")
    missing = f"nothing was heard of it within {_WITHIN_S:g} s"
    return {name: found.get(number, missing) for number, name in enumerate(channel.job.nodes)}


def _report(devices: str) -> DeviceReport | str:
    try:
        return report_of(json.loads(devices))
    except (ValueError, RecursionError) as error:
        return f"it said what autocap here does not say; is autocap the same there? ({error})"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m autocap.plugins.fleet.cli.device_nodes", description=__doc__)
    parser.add_argument("--spare", action="store_true", help="begin once a line has come")
    if parser.parse_args(argv).spare and awaited() is None:
        return 0
    with os.fdopen(own_stdout(), "wb") as lines:
        lines.write(line_of(Listed(devices=json.dumps(asdict(here())))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
