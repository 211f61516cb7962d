"""How to search: ask, tell, recommend; one strategy a file. A plug-in imports from here."""

from autocap.strategies.base import Strategy, StrategyLike
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import Needs, Option

__all__ = ["CapGrid", "Needs", "Option", "Strategy", "StrategyLike"]
