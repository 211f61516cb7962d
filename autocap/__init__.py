"""autocap finds the best power cap for a training job while the job runs."""

TYPE_CHECKING = False  # importing typing costs more than all the rest here; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import NoReturn

    from autocap import metrics, records

__version__ = "0.1.0"
__all__ = ["metrics", "records", "step", "tune"]

_count_step: "Callable[[], None] | None" = None


def step() -> None:
    """Count one iteration of the training loop by hand, in a child of `autocap run`; elsewhere nothing happens.

    Call it once an iteration, in every rank or in one. From the first call on, the optimiser steps that `autocap run`
    counts by itself no longer count in this process.
    """
    global _count_step
    if _count_step is None:
        from autocap.steps import count_step

        _count_step = count_step()
    _count_step()


def tune(*args: object, **kwargs: object) -> "NoReturn":
    """Tune the job that this process is, from inside. Raises NotAvailableYet."""
    from autocap.errors import NotAvailableYet

    raise NotAvailableYet("autocap.tune", "use `autocap run -- CMD`")


def __getattr__(name: str) -> "ModuleType":
    """The public modules, imported when they are first asked for."""
    if name not in ("metrics", "records"):
        raise AttributeError(f"module 'autocap' has no attribute '{name}'")
    from importlib import import_module

    return import_module(f"autocap.{name}")
