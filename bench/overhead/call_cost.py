"""What it costs a training process that the kernel counts its backward passes.

How fast a processor is wanders by a percent from one twentieth of a second to the next, whatever one does. So two equal
processes on the same processor take their steps in turn, and each step of the one is compared with that of the other
right after it, while the calls of one of them are counted. What differs between the two themselves, and between the
first and the second in turn, cancels, as then the other one's are counted, in an order by chance.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autocap.progress.calls.host import Host
from autocap.progress.calls.target import CallsUnavailable, call_target

_STRETCH_S = 1.0
_READ_S = 0.25  # how often the count is read meanwhile
_FEWEST_STEPS, _FEWEST_COUPLES = 10, 5
_CONTROLS = 1 / 3  # of the comparisons: nothing is counted
_TRIMMED = 0.1  # of the comparisons, at either end
_SMALL_S = 60.0
_SLOWEST_S = 0.5  # in beginning and ending
# For as many seconds as a line says it takes steps of a small or a large network, each when it is its turn, which a
# byte says, and gives the time at which each began, on the monotonic clock, and its wall and processor time.
_TRAINING = """
import array, gc, os, select, sys, time, torch
torch.set_num_threads(1); torch.manual_seed(0); gc.disable()
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
mine, others = map(int, sys.argv[1:])
def training(width, batch, depth):
    net = torch.nn.Linear(width, width)
    data, optimiser = torch.ones(batch, width), torch.optim.SGD(net.parameters(), lr=1e-9)
    def step():
        optimiser.zero_grad(); out = data
        for _ in range(depth): out = torch.relu(net(out))
        out.sum().backward(); optimiser.step()
    return step
steps = {"small": training(4, 1, 3), "large": training(96, 64, 200)}  # within a core's own caches
for line in sys.stdin:
    size, seconds = line.split()
    step, taken = steps[size], array.array("d")
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        if not select.select([mine], [], [], 0.2)[0]:
            continue
        os.read(mine, 1)
        wall, cpu = time.monotonic(), time.thread_time()
        step()
        taken.extend((wall, time.monotonic() - wall, time.thread_time() - cpu))
        os.write(others, b".")
    sys.stdout.buffer.write((len(taken)).to_bytes(8, "little") + taken.tobytes()); sys.stdout.flush()
