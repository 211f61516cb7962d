"""Weights & Biases: its own environment variables say where to (WANDB_PROJECT, WANDB_ENTITY, WANDB_DIR, WANDB_MODE),
and, with WANDB_RUN_ID, in which run."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autocap.plugins.trackers.sink import Result, Row, Setting, Sink

_NAME, _RUN_ID = "WANDB_NAME", "WANDB_RUN_ID"
_TIME = "autocap/time_s"  # the x axis of what is logged
_TRIAL, _TRIALS = "trial/", "autocap/trials"
# It is to print nothing, ask nothing, and look at nothing: no terminal, source, repository, or sensor.
_SILENT = {"silent": True, "console": "off", "disable_git": True, "disable_code": True, "x_disable_stats": True}
# One process of several that write to a run, and not the one that ends it.
_SHARED = {"mode": "shared", "x_label": "autocap", "x_primary": False, "x_update_finish_state": False}


class WandbSink:
    """A run of W&B (`wandb.Run`).

    ours: nobody else logs to it in this process, and it ends with us. In a run of somebody else's our numbers become
    part of the row that they log next: a row of ours would move their step count, and W&B drops what then comes with a
    lower step. So that no trial is lost to a later one, all of them stand in a table as well, which grows.
    """

    def __init__(self, run: Any, *, ours: bool) -> None:  # without wandb its type is not known
        self._run, self._ours = run, ours
        self._trials: list[Mapping[str, float]] = []
        run.define_metric(_TIME, hidden=True)
        run.define_metric("autocap/*", step_metric=_TIME)

    def begin(self, settings: Mapping[str, Setting]) -> None:
        self._run.config.update(dict(settings), allow_val_change=True)

    def log(self, row: Row) -> None:
        numbers = {**row.numbers, _TIME: row.t_s}
        if not self._ours and any(_TRIAL in key for key in row.numbers):
            self._trials.append(numbers)
            numbers = {**numbers, _TRIALS: _table(self._trials)}
        self._run.log(numbers, commit=self._ours)

    def end(self, result: Result) -> None:
        table = {_TRIALS: _table(self._trials)} if self._trials else {}
        self._run.summary.update({**result.row.numbers, **result.words, **table})
        if self._ours:
            self._run.finish(exit_code=int(result.killed))


def _table(rows: Sequence[Mapping[str, float]]) -> Any:
    """A row a trial, with whatever columns there are; wandb.Table."""
    import wandb

    columns = list(dict.fromkeys(key for row in rows for key in row))
    return wandb.Table(columns=columns, data=[[row.get(column) for column in columns] for row in rows])


def start(run_dir: Path) -> Sink:
    """A run of ours, called as its run directory, or the one that WANDB_RUN_ID names."""
    import wandb

    name = None if _NAME in os.environ else run_dir.name
    shared = _RUN_ID in os.environ and wandb.setup().settings.mode in ("online", "run", "shared")
    settings = wandb.Settings(**_SILENT, **(_SHARED if shared else {}))
    return WandbSink(wandb.init(name=None if shared else name, settings=settings), ours=True)


def join() -> Sink | None:
    """The active run of this process."""
    import wandb

    return None if wandb.run is None else WandbSink(wandb.run, ours=False)
