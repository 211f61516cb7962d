"""`Trainer(callbacks=[TuneCallback(metric="eds")])`: a Lightning training, tuned while it trains.

The hooks are those of Lightning 2 (`Callback`), as `lightning.pytorch` or `pytorch_lightning`.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from autocap.integrations import missing
from autocap.integrations.tuned import TunedTraining
from autocap.progress.steps.map import step

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    # Two packages of the same: the one that the script has imported, else the one that is there.
    _LOADED = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    _HOME = "pytorch_lightning" if _LOADED or find_spec("lightning") is None else "lightning.pytorch"
    try:
        Callback = import_module(_HOME).Callback
    except ModuleNotFoundError as error:
        raise missing(error, __name__, "lightning", "pytorch_lightning") from None


class TuneCallback(TunedTraining, Callback):  # type: ignore[misc]  # without Lightning its type is not known
    """Takes the options of `autocap.tune`. An iteration is a training batch that ended in optimiser steps."""

    _global_step = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._global_step = trainer.global_step
        self._begin(first_rank=trainer.local_rank == 0)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step != self._global_step:
            self._global_step = trainer.global_step
            step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end()
