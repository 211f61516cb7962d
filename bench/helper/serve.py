"""The helper, as its command serves, but within other bounds: `python -m bench.helper.serve STATE_DIR [POLICY]`.

Within the usual bounds most of what a fuzzer says would only be told that it comes too fast.
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from autocap.cli.logging_setup import log_as_service
from autocap.devices import lendable
from autocap.limits import Guardian
from autocap.limits.fork_server import ForkedWatchdogs
from autocap.limits.helper.policy import DROP_INS, PolicyFiles
from autocap.limits.helper.server import Server, ended_by_signals
from autocap.limits.helper.service_state import ServiceState
from autocap.wire.admission import Bounds, Rate
from autocap.wire.listening import handed_over

_ANY = Rate(burst=1e9, per_s=1e9)
_OPEN = Bounds(
    connects=_ANY,
    messages=_ANY,
    looks=Rate(burst=100, per_s=50),
    lends=Rate(burst=8, per_s=3),
    sets=Rate(burst=100, per_s=50),
)


def main(argv: Sequence[str]) -> int:
    state_dir, policy = Path(argv[0]), Path(argv[1]) if len(argv) > 1 else None
    log_as_service()
    listener = handed_over()
    if listener is None:
        print("bench.helper.serve: no socket was handed over", file=sys.stderr)
        return 1
    inventories = lendable()
    with ForkedWatchdogs(tuple(inventories)) as watchdogs:
        service_state = ServiceState(
            inventories=inventories,
            policy=PolicyFiles(policy, state_dir / DROP_INS, os.getuid()),
            state_dir=state_dir,
            bounds=_OPEN,
            new_guardian=partial(Guardian, start_watch=watchdogs.start),
        )
        server = Server(service_state, listener, state_dir)
        with ended_by_signals(server):
            server.serve()
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
