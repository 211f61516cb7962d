"""Numbers as text, to as many digits as their errors warrant."""

import math


def with_error(value: float, error: float) -> str:
    """`0.1834 ± 0.0007`: to the second digit of the error, or its first where that is 3 or more."""
    if not 0 < error < math.inf:
        return f"{value:.6g}"
    first = math.floor(math.log10(error))
    digits = max(0, -first if error >= 2.95 * 10**first else 1 - first)
    return f"{value:.{digits}f} ± {error:.{digits}f}"
