"""What is known of a job, in the budget's words."""

from dataclasses import replace

from autocap.controller.known_curve import KnownCurve
from autocap.plugins.fleet.budget.words import Known

_MOST_STDERR = 1.0  # of what is hardly known


def known_of(curve: KnownCurve, found_w: float, *, searching: bool, max_slowdown: float | None = None) -> Known:
    """A curve over the limit found on arrival, watts: up to the cap that the job's metric asks for, or, while that is
    still searched for, as far as it is known. max_slowdown: the job's bound, as a share."""
    points = (replace(curve, asked_w=curve.baseline_w) if searching else curve).published(found_w)
    return Known(
        caps_w=tuple(one.cap_w for one in points),
        slowdown=tuple(one.time - 1 for one in points),
        energy=tuple(one.energy for one in points),
        slowdown_stderr=tuple(min(_MOST_STDERR, one.time * one.period_rel_stderr) for one in points),
        energy_stderr=tuple(min(_MOST_STDERR, one.energy * one.energy_rel_stderr) for one in points),
        most_slowdown=max_slowdown,
    )
