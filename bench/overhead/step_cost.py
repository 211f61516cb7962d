"""What counting costs the training loop: nanoseconds an optimiser step, with and without the step hook.

What it costs a training process that the kernel counts its backward passes.

A training takes steps of a fraction of a millisecond, between which it moves more than the caches hold, as a larger
network would. Its calls are counted in every other second, and what a step's processor time is then is compared with
the seconds right before and after, as how fast a processor is wanders.
"""

import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from autocap.progress.calls.host import Host
from autocap.progress.calls.target import CallsUnavailable, call_target
from autocap.progress.steps.map import StepMap
from autocap.testing.nvml import plain

_ROUNDS = 3  # of each, taken in turns
_LOOPS = {
    "torch, SGD of one parameter": """
import time, torch
weight = torch.nn.Parameter(torch.zeros(8)); weight.grad = torch.ones(8)
step = torch.optim.SGD([weight], lr=0.1).step
""",
    "plain loop, autocap.step()": """
import time
try:
    import os, autocap
    step = autocap.step if "AUTOCAP_STEP_MAP" in os.environ else (lambda: None)
except ImportError:
    step = lambda: None
""",
}
_TIMED = """
best = float("inf")
for _ in range(10):
    begin = time.thread_time_ns()
    for _ in range(2000): step()
    best = min(best, (time.thread_time_ns() - begin) / 2000)
print(best)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Processor time, nanoseconds a step: without the hook, and what it adds (median of the rounds)."""

    loop: str
    plain_ns: float
    added_ns: float


def hook_costs() -> list[StepCost]:
    """Each loop in processes of its own, with and without the hook in turns."""
    costs = []
    for loop, setup in _LOOPS.items():
        pairs = [(_timed(setup, False), _timed(setup, True)) for _ in range(_ROUNDS)]
        costs.append(
            StepCost(
                loop=loop,
                plain_ns=median(plain for plain, _ in pairs),
                added_ns=median(hooked - plain for plain, hooked in pairs),
            )
        )
    return costs


def _timed(setup: str, hooked: bool) -> float:
    with StepMap.create() as step_map:
        env = step_map.environment(plain()) if hooked else plain()
        done = subprocess.run(
            [sys.executable, "-c", setup + _TIMED], env=env, capture_output=True, text=True, check=True
        )
        return float(done.stdout)


_STRETCH_S = 1.0
_FEWEST = 5  # stretches that were counted
_TRIMMED = 0.1  # of the comparisons, at either end
# Once a line asks for that, it takes steps for so many seconds, and gives for each the time at which it began, on the
# monotonic clock, and its processor time.
_TRAINING = """
import array, gc, sys, time, torch
torch.set_num_threads(1); gc.disable()
net = torch.nn.Linear(4, 4)
data, optimiser = torch.ones(1, 4), torch.optim.SGD(net.parameters(), lr=1e-9)
large = torch.ones(1 << 21)
def step():
    optimiser.zero_grad(); net(net(net(data))).sum().backward(); optimiser.step()
step()
print("ready", flush=True)
end, taken = time.monotonic() + float(sys.stdin.readline()), array.array("d")
while (began := time.monotonic()) < end:
    large.add_(1.0)
    cpu = time.thread_time()
    step()
    taken.extend((began, time.thread_time() - cpu))
sys.stdout.buffer.write(taken.tobytes())
"""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """step_us: processor time of a step. call_ns: what a counted call takes longer, with its standard error; own_ns:
    the same as the counter measures it at its start, on a function of its own. counted: stretches."""

    step_us: float
    counted: int
    call_ns: tuple[float, float]
    own_ns: float


def call_cost(seconds: float) -> CallCost:
    """Watch a training process for about that long. Raises CallsUnavailable where the kernel counts no calls."""
    command = [sys.executable, "-c", _TRAINING]
    with (
        closing(Host(call_target("calls"))) as host,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        function = host.function(process.pid)
        if function is None:
            raise CallsUnavailable("the training process has ended, or has not loaded PyTorch")
        process.stdin.write(f"{seconds}\n".encode())
        process.stdin.close()
        marks_s = [time.monotonic()]
        while marks_s[-1] + 2 * _STRETCH_S < marks_s[0] + seconds:
            time.sleep(_STRETCH_S)
            marks_s.append(time.monotonic())
            calls = host.open(process.pid, function)
            if calls is None:
                raise CallsUnavailable("the training process has ended")
            with closing(calls):
                marks_s.append(time.monotonic())
                time.sleep(_STRETCH_S)
                marks_s.append(time.monotonic())
            marks_s.append(time.monotonic())
        steps = np.frombuffer(process.stdout.read()).reshape(-1, 2)
    call_s, more_s = more(steps, np.array(marks_s))
    return CallCost(
        step_us=1e6 * float(np.median(steps[:, 1])),
        counted=len(more_s),
        call_ns=(1e9 * call_s[0], 1e9 * call_s[1]),
        own_ns=1e9 * function.cost_s,
    )


def more(steps: Floats, marks_s: Floats) -> tuple[tuple[float, float], Floats]:
    """What a step takes longer while it is counted, with its standard error, and that of each counted stretch, seconds.

    steps: shape (n, 2), when each began and what it took. marks_s: the ends of stretches that are not counted, left
    out, counted, and left out, again and again.
    """
    from scipy.stats import trim_mean

    parts = np.split(steps[:, 1], np.searchsorted(steps[:, 0], marks_s))[1:]
    plain, counted = ([np.median(part) for part in parts[first::4] if len(part)] for first in (0, 2))
    pairs = min(len(counted), len(plain) - 1)
    if pairs < _FEWEST:
        raise SystemExit(f"only {pairs} stretches were counted; pass a larger --seconds")
    differences = np.array(counted[:pairs]) - (np.array(plain[:pairs]) + np.array(plain[1 : pairs + 1])) / 2
    drawn = np.random.default_rng(0).choice(differences, (400, pairs))
    found = float(trim_mean(differences, _TRIMMED)), float(np.std(trim_mean(drawn, _TRIMMED, axis=1)))
    return found, differences
