"""What a budget's manager says on standard error, a line each."""

from autocap import events
from autocap.events import Event
from autocap.plugins.fleet import events as budget
from autocap.printing import note
from autocap.records import Sample
from autocap.reports.live.terminal import Reporter


class Spoken(Reporter):
    """Takes what happens; says what a user who watches wants to know."""

    def __init__(self) -> None:
        self._not_back = 0  # limits, as far as is known

    def event(self, event: Event) -> None:
        self._not_back += isinstance(event, events.LimitRestored) and event.restored is not True
        text = _sentence(event, self._not_back)
        if text is not None:
            note(text)

    def sample(self, sample: Sample) -> None:
        """Nothing is said of it."""


def _sentence(event: Event, not_back: int) -> str | None:
    match event:
        case budget.BudgetChanged():
            return f"{event.budget_w:g} W are shared from now on, {event.policy}: {event.why}"
        case budget.JobJoined():
            how = "with a tuner" if event.tuned else "untuned"
            return f"{event.name} has come, {how}, on {len(event.uuids)} GPU{'s' * (len(event.uuids) > 1)}"
        case budget.JobLeft():
            return f"{event.name} has left: {event.why}"
        case budget.JobWeighed():
            return f"{event.name} has the weight {event.weight:g} from now on: {event.why}"
        case budget.BudgetShort(short_w=short_w) if short_w > 0:
            names = ", ".join(event.pause)
            return f"the lowest caps exceed the budget by {short_w:.0f} W; pause {names}, or raise the budget"
        case budget.BudgetShort():
            return "the budget can be kept again"
        case events.Warned():
            return f"warning: {event.text}"
        case events.RunEnded():
            but = f", but for {not_back} of them" if not_back else ""
            return f"the budget has ended: {event.ended_because}; the limits found are back{but}"
    return None
