"""Readings as a process gets them that has too little CPU: far apart, in bursts, with gaps, the same one twice."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

KINDS = ("thinned", "gaps", "bursts", "dense-then-sparse", "every-nth", "hole", "island", "waves", "repeats")


def starved(t_s: Floats, values: Floats, kind: str, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Some of a signal's readings, oldest first. t_s, values: shape (n,). kind: one of KINDS."""
    kept = _kept(t_s - t_s[0], kind, rng)
    t_s, values = t_s[kept], values[kept]
    if kind == "bursts":  # nearly at the same time
        early = np.flatnonzero(rng.random(len(t_s)) < 0.3)
        early = early[early > 0]
        t_s = t_s.copy()
        t_s[early] = t_s[early - 1] + rng.choice([1e-9, 1e-6, 1e-3])
        t_s = np.maximum.accumulate(t_s)
    return t_s, values


def _kept(t_s: Floats, kind: str, rng: np.random.Generator) -> NDArray[np.intp]:
    """Places of the readings that are taken."""
    count = len(t_s)
    match kind:
        case "thinned":
            kept = rng.random(count) < rng.uniform(0.01, 0.9)
        case "gaps" | "bursts" | "repeats":
            gaps_s = np.exp(rng.normal(np.log(rng.uniform(0.02, 2.0)), rng.uniform(0.3, 1.5), count))
            if kind == "bursts":
                gaps_s[rng.random(count) < 0.4] = 0.0
            places = np.searchsorted(t_s, np.cumsum(np.clip(gaps_s, 0.01, 5.0)), side="right") - 1
            return places if kind == "repeats" else np.unique(places)
        case "dense-then-sparse":
            kept = (np.arange(count) < rng.integers(count)) | (rng.random(count) < rng.uniform(0.005, 0.2))
        case "every-nth":
            kept = np.arange(count) % rng.integers(1, 60) == 0
        case "hole":
            start = int(rng.integers(count))
            kept = (np.arange(count) < start) | (np.arange(count) >= start + rng.integers(count))
        case "island":
            kept = (rng.random(count) < 0.5) & ((np.arange(count) < 15) | (np.arange(count) > count * 2 // 3))
        case "waves":
            kept = rng.random(count) < np.where(np.sin(t_s * rng.uniform(0.05, 1.0)) > 0, 0.9, 0.02)
        case _:
            raise ValueError(f"there is no kind of starvation called {kind!r}")
    return np.flatnonzero(kept)
