"""What a card makes of the limits that are asked of it: some take steps, and change what was requested a moment later.

No driver tells of such steps, so they are learned from what became of our own sets.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

SETTLE_S = 1.0  # after a set of ours, what a card makes of it has come
_MOST_W = 50.0  # no card is known with longer steps
_GRAIN_W = 0.25  # nor with steps that are no multiple of this
_LIKELY_W = (1.0, 2.0, 2.5, 5.0, 10.0, 25.0, 50.0, 20.0, 12.5, 15.0, 30.0, 40.0)  # the likelier first
_USUAL_W = 25.0  # what cards are known for that take steps; and their caps are steps of most shorter ones
_WAYS = {"down": 0.0, "nearest": 0.5, "up": 1.0}  # the share of a step that is added before the rest is cut off
_EXACT_W = 0.01  # a limit is a register's value
_ROUNDING = 1e-6


def may_be_made(found_w: float | None, asked_w: float, there_w: float) -> bool:
    """Whether some card may make that of what was asked of it just before: it is no further away than a step, and a
    round number of watts, by itself or from the limit found on arrival, as what people choose and tools compute often
    is not."""
    near = abs(there_w - asked_w) < _MOST_W
    return near and any(_is_multiple(there_w - from_w, _GRAIN_W) for from_w in (0.0, found_w or 0.0))


def is_likely_step(found_w: float | None, asked_w: float, there_w: float) -> bool:
    """The same, and by steps of a usual length that are counted from 0 W or from the limit found: for whoever cannot
    ask for the limit again, to see whether the same becomes of it."""
    return any(_same(one.made_of(asked_w), there_w) for one in _steppings(_LIKELY_W, (0.0, found_w or 0.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stepping:
    """One explanation: steps from `from_w` on. added: as in _WAYS."""

    step_w: float
    from_w: float
    added: float

    def made_of(self, asked_w: float) -> float:
        steps = (asked_w - self.from_w) / self.step_w
        whole = math.ceil(steps - _ROUNDING) if self.added == 1.0 else math.floor(steps + self.added + _ROUNDING)
        return self.from_w + whole * self.step_w


class LimitSteps:
    """The steps of one card, as far as they are known. found_w: the limit found on arrival, watts."""

    def __init__(self, found_w: float | None) -> None:
        self._found_w = found_w
        self._made: list[tuple[float, float]] = []  # what was asked, and what became of it
        self._left: list[_Stepping] = []  # that explain all of it, the likelier first

    @property
    def step_w(self) -> float | None:
        """The likeliest step that explains all that was seen, watts; `None` while limits were taken as asked."""
        return self._left[0].step_w if self._left else None

    def explains(self, asked_w: float, there_w: float) -> bool:
        """Whether the card may have made that of what was asked, by all that it has made of limits so far."""
        return self.knows(asked_w, there_w) or bool(self._explanations(asked_w, there_w))

    def knows(self, asked_w: float, there_w: float) -> bool:
        """Whether the card was seen to make that of what was asked."""
        return any(_same(asked, asked_w) and _same(there, there_w) for asked, there in self._made)

    def expects(self, asked_w: float, there_w: float) -> bool:
        """Whether the steps that were learned make that of what was asked."""
        return self.knows(asked_w, there_w) or (bool(self._left) and _same(self.made_of(asked_w), there_w))

    def learn(self, asked_w: float, there_w: float) -> None:
        """The card has made that of what was asked. Raises ValueError for what nothing explains."""
        if self.knows(asked_w, there_w):
            return
        left = self._explanations(asked_w, there_w)
        if not left:
            raise ValueError(f"no step explains {there_w:g} W where {asked_w:g} W was asked")
        if self._left and left[0] is not self._left[0]:  # one by one, each that is too short would cost a search
            left.sort(key=lambda one: one.step_w != _USUAL_W)
        self._left = left
        self._made.append((asked_w, there_w))

    def made_of(self, cap_w: float) -> float:
        """What the card is expected to make of a cap, watts."""
        return self._left[0].made_of(cap_w) if self._left else cap_w

    def _explanations(self, asked_w: float, there_w: float) -> list[_Stepping]:
        if self._left:
            return [one for one in self._left if _same(one.made_of(asked_w), there_w)]
        if not may_be_made(self._found_w, asked_w, there_w):
            return []
        usual_w = (0.0, self._found_w or 0.0)
        every = list(_steppings(_LIKELY_W, usual_w))
        if there_w < asked_w:  # else it may be the least that the card takes
            others_w = [number * _GRAIN_W for number in range(1, round(_MOST_W / _GRAIN_W) + 1)]
            every += _steppings(_LIKELY_W, (there_w,))
            every += _steppings([step_w for step_w in others_w if step_w not in _LIKELY_W], (*usual_w, there_w))
        return [one for one in every if _same(one.made_of(asked_w), there_w)]


def on_steps(caps_w: Sequence[float], cards: Sequence[LimitSteps]) -> tuple[float, ...]:
    """What becomes of these caps, watts, ascending: as far as every card takes it as it is, and none is outside of
    them."""
    made_w = {round(card.made_of(cap_w), 3) for cap_w in caps_w for card in cards}
    return tuple(
        cap_w
        for cap_w in sorted(made_w)
        if min(caps_w) <= cap_w <= max(caps_w) and all(_same(card.made_of(cap_w), cap_w) for card in cards)
    )


def _steppings(steps_w: Iterable[float], origins_w: Iterable[float]) -> Iterator[_Stepping]:
    origins_w = list(dict.fromkeys(origins_w))
    for step_w in steps_w:
        for from_w in origins_w:
            for added in _WAYS.values():
                yield _Stepping(step_w=step_w, from_w=from_w, added=added)


def _same(a_w: float, b_w: float) -> bool:
    return abs(a_w - b_w) < _EXACT_W


def _is_multiple(value_w: float, of_w: float) -> bool:
    return _same(value_w, of_w * round(value_w / of_w))
