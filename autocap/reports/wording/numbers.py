"""Numbers as text, to as many digits as their errors warrant; what is said where a proxy stands for the iterations; and
what earlier runs of a job have shown."""

import math
from collections.abc import Sequence
from enum import Enum, auto

from autocap.knobs import POWER_LIMIT, Knob
from autocap.records import Cost
from autocap.reports.summary.record import Summary, Totals

_SIGMAS = 2.0  # of a change that is told from none
_SMALL = 5.0  # percent: what surely is no more may be called none, with how much that is
_LEAST_SHOWN = 0.05  # of an error, percent, with one digit after the point; a smaller one would be shown as none
_MANY = 4  # different caps on the GPUs of one job, of which a range says enough


class Verdict(Enum):
    """What may be said of a change that was measured."""

    CHANGE = auto()
    NONE = auto()  # bounded, by `bound`
    UNKNOWN = auto()


def with_error(value: float, error: float | None) -> str:
    """`0.1834 ± 0.0007`: to the second digit of the error, or its first where that is 3 or more; without an error where
    none is known."""
    if error is None or not 0 < error < math.inf:
        return f"{value:.6g}"
    first = math.floor(math.log10(error))
    digits = max(0, -first if error >= 2.95 * 10**first else 1 - first)
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def ratio(value: float, error: float | None) -> str:
    """`0.7246 ± 0.0237`, of something over the baseline's; without an error where none is known."""
    return f"{value:.4f}" if error is None or not error < math.inf else f"{value:.4f} ± {error:.4f}"


def with_rel_error(value: float, rel_error: float | None) -> str:
    """The same, given the error as a share of the value."""
    return with_error(value, None if rel_error is None else value * rel_error)


def times(ratio: Cost) -> str:
    """`×1.044 ± 0.022`: how many times as much as something else."""
    return f"×{with_error(ratio.value, ratio.stderr)}"


def change(percent: float | None, stderr: float | None) -> str:
    """`-5.2 ± 1.5 %`, without an error where none is known, and a dash where nothing is."""
    if percent is None:
        return "–"
    if stderr is None or not stderr < math.inf:
        return f"{percent:+.1f} %"
    digits = 1 if stderr == 0 or stderr >= _LEAST_SHOWN else -math.floor(math.log10(stderr))
    return f"{percent:+.{digits}f} ± {stderr:.{digits}f} %"


def verdict(percent: float, stderr: float | None) -> Verdict:
    """What a change, percent, with its standard error says: unknown is not none."""
    if stderr is None or not stderr < math.inf:
        return Verdict.UNKNOWN
    if abs(percent) > _SIGMAS * stderr:
        return Verdict.CHANGE
    return Verdict.NONE if bound(percent, stderr) <= _SMALL else Verdict.UNKNOWN


def bound(percent: float, stderr: float) -> float:
    """What a change is surely not beyond, either way, percent."""
    return abs(percent) + _SIGMAS * stderr


def counted(names: Sequence[str]) -> str:
    """Each name once, and how many there are of all of them where there is more than one: `2 × H100`."""
    different = ", ".join(dict.fromkeys(names))
    return f"{len(names)} × {different}" if len(names) > 1 else different


def cut(text: str, most: int) -> str:
    """At most so many characters of it, the last an ellipsis where there are more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def common_caps(settings: Sequence[float], knob: Knob = POWER_LIMIT) -> str:
    """`160` for one common cap, watts, `160/165` where they differ, `160–195` where there are many of them; of another
    knob in its own words, without its unit."""
    different = list(dict.fromkeys(map(knob.bare, settings)))
    is_range = len(different) >= _MANY and knob.ordered
    return f"{knob.bare(min(settings))}–{knob.bare(max(settings))}" if is_range else "/".join(different)


def with_unit(settings: Sequence[float], knob: Knob) -> str:
    """The same, `160/165 W`."""
    return f"{common_caps(settings, knob)} {knob.unit_shown}".rstrip()


_UNITS = (("day", 86_400.0), ("hour", 3_600.0), ("minute", 60.0))


def counted_runs(count: int) -> str:
    """`3 runs`."""
    return f"{count} run{'s' * (count != 1)}"


def best_cap(setting: float | None, metric: str, knob: Knob) -> str:
    """What to begin at."""
    if setting is None:
        return knob.said(f"no cap better than the limit found on arrival ({metric})")
    return f"best at {knob.text(setting)} ({metric})"


def ago(seconds: float) -> str:
    """`2 days ago`."""
    for unit, length_s in _UNITS:
        count = int(seconds // length_s)
        if count:
            return f"{count} {unit}{'s' * (count != 1)} ago"
    return "just now"


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
