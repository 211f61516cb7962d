"""A recurrence of a job in words."""

from autocap.events import RecurrenceEnded, RecurrenceStarted

_WORTH_A_WORD = 0.01  # of the energy


def begun(event: RecurrenceStarted) -> str:
    """Which batch size it takes and why."""
    limit = ""
    if event.most_cost is not None:
        limit = f"; it is ended early beyond {amount(event.most_cost, event.unit)}"
    return (
        f"recurrence {event.number} of {event.name}: batch size {event.batch_size}, {event.phase} ({event.why}){limit}"
    )


def ended(event: RecurrenceEnded, power: str) -> str:
    """What it came to. power: how its power must be marked, or nothing."""
    spent = "a cost that is not known"
    if event.cost is not None:
        spent = f"{f'a cost of {amount(event.cost, event.unit)} {power}'.rstrip()}, {event.time_s:.1f} s"
    if event.cost and event.search_cost and abs(event.search_cost) >= _WORTH_A_WORD * abs(event.cost):
        spent += f", of which the search for a cap took {amount(event.search_cost, event.unit)}"
    if event.energy_stderr_j and event.energy_stderr_j >= _WORTH_A_WORD * (event.energy_j or 0.0):
        spent += f", of which {event.energy_stderr_j:.0f} J are estimated, as the power was not known"
    match event.outcome:
        case "reached":
            return f"the target is reached, at {spent}"
        case "lost" | "out of memory":
            return f"warning: this recurrence says nothing of its batch size: {event.reason}"
        case "stopped":
            return f"stopped early, at {spent}"  # why was said when it was asked to end
    return f"warning: this recurrence failed, at {spent}: {event.reason}"


def amount(cost: float, unit: str) -> str:
    """A cost with its unit, of four digits."""
    factor, unit = scaled(cost, unit)
    return f"{cost / factor:.4g} {unit}"


def scaled(largest: float, unit: str) -> tuple[float, str]:
    """What costs up to the largest are divided by, and the unit then: kJ, MJ, GJ; money stays as it is."""
    if unit.startswith("J"):
        for prefix, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
            if largest >= 10 * factor:
                return factor, f"{prefix}{unit}"
    return 1.0, unit
