"""What power and time against the cap may look like: a few thousand physical curves, before anything was measured.

All are relative to the baseline, at the cap and mean power at which it was measured. They are of three families,
`phases`, `law` and `memory`. Some curves of any have a cliff at the low end besides.
Parameters are drawn once from wide ranges with a fixed seed, so that equal baselines have equal beliefs.

How far a job strays from its curve is a matter of the curve's kind (`residual`): those of the first two families stand
there as smooth and as bumpy, and some once more as strange, for jobs that no family describes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autocap.strategies.model.law import law
from autocap.strategies.model.memory import memory
from autocap.strategies.model.parameters import Curves, Floats
from autocap.strategies.model.phases import phases
from autocap.strategies.model.residual import BENT, BUMPY, SMOOTH, STRANGE

_SEED = 20220  # of the parameters; nothing is tuned to it
_CLIFFS = 0.2  # share of the curves that have one
_EDGE = (0.25, 0.65)  # where it begins, share of the baseline's cap
_STEEPNESS = (1.0, 9.0)  # of ln time, per share of the baseline's cap
_NEGLIGIBLE = 1e-6  # a curve with less weight than this share of the likeliest's is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """curves: what makes them. share: how likely a job is of this family, before anything is known of it.

    kinds: of residual, each with how likely it is and how many curves stand for it.
    """

    curves: Callable[[Floats, float, bool | None, np.random.Generator, int], Curves]
    share: float
    kinds: tuple[tuple[int, float, int], ...]

    @property
    def count(self) -> int:
        """How many different curves there are."""
        return max(count for _, _, count in self.kinds)


FAMILIES = {
    "phases": Family(curves=phases, share=0.35, kinds=((SMOOTH, 0.25, 1000), (BUMPY, 0.6, 1000), (STRANGE, 0.15, 300))),
    "law": Family(curves=law, share=0.4, kinds=((SMOOTH, 0.4, 2000), (BUMPY, 0.45, 1000), (STRANGE, 0.15, 300))),
    "memory": Family(curves=memory, share=0.25, kinds=((BENT, 1.0, 2000),)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Curves over some caps. log_power, log_time: ln P/P0 and ln t/t0, shape (curves, caps). kind: of the residual.

    log_weight: how well each goes with the baseline's power and binding, shape (curves,).
    """

    log_power: Floats
    log_time: Floats
    log_weight: Floats
    kind: NDArray[np.int_]

    def of(self, curves: NDArray[np.bool_]) -> "Shapes":
        """Some of them."""
        return Shapes(
            log_power=self.log_power[curves],
            log_time=self.log_time[curves],
            log_weight=self.log_weight[curves],
            kind=self.kind[curves],
        )


def shapes(
    settings: Floats, baseline_w: float, draw_w: float, binding: bool | None, families: Sequence[str] = tuple(FAMILIES)
) -> Shapes:
    """The curves over settings (shape (caps,), watts), for a baseline that drew draw_w at the cap baseline_w.

    binding: whether that cap held the clocks down, `None` where the device does not say.
    """
    where = np.append(settings, baseline_w)
    found = [_of_family(FAMILIES[name], where, draw_w, binding) for name in families]
    every = Shapes(
        log_power=np.concatenate([each.log_power for each in found]),
        log_time=np.concatenate([each.log_time for each in found]),
        log_weight=np.concatenate([each.log_weight for each in found]),
        kind=np.concatenate([each.kind for each in found]),
    )
    return every.of(every.log_weight > every.log_weight.max() + math.log(_NEGLIGIBLE))


def with_rest(curves: Shapes, share: float) -> Shapes:
    """The curves of a machine of which all but the cards draws this share of its power, the same at every cap."""
    if share <= 0:
        return curves
    return replace(curves, log_power=np.log((1 - share) * np.exp(curves.log_power) + share))


def _of_family(family: Family, settings: Floats, draw_w: float, binding: bool | None) -> Shapes:
    """A family's curves, each once for every kind; the last cap is the baseline's."""
    rng = np.random.default_rng(_SEED)
    curves = family.curves(settings, draw_w, binding, rng, family.count)
    log_power = curves.log_power[:, :-1] - curves.log_power[:, -1:]
    log_time = curves.log_time + _cliffs(settings, rng, family.count)
    log_time = log_time[:, :-1] - log_time[:, -1:]
    weights = [curves.log_weight[:count] + math.log(family.share * share / count) for _, share, count in family.kinds]
    return Shapes(
        log_power=np.concatenate([log_power[:count] for _, _, count in family.kinds]),
        log_time=np.concatenate([log_time[:count] for _, _, count in family.kinds]),
        log_weight=np.concatenate(weights),
        kind=np.repeat([kind for kind, _, _ in family.kinds], [count for _, _, count in family.kinds]),
    )


def _cliffs(settings: Floats, rng: np.random.Generator, count: int) -> Floats:
    """What some of the curves add to ln time below an edge of theirs, shape (curves, caps); the last is the baseline's.

    No family has the steepest cliffs that were published: 4 times the time at the lowest cap.
    """
    edge = rng.uniform(*_EDGE, (count, 1))
    steepness = np.where(rng.random((count, 1)) < _CLIFFS, rng.uniform(*_STEEPNESS, (count, 1)), 0.0)
    return np.asarray(steepness * np.maximum(edge - settings / settings[-1], 0.0))
