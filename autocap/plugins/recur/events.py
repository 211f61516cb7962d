"""What is announced of a run that is a recurrence of a job: which batch size it took and why, and what it came to."""

from autocap.events.base import PluginEvent, event


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


_WORTH_A_WORD = 0.01  # of the energy


@event("recurrence_started")
class RecurrenceStarted(PluginEvent):
    """name: of the recurring job. number: of this recurrence, from 0. phase: exploring or sampling; why: a clause.

    most_cost: beyond which the job is ended early, in `unit`, `None` for no such limit.
    """

    name: str
    number: int
    batch_size: int
    phase: str
    why: str
    most_cost: float | None
    unit: str

    def sentence(self, power: str) -> str:
        """Which batch size it takes and why."""
        limit = ""
        if self.most_cost is not None:
            limit = f"; it is ended early beyond {amount(self.most_cost, self.unit)}"
        return (
            f"recurrence {self.number} of {self.name}: batch size {self.batch_size}, {self.phase} ({self.why}){limit}"
        )


@event("recurrence_ended")
class RecurrenceEnded(PluginEvent):
    """What a recurrence came to, once, when that is known: where the target was reached, at that moment.

    outcome: as `recur.policy.Outcome` has it. cost: to the target, or what was spent without it; in `unit`, `None`
    where it is not known. search_cost: what of that the search for a cap took, `None` where nothing, or where that is
    not known. time_s, energy_j: what it is made of. reason: a clause, "" where the target was reached.
    energy_stderr_j: for what of the energy had to be estimated, `None` where all was measured.
    """

    outcome: str
    reason: str
    cost: float | None
    unit: str
    time_s: float
    energy_j: float | None
    energy_stderr_j: float | None = None
    search_cost: float | None = None

    def sentence(self, power: str) -> str:
        """What it came to."""
        spent = "a cost that is not known"
        if self.cost is not None:
            spent = f"{f'a cost of {amount(self.cost, self.unit)} {power}'.rstrip()}, {self.time_s:.1f} s"
        if self.cost and self.search_cost and abs(self.search_cost) >= _WORTH_A_WORD * abs(self.cost):
            spent += f", of which the search for a cap took {amount(self.search_cost, self.unit)}"
        if self.energy_stderr_j and self.energy_stderr_j >= _WORTH_A_WORD * (self.energy_j or 0.0):
            spent += f", of which {self.energy_stderr_j:.0f} J are estimated, as the power was not known"
        match self.outcome:
            case "reached":
                return f"the target is reached, at {spent}"
            case "lost" | "out of memory":
                return f"warning: this recurrence says nothing of its batch size: {self.reason}"
            case "stopped":
                return f"stopped early, at {spent}"  # why was said when it was asked to end
        return f"warning: this recurrence failed, at {spent}: {self.reason}"
