"""Waiting for what real processes do."""

import time
from collections.abc import Callable

from autocap.errors import AutocapError

LOOK_S = 0.01


class Late(AutocapError):
    """Something did not happen in time."""


def until(condition: Callable[[], object], what: str, within_s: float, look_s: float = LOOK_S) -> float:
    """Seconds until the condition holds. what: it is then that has happened. Raises Late."""
    took_s = waited(condition, within_s, look_s)
    if took_s is None:
        raise Late(f"not within {within_s:g} s: {what}")
    return took_s


def waited(condition: Callable[[], object], within_s: float, look_s: float = 0.004) -> float | None:
    """Seconds until the condition holds; `None` where that is not within so many."""
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() - began_s > within_s:
            return None
        time.sleep(look_s)
    return time.monotonic() - began_s
