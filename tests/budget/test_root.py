"""The root of a function, against scipy's method of the same name and against roots that are known."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from autocap.budget.root import root

_CLOSE, _RELATIVE = 1e-9, 1e-12


def crossing(rng: random.Random) -> tuple[Callable[[float], float], float, float]:
    """A function that crosses zero between two places, somehow: straight, curved, flat at its root, with corners or
    with jumps."""
    low, high = rng.uniform(-3, 0), rng.uniform(0.001, 4)
    at, scale, steep = rng.uniform(low, high), rng.choice([-1, 1]) * 10 ** rng.uniform(-6, 6), rng.uniform(0.1, 30)
    places, heights = (sorted(rng.uniform(low, high) for _ in range(5)) for _ in range(2))
    kinds: list[Callable[[float], float]] = [
        lambda x: scale * (x - at),
        lambda x: scale * (math.exp(steep * (x - at) / 8) - 1),
        lambda x: scale * (x - at) ** 3,
        lambda x: scale * math.tanh(steep * (x - at)),
        lambda x: scale * (float(np.interp(x, places, heights)) - heights[2]),
        lambda x: scale * (math.floor(steep * (x - at)) + 0.5),
    ]
    return rng.choice(kinds), low, high


def test_it_is_scipys_to_the_last_bit() -> None:
    from scipy.optimize import brentq

    rng = random.Random(1)
    for _ in range(600):
        function, low, high = crossing(rng)
        theirs = float(brentq(function, low, high, xtol=_CLOSE, rtol=_RELATIVE))
        assert root(function, low, high, close=_CLOSE, relative=_RELATIVE) == theirs


def test_ends_that_are_roots_are_returned() -> None:
    assert root(lambda x: x, 0.0, 1.0, close=_CLOSE, relative=_RELATIVE) == 0.0
    assert root(lambda x: x - 1, 0.0, 1.0, close=_CLOSE, relative=_RELATIVE) == 1.0


def test_where_the_sign_does_not_change_there_is_none() -> None:
    with pytest.raises(ValueError, match=r"no change of sign: 1 at 0, 2 at 1"):
        root(lambda x: x + 1, 0.0, 1.0, close=_CLOSE, relative=_RELATIVE)
