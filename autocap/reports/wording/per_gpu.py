"""What a cap per GPU came to, in words."""

from autocap.reports.summary.record import Summary
from autocap.reports.wording.numbers import with_error


def lines(summary: Summary) -> list[str]:
    """What it gained over the common cap, or why there is none; nothing where none was looked for."""
    versus = summary.versus_common
    if versus is None:
        return []
    if not versus.kept:
        return [f"no cap per GPU was kept: {versus.reason}"]
    caps_w = "/".join(f"{cap_w:g}" for cap_w in versus.cap_w)
    label = " (emulated)" if summary.modelled else ""
    changes = [
        (f"energy{label}", versus.energy_pct, versus.energy_stderr_pct),
        ("time", versus.time_pct, versus.time_stderr_pct),
        (summary.metric.name, versus.metric_pct, versus.metric_stderr_pct),
    ]
    changed = ", ".join(f"{name} {_signed(pct or 0.0, stderr or 0.0)} %" for name, pct, stderr in changes)
    return [f"caps per GPU {caps_w} W: {changed} per iteration, against the common cap"]


def _signed(pct: float, stderr: float) -> str:
    return f"{'+' if pct >= 0 else ''}{with_error(pct, stderr)}"
