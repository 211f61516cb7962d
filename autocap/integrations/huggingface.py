"""`Trainer(…, callbacks=[TuneCallback(metric="eds")])`: a Hugging Face training, tuned while it trains.

The hooks are those of transformers 4 and 5 (`TrainerCallback`).
"""

from typing import Any

from transformers import TrainerCallback

from autocap.integrations.block import Block
from autocap.integrations.tuned import OptionValue
from autocap.progress.steps.map import step
from autocap.reports.summary import Summary


class TuneCallback(TrainerCallback):  # type: ignore[misc]  # without transformers its type is not known
    """Takes the options of `autocap.tune`. An iteration is an update step, however many batches it accumulates.

    A training that fails calls no hook: its limits are put back when the process ends or trains again.
    """

    def __init__(self, **options: OptionValue) -> None:
        self._block = Block(options)

    @property
    def result(self) -> Summary | None:
        """What came of the last training that ended; `None` where nothing was tuned."""
        return self._block.result

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_local_process_zero:
            self._block.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._block.end()
