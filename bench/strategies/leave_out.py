"""A strategy on curves of a kind that its prior lacks: `python -m bench strategies --leave-out FAMILY`.

One that was made without a family must not be sure on it. A strategy whose prior consists of families names them in a
class attribute `families`; the search is by a subclass whose attribute lacks what stands for the curve's family.
"""

from collections.abc import Mapping

from autocap.errors import UsageError
from autocap.strategies.registry import StrategyFactory
from bench.simulation.strategies import find
from bench.strategies.curve_set import SETS

# What stands in a prior for the curves of a set: the seed curves were fitted with the law, and so on.
_STANDS_FOR = {"seed": ("law",), "made-up": ("phases",), "knees": ("memory",), "scatter": ("memory",)}
STANDS_FOR: Mapping[str, tuple[str, ...]] = {
    family: _STANDS_FOR[name] for name, families in SETS.items() for family in families
}


def without(strategy: str, family: str) -> StrategyFactory:
    """The strategy with nothing in its prior for a family of curves. Raises UsageError where that cannot be."""
    factory = find(strategy)
    prior: tuple[str, ...] = getattr(factory, "families", ())
    if not isinstance(factory, type) or not prior:
        raise UsageError(
            f"strategy {strategy} names no families of its prior; --leave-out needs one that does, see --strategies"
        )
    if family not in STANDS_FOR:
        raise UsageError(
            f"nothing in a prior is known to stand for curves of family {family}; leave out one of "
            f"{', '.join(STANDS_FOR)}"
        )
    kept = tuple(one for one in prior if one not in STANDS_FOR[family])
    if not kept or kept == prior:
        raise UsageError(
            f"strategy {strategy} cannot leave out {', '.join(STANDS_FOR[family])}, which stands for curves of family "
            f"{family}: its prior consists of {', '.join(prior)}"
        )
    return type(factory.__name__, (factory,), {"families": kept})  # type: ignore[return-value]  # called like its base
