"""What it costs a training process that the kernel counts its backward passes.

The process trains without a pause, while counting begins and ends every half second: what is compared is each stretch
with the one after it. Single steps that other processes on the machine disturb are left out by taking medians.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import trim_mean

from autocap.progress.calls.host import Host
from autocap.progress.calls.target import CallsUnavailable, call_target

_STRETCH_S = 0.5
_READ_S = 0.05  # how often the count is read meanwhile
_SMALL_S = 60.0
_SLOWEST_S = 0.1  # in beginning and ending
# For as many seconds as a line says it takes steps of a small or a large network, and gives the time at which each
# began, on the monotonic clock, and its wall and processor time.
_TRAINING = """
import array, gc, sys, time, torch
torch.set_num_threads(1); torch.manual_seed(0); gc.disable()
def training(width, batch):
    net = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(3)])
    data, optimiser = torch.ones(batch, width), torch.optim.SGD(net.parameters(), lr=1e-9)
    def step():
        optimiser.zero_grad(); net(data).sum().backward(); optimiser.step()
    return step
steps = {"small": training(4, 1), "large": training(512, 256)}
for line in sys.stdin:
    size, seconds = line.split()
    step, taken, wall = steps[size], array.array("d"), time.monotonic()
    end = wall + float(seconds)
    while wall < end:
        cpu = time.thread_time()
        step()
        taken.extend((wall, time.monotonic() - wall, time.thread_time() - cpu))
        wall = time.monotonic()
    sys.stdout.buffer.write((len(taken)).to_bytes(8, "little") + taken.tobytes()); sys.stdout.flush()
"""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """step_s: wall time of a large step that is not counted. pairs: of stretches. wall, processor: its wall and its
    processor time, counted to not counted. control: the latter of stretches that are both not counted. call_ns:
    processor time that a counted call takes longer, by small steps. own_ns: the same as the counter measures it at its
    start, on a function of its own. All but that with the standard error."""

    step_s: float
    pairs: int
    wall: tuple[float, float]
    processor: tuple[float, float]
    control: tuple[float, float]
    call_ns: tuple[float, float]
    own_ns: float


class _Training:
    """The training process, and what is counted in it."""

    def __init__(self, process: "subprocess.Popen[bytes]", host: Host) -> None:
        self._process = process
        function = host.function(process.pid)
        if function is None:
            raise CallsUnavailable("the training process has ended, or has not loaded PyTorch")
        self.function, self._host = function, host

    def steps(self, size: str, seconds: float) -> Floats:
        """Shape (n, 3): when each step began, its wall and its processor time, seconds."""
        self._order(size, seconds)
        return self._taken()

    def stretches(self, size: str, seconds: float, *, counting: bool) -> Floats:
        """The medians of each stretch's steps: shape (pairs, 2: counted or not, 2: wall or processor time), seconds."""
        self._order(size, seconds)
        end_s, done = time.monotonic() + seconds - _STRETCH_S - 2 * _SLOWEST_S, []
        while time.monotonic() < end_s:
            done += [self._counted() if counting else self._plain(), self._plain()]
        taken = self._taken()
        pairs = []
        for first, second in zip(done[::2], done[1::2], strict=True):
            inside = [_inside(taken, *one) for one in (first, second)]
            if min(map(len, inside)) >= 3:
                pairs.append([np.median(steps[:, 1:], axis=0) for steps in inside])
        return np.array(pairs)

    def _order(self, size: str, seconds: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{size} {seconds}\n".encode())
        self._process.stdin.flush()

    def _taken(self) -> Floats:
        assert self._process.stdout is not None
        count = int.from_bytes(self._process.stdout.read(8), "little")
        return np.frombuffer(self._process.stdout.read(8 * count)).reshape(-1, 3)

    def _plain(self) -> tuple[float, float]:
        """Between which times nothing was counted."""
        since_s = time.monotonic()
        time.sleep(_STRETCH_S)
        return since_s, time.monotonic()

    def _counted(self) -> tuple[float, float]:
        """Between which times calls were counted, and the count read."""
        calls = self._host.open(self._process.pid, self.function)
        if calls is None:
            raise CallsUnavailable("the training process has ended")
        with closing(calls):
            since_s = time.monotonic()
            while time.monotonic() < since_s + _STRETCH_S:
                time.sleep(_READ_S)
                calls.last()
            return since_s, time.monotonic()


def measure(seconds: float) -> CallCost:
    """Watch a training process for about that long. Raises CallsUnavailable where the kernel counts no calls."""
    with closing(Host(call_target("calls"))) as host, _process() as process:
        training = _Training(process, host)
        step_s = float(np.median(training.steps("large", 2.0)[:, 1]))
        large = training.stretches("large", seconds, counting=True)
        control = training.stretches("large", seconds, counting=False)
        small = training.stretches("small", min(seconds, _SMALL_S), counting=True)
        return CallCost(
            step_s=step_s,
            pairs=len(large),
            wall=_mean(large[:, 0, 0] / large[:, 1, 0]),
            processor=_mean(large[:, 0, 1] / large[:, 1, 1]),
            control=_mean(control[:, 0, 1] / control[:, 1, 1]),
            call_ns=_mean(1e9 * (small[:, 0, 1] - small[:, 1, 1])),
            own_ns=1e9 * training.function.cost_s,
        )


def _inside(steps: Floats, since_s: float, until_s: float) -> Floats:
    """The steps that lie wholly between those times."""
    return steps[(steps[:, 0] >= since_s) & (steps[:, 0] + steps[:, 1] <= until_s)]


@contextmanager
def _process() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", _TRAINING], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"large 1\n")
        process.stdin.flush()
        process.stdout.read(int.from_bytes(process.stdout.read(8), "little") * 8)  # by then PyTorch is loaded
        yield process
    finally:
        process.kill()
        process.communicate()


def _mean(values: Floats) -> tuple[float, float]:
    """Without the tenth at either end, and its standard error by resampling."""
    drawn = np.random.default_rng(0).choice(values, (400, len(values)))
    return float(trim_mean(values, 0.1)), float(np.std(trim_mean(drawn, 0.1, axis=1)))
