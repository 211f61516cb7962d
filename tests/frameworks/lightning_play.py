"""Scenes of a Lightning training.

python -m tests.frameworks.lightning_play callback    tuned from inside, a scene after the other
python -m tests.frameworks.lightning_play plain       one training without a line about autocap, which fails
"""

import sys
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

import autocap
from autocap.integrations.lightning import TuneCallback
from tests.frameworks.net import Net
from tests.frameworks.stage import Failure, Script, Stage

_ACCUMULATED = 2  # batches a step


class Module(LightningModule):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self.net, self.script = Net(), script

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        self.script.begin()
        return self.net(batch[0])

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.script.validate()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Follow(Callback):
    """Has the trainer follow a script. Stands before the callback that tunes, and so hears of the end before it."""

    def __init__(self, stage: Stage, script: Script) -> None:
        self.stage, self.script = stage, script
        self.facts: dict[str, object] = {}

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        trainer.should_stop = self.script.has_ended

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.stage.is_counted:
            self.facts = {"steps": trainer.global_step, "counted": self.stage.counted()}


def train(stage: Stage, script: Script, *callbacks: Callback) -> dict[str, object]:
    """Validates after every 20 batches, and twice before the first; what was counted, and what there was to count."""
    follow = Follow(stage, script)
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(40, 4)), batch_size=2)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=-1,
        accumulate_grad_batches=_ACCUMULATED,
        limit_val_batches=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[follow, *callbacks],
    )
    trainer.fit(Module(script), batches, batches)
    return {"trained": trainer.global_step, **follow.facts}


def tuned() -> None:
    stage = Stage("tuned")
    tune = TuneCallback(**stage.options)
    facts = train(stage, Script(stage), tune)
    stage.tell(tune.result, **facts, iterations=tune.result.totals.iterations)


def failed() -> None:
    stage = Stage("failed")
    tune = TuneCallback(**stage.options)
    try:
        train(stage, Script(stage, fails=True), tune)
    except Failure as failure:
        stage.tell(tune.result, said=str(failure))


def block() -> None:
    stage = Stage("block")
    try:
        with autocap.tune(**stage.options) as run:
            train(stage, Script(stage, fails=True))
    except Failure as failure:
        stage.tell(run.result, said=str(failure))


def without_gpu() -> None:
    stage = Stage("without-gpu")
    tune = TuneCallback(out=stage.run)
    facts = train(stage, Script(stage, seen_all=lambda: stage.events("warned")), tune)
    stage.tell(tune.result, **facts)


def plain() -> None:
    stage = Stage("run")
    stage.tell(**train(stage, Script(stage)))
    train(stage, Script(stage, fails=True))


def main() -> None:
    scenes = {"callback": (tuned, failed, block, without_gpu), "plain": (plain,)}
    for scene in scenes[sys.argv[1]]:
        scene()


if __name__ == "__main__":
    main()
