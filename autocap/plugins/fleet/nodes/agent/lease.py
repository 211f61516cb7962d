"""For how long the controller's last word holds: an agent trusts nobody to tell it that the controller is gone."""

from autocap.limits.times import ALONE_S, HOLDS_S

_MOST_ANSWERS = 64


class Lease:
    """The controller's words, seconds on any one clock. It begins as if all had been heard just now.

    A word alone proves little: it may have been said long ago, or by one that cannot hear us and has given us up. So
    limits hold for as long as our answers are known to have been heard, from when we gave them. `is_lapsed`: they do
    not hold, and nothing may be set. leave_s: without a word, after which it is over. restore_s: as HOLDS_S.
    """

    def __init__(self, now_s: float, leave_s: float = ALONE_S, restore_s: float = HOLDS_S) -> None:
        self._word_s = self._heard_s = now_s
        self._leave_s, self._restore_s = leave_s, restore_s
        self._answers: dict[int, float] = {}
        self._is_put_back = False

    def lapses_at_once(self) -> None:
        """As if nothing had ever been heard: of one that begins anew, whom old words may still reach."""
        self._heard_s -= self._restore_s

    def word(self, now_s: float) -> None:
        """There is one, of any kind."""
        self._word_s = now_s

    def answer(self, number: int, now_s: float) -> None:
        """We answer the word of that number."""
        self._answers[number] = now_s
        if len(self._answers) > _MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]

    def heard(self, number: int) -> None:
        """That answer, if we gave it, has been heard: what may be set may be set again, unless it was long ago."""
        self._heard_s = max(self._heard_s, self._answers.get(number, self._heard_s))

    def is_lapsed(self, now_s: float) -> bool:
        """Whether limits are to be as they were found."""
        return now_s >= self._heard_s + self._restore_s

    def lapses(self, now_s: float) -> bool:
        """Whether limits are to be put back now; told once for each silence."""
        was, self._is_put_back = self._is_put_back, self.is_lapsed(now_s)
        return self._is_put_back and not was

    def is_over(self, now_s: float) -> bool:
        """Whether to leave."""
        return now_s >= self._word_s + self._leave_s

    @property
    def next_s(self) -> float:
        """When one of both is due, should there be no word before."""
        over_s = self._word_s + self._leave_s
        return over_s if self._is_put_back else min(self._heard_s + self._restore_s, over_s)
