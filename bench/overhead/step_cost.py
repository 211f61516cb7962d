"""What counting costs the training loop: nanoseconds an optimiser step, with and without the step hook."""

import subprocess
import sys
from dataclasses import dataclass
from statistics import median

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


def measure() -> list[StepCost]:
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
