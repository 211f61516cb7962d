"""Parsers of option values for argparse; each says in one line what is allowed."""

import math
from argparse import ArgumentTypeError
from collections.abc import Callable


def integer(low: int, high: int | None = None) -> Callable[[str], int]:
    """A parser of whole numbers in that range, both ends included."""
    allowed = f"a whole number from {low}" + (" up" if high is None else f" to {high}")

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ArgumentTypeError(f"'{text}' is not {allowed}") from None
        if value < low or (high is not None and value > high):
            raise ArgumentTypeError(f"{value} is not {allowed}")
        return value

    return parse


def share(text: str) -> float:
    """A share below 1, as 0.2 or 20%."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 0.95:
        raise ArgumentTypeError(f"'{text}' is not a share from 0 to 0.95 (or 95%)")
    return value


def seconds(text: str) -> float:
    """A finite time above zero."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return value
