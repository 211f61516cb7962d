"""What a recurrence costs, in words."""


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
