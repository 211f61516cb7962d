"""What it costs a training process that the kernel counts its backward passes: paired windows, with and without."""

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt
from scipy.stats import trim_mean

from autocap.progress.calls.host import Host
from autocap.progress.calls.target import CallsUnavailable, call_target

_WINDOW_S = 0.5
_READ_S = 0.05  # how often the count is read meanwhile
_SMALL_STEPS, _SMALL_PAIRS = 1000, 60
# Takes as many steps as a line says, of a small or a large network, and prints the median of their wall and processor
# times: what other processes do to single steps is not in it.
_TRAINING = """
import gc, statistics, sys, time, torch
torch.set_num_threads(1); torch.manual_seed(0); gc.disable()
def training(width, batch):
    net = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(3)])
    data, optimiser = torch.ones(batch, width), torch.optim.SGD(net.parameters(), lr=1e-9)
    def step():
        optimiser.zero_grad(); net(data).sum().backward(); optimiser.step()
    return step
steps = {"small": training(4, 1), "large": training(384, 128)}
for line in sys.stdin:
    size, count = line.split()
    taken = []
    for _ in range(int(count)):
        wall, cpu = time.perf_counter(), time.thread_time()
        steps[size]()
        taken.append((time.perf_counter() - wall, time.thread_time() - cpu))
    print(*map(statistics.median, zip(*taken)), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """step_s: wall time of a large step that is not counted. pairs: of windows. wall, processor: its wall and its
    processor time, counted to not counted. call_ns: processor time that a counted call takes longer, by small steps.
    own_ns: the same as the counter measures it at its start, on a function of its own. All but that with the standard
    error. made, missed: calls while they were counted, and those of them that were not."""

    step_s: float
    pairs: int
    wall: tuple[float, float]
    processor: tuple[float, float]
    call_ns: tuple[float, float]
    own_ns: float
    made: int
    missed: int


class _Training:
    """The training process. counted, made: calls, while they are counted."""

    def __init__(self, process: "subprocess.Popen[str]", host: Host) -> None:
        self._process = process
        function = host.function(process.pid)
        if function is None:
            raise CallsUnavailable("the training process has ended, or has not loaded PyTorch")
        self.function, self._host = function, host
        self.counted = self.made = 0

    def window(self, size: str, steps: int, *, is_counted: bool) -> tuple[float, float]:
        """Wall and processor seconds a step, of so many."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        calls = self._host.open(self._process.pid, self.function) if is_counted else None
        self._process.stdin.write(f"{size} {steps}\n")
        self._process.stdin.flush()
        while not select.select([self._process.stdout], [], [], _READ_S)[0]:
            if calls is not None:
                calls.last()
        if calls is not None:
            last = calls.last()
            self.counted += 0 if last is None else last[0]
            self.made += steps
            calls.close()
        wall, cpu = self._process.stdout.readline().split()
        return float(wall), float(cpu)

    def pairs(self, size: str, steps: int, number: int) -> npt.NDArray[np.float64]:
        """Windows with and without counting, in turns whose order changes: shape (number, 2: counted or not, 2: wall or
        processor time), seconds a step."""
        random = Random(0)
        taken = np.empty((number, 2, 2))
        for pair in taken:
            for which in random.sample((0, 1), 2):
                pair[which] = self.window(size, steps, is_counted=which == 0)
        return taken


def measure(seconds: float) -> CallCost:
    """Watch a training process for about that long. Raises CallsUnavailable where the kernel counts no calls."""
    with closing(Host(call_target("calls"))) as host, _process() as process:
        training = _Training(process, host)
        training.window("small", 200, is_counted=True)
        step_s, _ = training.window("large", 50, is_counted=False)
        large = training.pairs("large", max(1, round(_WINDOW_S / step_s)), max(4, round(seconds / (2 * _WINDOW_S))))
        small = training.pairs("small", _SMALL_STEPS, _SMALL_PAIRS)
        walls, processors = (_ratio(large[:, :, which]) for which in (0, 1))
        added_ns = 1e9 * (small[:, 0, 1] - small[:, 1, 1])
        return CallCost(
            step_s=float(np.median(large[:, 1, 0])),
            pairs=len(large),
            wall=walls,
            processor=processors,
            call_ns=_mean(added_ns),
            own_ns=1e9 * training.function.cost_s,
            missed=training.made - training.counted,
            made=training.made,
        )


@contextmanager
def _process() -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", _TRAINING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("small 20\nlarge 20\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


def _ratio(pairs: npt.NDArray[np.float64]) -> tuple[float, float]:
    return _mean(pairs[:, 0] / pairs[:, 1])


def _mean(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Without the tenth at either end, which other processes made; its standard error by resampling."""
    trimmed = [float(trim_mean(drawn, 0.1)) for drawn in np.random.default_rng(0).choice(values, (400, len(values)))]
    return float(trim_mean(values, 0.1)), float(np.std(trimmed))
