"""What is said where a proxy stands for the iterations: low confidence, and no seconds or joules of an iteration."""

from autocap.reports.summary.record import Summary, Totals

LOW_CONFIDENCE = "low confidence"
PROXY = (
    "iterations were not counted: the SM clock stands for their speed, so that time and energy per iteration are known "
    "only against the baseline's, as a range, with low confidence"
)


def mark(summary: Summary) -> str:
    """What stands behind such a number; nothing where iterations were counted."""
    return f" ({LOW_CONFIDENCE})" if summary.is_relative else ""


def per_iteration(summary: Summary) -> tuple[str, str]:
    """The titles of time and energy: in units, or as ratios where nothing else is known."""
    return ("time", "energy") if summary.is_relative else ("s/iter", "J/iter")


def lasted(summary: Summary, totals: Totals) -> str:
    """How long a run was, in iterations too where they were counted."""
    seconds = f"{totals.wall_s:.0f} s"
    return seconds if summary.is_relative else f"{totals.iterations:.0f} iterations in {seconds}"
