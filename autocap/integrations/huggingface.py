"""`Trainer(…, callbacks=[TuneCallback(metric="eds")])`: a Hugging Face training, tuned while it trains.

The hooks are those of transformers 4 and 5 (`TrainerCallback`).
"""

from typing import Any

from autocap.integrations import missing

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise missing(error, __name__, "transformers") from None

from autocap.integrations.tuned import TunedTraining
from autocap.progress.steps.map import step


class TuneCallback(TunedTraining, TrainerCallback):  # type: ignore[misc]  # without transformers its type is not known
    """Takes the options of `autocap.tune`. An iteration is an update step, however many batches it accumulates.

    A training that fails calls no hook. It is noticed by its call not being there any more, and ends within 3 s; a
    block of `autocap.tune` ends with the failure.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._begin(first_rank=state.is_local_process_zero, silent_in="transformers.trainer")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end()
