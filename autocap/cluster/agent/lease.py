"""For how long the controller's last word holds: an agent trusts nobody to tell it that the controller is gone."""

RESTORE_S = 2.0  # without a word, limits are put back
LEAVE_S = 8.0  # and the agent leaves


class Lease:
    """The controller's words, seconds on any one clock. It begins with none said, as if one had just been.

    What is read late counts as said when it is read: while we did not run, somebody else guarded the limits.
    """

    def __init__(self, now_s: float) -> None:
        self._said_s = now_s
        self._is_lapsed = False

    def word(self, now_s: float) -> None:
        """There is one. What may be set may be set again."""
        self._said_s, self._is_lapsed = now_s, False

    def lapses(self, now_s: float) -> bool:
        """Whether limits are to be put back now; told once for each silence."""
        if self._is_lapsed or now_s < self._said_s + RESTORE_S:
            return False
        self._is_lapsed = True
        return True

    def is_over(self, now_s: float) -> bool:
        """Whether to leave."""
        return now_s >= self._said_s + LEAVE_S

    @property
    def next_s(self) -> float:
        """When one of both is due, should there be no word before."""
        return self._said_s + (LEAVE_S if self._is_lapsed else RESTORE_S)
