"""For how long limits are held for somebody: whoever holds them trusts nobody to tell it that the other side is gone.

Pure: told the time, seconds on any one clock, and what is seen of the other side.
"""

import math
from collections.abc import Callable

from autocap.limits.vital_signs import Look, is_hung, next_look_s

_MOST_ANSWERS = 64


class Lease:
    """It begins as if all had been heard just now. restore_s: of silence, after which limits are put back; leave_s:
    after which it is over.

    Over a connection of one machine whatever is said proves that the other side is there (`renew`). A word from another
    node alone proves little: it may have been said long ago, or by one that cannot hear us and has given us up. So
    there limits hold for as long as our answers are known to have been heard, from when we gave them (`answer`,
    `heard`); any word (`word`) only keeps us from leaving.
    """

    def __init__(self, now_s: float, *, restore_s: float, leave_s: float) -> None:
        self._restore_s, self._leave_s = restore_s, leave_s
        self._answers: dict[int, float] = {}
        self.renew(now_s)

    def renew(self, now_s: float, seen: Look | None = None) -> None:
        """The other side is there. seen: its process now; `None` where that is not shown."""
        self._word_s = self._heard_s = now_s
        self._seen, self._look_s, self._is_put_back = seen, -math.inf, False

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

    def silence_s(self, now_s: float) -> float:
        """Since the latest word."""
        return now_s - self._word_s

    def is_lapsed(self, now_s: float) -> bool:
        """Whether limits do not hold by what was heard, so that nothing may be set."""
        return now_s >= self._heard_s + self._restore_s

    def lapses(self, now_s: float, look: Callable[[], Look | None] | None = None) -> bool:
        """Whether limits are to be put back now; told once for each silence. look: at the process of the other side,
        which is waited for where it only gets no CPU."""
        was, silence_s = self._is_put_back, now_s - self._heard_s
        is_due = self.is_lapsed(now_s)
        self._is_put_back = is_due and (was or look is None or is_hung(silence_s, self._seen, look()))
        if is_due and not self._is_put_back:
            self._look_s = now_s + next_look_s(silence_s)
        return self._is_put_back and not was

    def is_over(self, now_s: float) -> bool:
        """Whether to leave."""
        return now_s >= self.over_s

    @property
    def over_s(self) -> float:
        """When it is over, should there be no word before."""
        return self._word_s + self._leave_s

    @property
    def lapses_s(self) -> float:
        """When limits may have to be put back, should nothing be heard before; infinite once they are."""
        return math.inf if self._is_put_back else max(self._heard_s + self._restore_s, self._look_s)

    @property
    def next_s(self) -> float:
        """When one of both is due."""
        return min(self.lapses_s, self.over_s)
