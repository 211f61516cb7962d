"""autocap finds the best power cap for a training job while the job runs."""

__version__ = "0.1.0"

TYPE_CHECKING = False  # importing typing costs more than all the rest here; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from types import ModuleType
    from typing import Unpack

    from autocap import integrations, metrics, records
    from autocap.integrations.options import TuneOptions
    from autocap.integrations.result import Result
    from autocap.integrations.tuned import Tuned

__all__ = ["__version__", "integrations", "load", "metrics", "records", "report", "step", "tune"]

_step: "Callable[[], None] | None" = None


def step() -> None:
    """Count one iteration of the training loop by hand, for `autocap run`, a block of `autocap.tune`, or an `autocap
    attach` that comes later.

    Call it once an iteration, in every rank or in one. From the first call on, the optimiser steps that autocap counts
    by itself no longer count in this process.
    """
    global _step
    if _step is None:  # an import statement in every call would cost as much as the step itself
        from autocap.progress.steps.map import step as count_step

        _step = count_step
    _step()


def report(**values: float) -> None:
    """Report values of this job, such as `autocap.report(accuracy=0.71)`, in a recurrence of `autocap recur`; elsewhere
    nothing happens.

    Call it once an epoch, in one rank.

    Args:
        **values: Numbers by their names; their units are the script's own.

    Raises:
        TypeError, ValueError: For what is no number.
    """
    from autocap.progress.values import report as report_values

    report_values(values)


def tune(**options: "Unpack[TuneOptions]") -> "Tuned":
    """Tune the GPUs of this very process while a block runs: `with autocap.tune(metric="eds", k=2) as run: …`; or while
    a function does: `@autocap.tune(metric="eds")`.

    Iterations are optimiser steps of torch, or calls of `autocap.step()`. Of several ranks on a machine the first has
    the job tuned. The limits found on arrival are put back when the block ends, however it ends, also with the process.
    Whatever fails, the block runs untuned, with one warning.

    Args:
        **options: Those of `autocap attach`, with underscores: `max_slowdown=0.05`, `gpus=[0, 1]`, `observe=True`,
            `strategy_option={"trials": 5}`.

    Returns:
        The block, or decorator. After the block `run.result` is the Result, which prints as the report; where nothing
        was tuned its `chosen` is None and its `ended_because` says why.

    Raises:
        UsageError: For options that are wrong.
        TrackerUnavailable: Where `log_to` names one that is not installed.
    """
    from autocap.integrations.tuned import Tuned

    return Tuned(options)


def load(run_dir: "str | PathLike[str]") -> "Result":
    """What came of a run, from its directory.

    Args:
        run_dir: The run directory.

    Returns:
        What `run.result` is after a block of `autocap.tune`.

    Raises:
        RunDirectoryError: Where there is no run.
    """
    from pathlib import Path

    from autocap.integrations.result import load as load_result

    return load_result(Path(run_dir))


def __getattr__(name: str) -> "ModuleType":
    """The public modules, imported when they are first asked for."""
    if name not in ("integrations", "metrics", "records"):
        raise AttributeError(f"module 'autocap' has no attribute '{name}'")
    from importlib import import_module

    return import_module(f"autocap.{name}")
