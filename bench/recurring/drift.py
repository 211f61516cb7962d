"""How the epochs to target move over the recurrences of a job. Made up: the traces have no drift.

The best batch size of the first recurrence keeps its epochs; on the side of it that has more batch sizes the others
need fewer than before, by (b / best) to the power 0.35, on the other side more. So the best one moves that way.
"""

import numpy as np

from bench.recurring.workloads import Workload
from bench.strategies.curves import Floats

DRIFTS = ("none", "gradual", "sudden")
_POWER = 0.35
_BEGINS, _ENDS, _SUDDEN = 15, 30, 25  # recurrences


def factors(workload: Workload, best: int, drift: str, recurrences: int) -> Floats:
    """By what the epochs of each recurrence and batch size are multiplied, shape (recurrences, batch sizes)."""
    number = np.arange(recurrences)
    if drift == "none":
        done = np.zeros(recurrences)
    elif drift == "gradual":
        done = np.clip((number - _BEGINS) / (_ENDS - _BEGINS), 0, 1)
    else:
        done = (number >= _SUDDEN).astype(np.float64)
    sizes = np.array(workload.batch_sizes, dtype=np.float64)
    upward = len(sizes) - 1 - best >= best
    ratios = sizes[best] / sizes if upward else sizes / sizes[best]
    return np.asarray(ratios[None, :] ** (_POWER * done[:, None]))
