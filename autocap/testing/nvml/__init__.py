"""An emulated NVML library beneath the real pynvml: its functions, structures, versions and error codes are the real
ones, what they return is simulated.

In one process, in virtual time (tests):

    clock = VirtualClock()
    with emulated(MemoryBoard(machine("quadro-rtx-6000/resnet50", gpus=2)), clock):
        with open_library(**times(clock)) as library: ...

Between processes, in real time: write the machine to a file, name it in the environment, and put `SHIM` first on
PYTHONPATH (`environment` does both); every process that imports pynvml then meets the same GPUs, and
`python -m autocap.testing.nvml.player` plays the job on them.
"""

from autocap.testing.nvml.board import FileBoard, MemoryBoard
from autocap.testing.nvml.install import CARDS_VARIABLE, SHIM, STATE_VARIABLE, emulated, environment, plain, times
from autocap.testing.nvml.machine import (
    Card,
    Change,
    Episode,
    Fault,
    Limits,
    Machine,
    Steps,
    Trouble,
    Way,
    again,
    machine,
)

__all__ = [
    "CARDS_VARIABLE",
    "SHIM",
    "STATE_VARIABLE",
    "Card",
    "Change",
    "Episode",
    "Fault",
    "FileBoard",
    "Limits",
    "Machine",
    "MemoryBoard",
    "Steps",
    "Trouble",
    "Way",
    "again",
    "emulated",
    "environment",
    "machine",
    "plain",
    "times",
]
