"""`python -m bench.overhead.helper_direct STATE_DIR UUID`: sets a cap as a session of root's does, for each
line on its stdin that holds one, in the environment of an emulated machine; prints the milliseconds that it took."""

import os
import select
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from autocap.devices.nvml.library import open_library
from autocap.devices.nvml.limits import NvmlLimits
from autocap.limits import Guardian
from autocap.records import GpuInfo


def main(argv: Sequence[str]) -> None:
    state_dir, uuid = Path(argv[0]), argv[1]
    with open_library() as library:
        gpu = next(one for one in library.inventory() if one.uuid == uuid)
        assert gpu.cap_range is not None
        info = GpuInfo(index=0, uuid=uuid, name=gpu.name, cap_range=gpu.cap_range)
        limits = NvmlLimits(library, alone=True)
        with Guardian(kind="nvml", gpus=[info], limits=limits, job=None, state_dir=state_dir) as guardian:
            print("ready", flush=True)
            while True:
                ready, _, _ = select.select([sys.stdin], [], [], 0.4)
                if not ready:
                    guardian.beat()
                    continue
                line = os.read(0, 100)  # one line, as the next is only written once this is answered
                if not line:
                    return
                began_s = time.perf_counter()
                guardian.set_caps([float(line)])
                print(1000 * (time.perf_counter() - began_s), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
