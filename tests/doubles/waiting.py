"""Waiting for what another process or thread does."""

import time
from collections.abc import Callable

PATIENCE_S = 120.0  # bounds a failure: for what comes within a second, on a machine that does much else
_SHORTEST_S, _LONGEST_S, _SHARE = 0.002, 0.02, 0.1  # between two looks: a share of what was waited already


def eventually(holds: Callable[[], object], within_s: float = PATIENCE_S, what: str = "it did not happen") -> None:
    """Return once it holds; fail where that is not within so many seconds. what: it is then that has happened."""
    began_s = time.monotonic()
    while not holds():
        waited_s = time.monotonic() - began_s
        assert waited_s < within_s, f"not within {within_s:g} s: {what}"
        time.sleep(min(max(_SHORTEST_S, _SHARE * waited_s), _LONGEST_S))