"""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """step_s: wall time of a large step. pairs: of steps that were compared, one of them counted. wall, processor: its
    wall and its processor time, counted to not counted. control: the latter where neither was counted. call_ns:
    processor time that a counted call takes longer, by small steps. own_ns: the same as the counter measures it at its
    start, on a function of its own. All but that with the standard error."""

    step_s: float
    pairs: int
    wall: tuple[float, float]
    processor: tuple[float, float]
    control: tuple[float, float]
    call_ns: tuple[float, float]
    own_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """Between which times the calls of one of the twins were counted, by its number; `None` for neither."""

    counted: int | None
    since_s: float
    until_s: float


class _Twins:
    """Two training processes that take turns, and what is counted in them."""

    def __init__(self, processes: "tuple[subprocess.Popen[bytes], ...]", host: Host) -> None:
        self._processes, self._host = processes, host
        self._rng = np.random.default_rng(0)
        function = host.function(processes[0].pid)
        if function is None:
            raise CallsUnavailable("the training process has ended, or has not loaded PyTorch")
        self.function = function

    def steps(self, size: str, seconds: float) -> Floats:
        """Shape (n, 2: of the twins, 3: when a step began, its wall and its processor time), seconds."""
        self._order(size, seconds)
        return self._taken()

    def stretches(self, size: str, seconds: float) -> tuple[Floats, list[tuple[_Stretch, _Stretch]]]:
        """The steps, as above, and couples of stretches: the first twin's calls are counted in the first, the second
        one's in the other; or neither's in either."""
        self._order(size, seconds)
        end_s, couples = time.monotonic() + seconds - 2 * (_STRETCH_S + _SLOWEST_S), []
        while time.monotonic() < end_s:
            is_control, swapped = self._rng.random() < _CONTROLS, int(self._rng.random() < 0.5)
            couple = [self._plain() if is_control else self._counted(twin) for twin in (swapped, 1 - swapped)]
            couples.append((couple[swapped], couple[1 - swapped]))
        return self._taken(), couples

    def _order(self, size: str, seconds: float) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{size} {seconds}\n".encode())
            process.stdin.flush()

    def _taken(self) -> Floats:
        each = []
        for process in self._processes:
            assert process.stdout is not None
            count = int.from_bytes(process.stdout.read(8), "little")
            each.append(np.frombuffer(process.stdout.read(8 * count)).reshape(-1, 3))
        first, second = each
        second = second[np.searchsorted(second[:, 0], first[0, 0]) :]  # the first one's step comes first
        both = min(len(first), len(second))
        return np.stack([first[:both], second[:both]], axis=1)

    def _plain(self) -> _Stretch:
        since_s = time.monotonic()
        time.sleep(_STRETCH_S)
        return _Stretch(counted=None, since_s=since_s, until_s=time.monotonic())

    def _counted(self, twin: int) -> _Stretch:
        """With the count read."""
        calls = self._host.open(self._processes[twin].pid, self.function)
        if calls is None:
            raise CallsUnavailable("the training process has ended")
        with closing(calls):
            since_s = time.monotonic()
            while time.monotonic() < since_s + _STRETCH_S:
                time.sleep(_READ_S)
                calls.last()
            return _Stretch(counted=twin, since_s=since_s, until_s=time.monotonic())


def measure(seconds: float) -> CallCost:
    """Watch training processes for about that long. Raises CallsUnavailable where the kernel counts no calls."""
    with closing(Host(call_target("calls"))) as host, _processes() as processes:
        twins = _Twins(processes, host)
        step_s = float(np.median(twins.steps("large", 2.0)[..., 1]))
        large, couples = twins.stretches("large", seconds)
        small, small_couples = twins.stretches("small", min(seconds, _SMALL_S))
        wall, processor = (np.log(large[..., kind]) for kind in (1, 2))
        counted = [couple for couple in couples if couple[0].counted is not None]
        control = [couple for couple in couples if couple[0].counted is None]
        pairs = sum(np.count_nonzero(_inside(large, stretch)) for couple in counted for stretch in couple)
        call_s = _more(small, small[..., 2], [couple for couple in small_couples if couple[0].counted is not None])
        return CallCost(
            step_s=step_s,
            pairs=int(pairs),
            wall=_ratio(_more(large, wall, counted)),
            processor=_ratio(_more(large, processor, counted)),
            control=_ratio(_more(large, processor, control)),
            call_ns=(1e9 * call_s[0], 1e9 * call_s[1]),
            own_ns=1e9 * twins.function.cost_s,
        )


def _inside(steps: Floats, stretch: _Stretch) -> npt.NDArray[np.bool_]:
    """Which pairs of steps lie wholly in a stretch: shape (n,)."""
    begun_s, ended_s = steps[:, 0, 0], steps[:, 1, 0] + steps[:, 1, 1]
    return np.asarray((begun_s >= stretch.since_s) & (ended_s <= stretch.until_s))


def _more(steps: Floats, values: Floats, couples: list[tuple[_Stretch, _Stretch]]) -> tuple[float, float]:
    """By how much the value of a counted step is more than that of one that is not, with its standard error. values:
    shape (n, 2: of the twins)."""
    more = []
    for couple in couples:
        inside = [np.diff(values[_inside(steps, stretch)], axis=1) for stretch in couple]
        if min(map(len, inside)) >= _FEWEST_STEPS:
            first, second = (float(np.median(each)) for each in inside)
            more.append((second - first) / 2)
    if len(more) < _FEWEST_COUPLES:
        raise SystemExit(
            f"only {len(more)} couples of stretches had {_FEWEST_STEPS} steps each; pass a larger --seconds"
        )
    return _mean(np.array(more))


def _ratio(log: tuple[float, float]) -> tuple[float, float]:
    return float(np.exp(log[0])), log[1]


@contextmanager
def _processes() -> "Iterator[tuple[subprocess.Popen[bytes], ...]]":
    """Two that take turns; the first one begins."""
    with ExitStack() as stack:
        (mine, others), (theirs, ours) = os.pipe(), os.pipe()
        for end in (mine, others, theirs, ours):
            stack.callback(os.close, end)
        processes = tuple(stack.enter_context(_process(*ends)) for ends in ((mine, ours), (theirs, others)))
        os.write(others, b".")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"large 1\n")
            process.stdin.flush()
        for process in processes:
            assert process.stdout is not None
            process.stdout.read(int.from_bytes(process.stdout.read(8), "little") * 8)  # by then PyTorch is loaded
        yield processes


@contextmanager
def _process(mine: int, others: int) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-c", _TRAINING, str(mine), str(others)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(mine, others))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _mean(values: Floats) -> tuple[float, float]:
    """Without what is trimmed, and its standard error by resampling."""
    from scipy.stats import trim_mean

    drawn = np.random.default_rng(0).choice(values, (400, len(values)))
    return float(trim_mean(values, _TRIMMED)), float(np.std(trim_mean(drawn, _TRIMMED, axis=1)))
