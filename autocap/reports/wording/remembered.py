"""What earlier runs of a job have shown, in words."""

_UNITS = (("day", 86_400.0), ("hour", 3_600.0), ("minute", 60.0))


def runs(count: int) -> str:
    """`3 runs`."""
    return f"{count} run{'s' * (count != 1)}"


def best(cap_w: float | None, metric: str) -> str:
    """The cap to begin at, watts."""
    if cap_w is None:
        return f"no cap better than the limit found on arrival ({metric})"
    return f"best at {cap_w:g} W ({metric})"


def ago(seconds: float) -> str:
    """`2 days ago`."""
    for unit, length_s in _UNITS:
        count = int(seconds // length_s)
        if count:
            return f"{count} {unit}{'s' * (count != 1)} ago"
    return "just now"
