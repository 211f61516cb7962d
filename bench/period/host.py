"""The CPU time of simulated jobs, as it is looked at every 20 ms.

A job has a thread that launches its iterations and then waits for the GPU: spinning, so that its CPU time is flat, or
blocked. Or it spins, and processes load data: one is woken by each iteration, and works for half an iteration to three
and a half, so that several do at a time, out of step. Fast loads that block may also log, once in so many iterations.
"""

import numpy as np

from autocap.progress.period.counted import Load
from bench.period.signals import LEAD_S, Floats, Signal

KINDS = ("spins", "blocks", "loads data")
LOGS = "logs"
_TICK_S = 0.004  # a thread that runs is counted up to the last one
_POLL_S, _POLL_JITTER_S = 0.020, 0.0007
_CPUS = 16.0
_LAUNCHES, _WORKS = (0.1, 0.7), (0.5, 3.5)  # of an iteration
_LOGS_EVERY_S, _LOG_S, _LAUNCHES_THEN = (0.33, 3.0), (0.01, 0.1), 0.3
_IDLE, _UNEVEN, _WOKEN_S = 0.05, 0.1, 0.0005


def load_of(signal: Signal, kind: str, rng: np.random.Generator) -> Load:
    """kind: of KINDS, or LOGS."""
    starts_s, ends_s = signal.progress_t_s[::2], signal.progress_t_s[1::2]
    lasts_s = ends_s - starts_s
    least = 1.0
    if kind == LOGS:
        logs_s = starts_s[:: max(2, round(rng.uniform(*_LOGS_EVERY_S) / float(np.mean(lasts_s))))]
        begin_s = np.concatenate((starts_s, logs_s))
        end_s = np.concatenate((starts_s + _LAUNCHES_THEN * lasts_s, logs_s + rng.uniform(*_LOG_S)))
        return _looked_at(begin_s, end_s, _IDLE, float(signal.t_s[-1]), rng)
    if kind == "blocks":
        least, lasts_s = _IDLE, rng.uniform(*_LAUNCHES) * lasts_s
    elif kind == "loads data":
        starts_s = starts_s + rng.exponential(_WOKEN_S, len(starts_s))
        lasts_s = rng.uniform(*_WORKS) * np.mean(lasts_s) * np.exp(_UNEVEN * rng.standard_normal(len(starts_s)))
    else:
        lasts_s = np.zeros(len(starts_s))
    return _looked_at(starts_s, starts_s + lasts_s, least, float(signal.t_s[-1]), rng)


def _looked_at(begin_s: Floats, end_s: Floats, least: float, until_s: float, rng: np.random.Generator) -> Load:
    """What is seen of one CPU in use between each begin and end, shape (n,) each, beside `least` all the time."""
    polls_s = np.arange(LEAD_S, until_s, _POLL_S)
    polls_s = polls_s + np.abs(rng.normal(0.0, _POLL_JITTER_S, len(polls_s)))
    edges_s = np.concatenate((begin_s, end_s))
    order = np.argsort(edges_s)
    edges_s = np.concatenate(([min(0.0, edges_s.min()) - 1.0], edges_s[order], [until_s + _POLL_S]))
    used = least + np.concatenate(([0.0], np.cumsum(np.repeat([1.0, -1.0], len(begin_s))[order])))
    spent_s = np.concatenate(([0.0], np.cumsum(used * np.diff(edges_s))))
    running = used[np.clip(np.searchsorted(edges_s, polls_s, side="right") - 1, 0, len(used) - 1)]
    since_tick_s = (polls_s + _TICK_S * rng.random()) % _TICK_S
    seen_s = np.interp(polls_s, edges_s, spent_s) - running * since_tick_s
    return Load(polls_s[1:], np.diff(seen_s) / np.diff(polls_s), _CPUS)
