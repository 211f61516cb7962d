"""Callbacks for training frameworks, each imported only where it is asked for, as its framework is."""

TYPE_CHECKING = False  # as in autocap itself
if TYPE_CHECKING:
    from types import ModuleType


def __getattr__(name: str) -> "ModuleType":
    """The module of a framework; ImportError where that is not installed."""
    if name not in ("huggingface", "lightning"):
        raise AttributeError(f"module 'autocap.integrations' has no attribute '{name}'")
    from importlib import import_module

    return import_module(f"autocap.integrations.{name}")
