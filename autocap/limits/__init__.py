"""Whatever changes a cap holds a Guardian: lock, journal, watchdog process, restore."""

from importlib import import_module

TYPE_CHECKING = False  # as in autocap/__init__.py
if TYPE_CHECKING:
    from autocap.limits.asking import ForeignLimit
    from autocap.limits.guarded_limit import Restored
    from autocap.limits.guardian import Guardian
    from autocap.limits.recovery import UNSETTLED, Fate, Settled, settle

__all__ = ["UNSETTLED", "Fate", "ForeignLimit", "Guardian", "Restored", "Settled", "settle"]

_MODULES = {"Guardian": "guardian", "ForeignLimit": "asking", "Restored": "guarded_limit"}  # the rest: recovery


def __getattr__(name: str) -> object:
    """The public names, imported when they are first asked for: a watchdog needs few, and is to be there soon."""
    if name not in __all__:
        raise AttributeError(f"module 'autocap.limits' has no attribute '{name}'")
    return getattr(import_module(f"autocap.limits.{_MODULES.get(name, 'recovery')}"), name)
