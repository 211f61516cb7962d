"""`python -m bench.overhead.helper_direct STATE_DIR UUID SETS SECONDS CAP CAP`: sets caps as a session of root's does.

One every so many seconds, in the environment of an emulated machine; prints the milliseconds of each.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from autocap.devices.nvml import NvmlLimits, open_library
from autocap.guardian import Guardian
from autocap.records import GpuInfo


def main(argv: Sequence[str]) -> None:
    state_dir, uuid, sets, between_s = Path(argv[0]), argv[1], int(argv[2]), float(argv[3])
    caps_w = [float(word) for word in argv[4:]]
    with open_library() as library:
        gpu = next(one for one in library.inventory() if one.uuid == uuid)
        assert gpu.cap_range is not None
        info = GpuInfo(index=0, uuid=uuid, name=gpu.name, cap_range=gpu.cap_range)
        limits = NvmlLimits(library, alone=True)
        with Guardian(kind="nvml", gpus=[info], limits=limits, job=None, state_dir=state_dir) as guardian:
            for number in range(sets):
                began_s = time.perf_counter()
                guardian.set_caps([caps_w[number % len(caps_w)]])
                print(1000 * (time.perf_counter() - began_s), flush=True)
                guardian.beat()
                time.sleep(between_s)


if __name__ == "__main__":
    main(sys.argv[1:])
