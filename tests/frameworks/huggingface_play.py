"""Scenes of a Hugging Face training.

python -m tests.frameworks.huggingface_play callback    tuned from inside, a scene after the other
python -m tests.frameworks.huggingface_play plain       one training without a line about autocap, which fails
python -m tests.frameworks.huggingface_play rank        one of several ranks, with the callback
"""

import gc
import sys
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import autocap
from autocap.integrations.huggingface import TuneCallback
from tests.frameworks.net import Net
from tests.frameworks.stage import Failure, Script, Stage

_ACCUMULATED = 2  # batches a step


class Model(torch.nn.Module):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self.net, self.script = Net(), script

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            self.script.begin()
        return {"loss": self.net(x)}


class Follow(TrainerCallback):
    """Has the trainer follow a script. Stands before the callback that tunes, and so hears of the end before it."""

    def __init__(self, stage: Stage, script: Script) -> None:
        self.stage, self.script = stage, script

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.script.has_ended:
            control.should_training_stop = True
        elif self.script.wants_validation:
            control.should_evaluate = True

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.script.validate()


class Count(TrainerCallback):
    """What was counted by the end of a training. Stands before the callback that tunes."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.facts: dict[str, object] = {}

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.stage.is_counted:
            self.facts = {"counted": self.stage.counted()}


def trainer(stage: Stage, script: Script, *callbacks: TrainerCallback) -> Trainer:
    rows = [{"x": torch.ones(4), "labels": torch.zeros(1)}] * 8
    arguments = TrainingArguments(
        output_dir="output",
        max_steps=1_000_000,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=_ACCUMULATED,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    return Trainer(
        model=Model(script),
        args=arguments,
        train_dataset=rows,
        eval_dataset=rows[:2],
        callbacks=[Follow(stage, script), *callbacks],
    )


def tuned() -> None:
    stage = Stage("tuned")
    tune, count = TuneCallback(**stage.options), Count(stage)
    steps = trainer(stage, Script(stage), count, tune).train().global_step
    stage.tell(tune.result, steps=steps, **count.facts, iterations=tune.result.totals.iterations)


def failed() -> None:
    """The trainer calls no hook then, and the process goes on."""
    stage = Stage("failed")
    fail_and_go_on(stage, Script(stage, fails=True), TuneCallback(**stage.options))


def kept() -> None:
    """The same under a cap that was kept, which no pause takes back."""
    stage = Stage("kept")
    script = Script(stage, fails=True, not_before=lambda: stage.states()[-1:] == ["HOLDING"])
    # By energy and far down, it is kept however unevenly a machine that others use lets the steps run.
    options = {**stage.options, "metric": "energy", "strategy": "fixed", "strategy_option": {"cap": 100}}
    fail_and_go_on(stage, script, TuneCallback(**options))


def fail_and_go_on(stage: Stage, script: Script, tune: TuneCallback) -> None:
    try:
        trainer(stage, script, tune).train()
    except Failure as failure:
        said = str(failure)
    stage.until(lambda: tune.result)
    stage.tell(tune.result, said=said)


def block() -> None:
    stage = Stage("block")
    try:
        with autocap.tune(**stage.options) as run:
            trainer(stage, Script(stage, fails=True)).train()
    except Failure as failure:
        stage.tell(run.result, said=str(failure))


def without_gpu() -> None:
    stage = Stage("without-gpu")
    tune = TuneCallback(out=stage.run)
    script = Script(stage, seen_all=lambda: stage.events("warned"))
    steps = trainer(stage, script, tune).train().global_step
    stage.tell(tune.result, steps=steps)


def plain() -> None:
    stage = Stage("run")
    count = Count(stage)
    steps = trainer(stage, Script(stage), count).train().global_step
    stage.tell(steps=steps, **count.facts)
    trainer(stage, Script(stage, fails=True)).train()


def rank() -> None:
    stage = Stage("run")

    def all_seen() -> bool:
        """Whether the first rank has seen the baseline begin: all end at the same step."""
        flag = torch.tensor(float("BASELINE" in stage.states()))
        torch.distributed.broadcast(flag, 0)
        return bool(flag)

    tune, count = TuneCallback(**stage.options), Count(stage)
    trained = trainer(stage, Script(stage, seen_all=all_seen), count, tune)
    steps = trained.train().global_step
    stage.tell(tune.result, steps=steps, **count.facts, ranks=trained.args.world_size)
    del trained  # before its group: Gloo's threads were seen to end the process while they were still needed
    gc.collect()
    torch.distributed.destroy_process_group()


def main() -> None:
    scenes = {"callback": (tuned, failed, kept, block, without_gpu), "plain": (plain,), "rank": (rank,)}
    for scene in scenes[sys.argv[1]]:
        scene()


if __name__ == "__main__":
    main()
