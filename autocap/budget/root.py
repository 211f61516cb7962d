"""Where a function crosses zero, by Brent's method (Algorithms for Minimization without Derivatives, 1973, chapter 4).

scipy has it, step for step the same, but importing it takes longer than all the rest of a start of a budget, while
nobody holds the limits.
"""

from collections.abc import Callable


def root(of: Callable[[float], float], low: float, high: float, *, close: float, relative: float) -> float:
    """A place between two at which the function has different signs, no further from its root than `close` plus
    `relative` of the place. Raises ValueError where the signs are the same."""
    before, here = low, high
    of_before, of_here = of(before), of(here)
    if not of_before or not of_here:
        return before if not of_before else here
    if (of_before > 0) == (of_here > 0):
        raise ValueError(f"no change of sign: {of_before:g} at {low:g}, {of_here:g} at {high:g}")
    beyond, of_beyond, last, step = before, of_before, 0.0, 0.0  # the root lies between here and beyond
    while True:
        if of_here and (of_before > 0) != (of_here > 0):
            beyond, of_beyond = before, of_before
            last = step = here - before
        if abs(of_beyond) < abs(of_here):
            before, here, beyond = here, beyond, here
            of_before, of_here, of_beyond = of_here, of_beyond, of_here
        least = (close + relative * abs(here)) / 2
        half = (beyond - here) / 2
        if not of_here or abs(half) < least:
            return here
        tried = None
        if abs(last) > least and abs(of_here) < abs(of_before):
            tried = _guess((before, of_before), (here, of_here), (beyond, of_beyond))
        if tried is not None and 2 * abs(tried) < min(abs(last), 3 * abs(half) - least):
            last, step = step, tried
        else:
            last = step = half
        before, of_before = here, of_here
        here += step if abs(step) > least else least if half > 0 else -least
        of_here = of(here)


def _guess(before: tuple[float, float], here: tuple[float, float], beyond: tuple[float, float]) -> float | None:
    """The step from here to the root of a line through two points, or of a curve through three; `None` where these
    lie so that there is none."""
    (x_before, y_before), (x, y), (x_beyond, y_beyond) = before, here, beyond
    if x_before == x_beyond:
        return -y * (x - x_before) / (y - y_before)
    slope_before = (y_before - y) / (x_before - x)
    slope_beyond = (y_beyond - y) / (x_beyond - x)
    divisor = slope_beyond * slope_before * (y_beyond - y_before)
    return -y * (y_beyond * slope_beyond - y_before * slope_before) / divisor if divisor else None
