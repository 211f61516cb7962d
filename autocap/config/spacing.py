"""How many caps there may be, checked before any is made."""

import math

MOST_CAPS = 2000  # of a list or a grid; a strategy looks at all of them whenever it is asked


def too_fine(min_w: float, max_w: float, step_w: float) -> str | None:
    """Why that step from cap to cap is too small for that range, watts; `None` where it is not."""
    steps = (max_w - min_w) / step_w
    if steps <= MOST_CAPS - 2:  # beside the two ends
        return None
    least_w = math.ceil((max_w - min_w) / (MOST_CAPS - 2) * 1000) / 1000
    return (
        f"a step of {step_w:g} W makes {steps:.4g} caps between {min_w:g} and {max_w:g} W, and at most {MOST_CAPS} can "
        f"be searched; pass --cap-step {least_w:g} or more"
    )
