"""Callbacks for training frameworks, each imported only where it is asked for, as its framework is."""

TYPE_CHECKING = False  # as in autocap itself
if TYPE_CHECKING:
    from types import ModuleType


def missing(error: ModuleNotFoundError, module: str, *packages: str) -> ImportError:
    """What to raise where a framework cannot be imported. packages: any of them would do; the first is the one to
    install. Where it is there, and lacks something of its own, that is its own error."""
    if error.name is None or error.name.partition(".")[0] not in packages:
        return error
    needed = " or ".join(packages)
    return ImportError(f"{module} needs the package {needed}; install it with: pip install {packages[0]}")


def __getattr__(name: str) -> "ModuleType":
    """The module of a framework; ImportError where that is not installed."""
    if name not in ("huggingface", "lightning"):
        raise AttributeError(f"module 'autocap.integrations' has no attribute '{name}'")
    from importlib import import_module

    return import_module(f"autocap.integrations.{name}")
