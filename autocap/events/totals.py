"""Which of a run's running totals count."""

from autocap.events.prices import Quoted
from autocap.events.run import Tally


class LastTotals:
    """Is told all events in their order. Of totals that follow each other the last counts: nothing has changed in
    between, and they would be most of a long run's events. The first after a value of electricity has changed stay: so
    no stretch between two of them has energy at one value and draws power for another."""

    def __init__(self) -> None:
        self._replaceable = self._is_new_value = False

    def replaces(self, event: object) -> bool:
        """Whether an event takes the place of the one before it."""
        is_tally = isinstance(event, Tally)
        replaces = is_tally and self._replaceable
        self._replaceable = is_tally and not self._is_new_value
        self._is_new_value = not is_tally and (self._is_new_value or isinstance(event, Quoted))
        return replaces
