"""The callbacks, called by stand-ins of the frameworks as those call them.

transformers: `CallbackHandler.call_event` of 4 and 5. Lightning: `_call_callback_hooks` of 2.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import autocap
from tests.integrations import test_tune
from tests.integrations.test_tune import OTHER_RANK

# What both stand-ins need: a training that steps until it is told to stop.
_STEPS = """
import os, time

def steps():
    end = time.monotonic() + 60
    while time.monotonic() < end and not os.path.exists("stop"):
        sum(range(20_000))
        time.sleep(0.005)  # as for a GPU, so that the tests beside it get on
        yield
"""
TRANSFORMERS = f"""{_STEPS}
from dataclasses import dataclass

@dataclass
class TrainerState:
    global_step: int = 0
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True

class TrainerControl:
    should_training_stop = False

class TrainerCallback:
    def on_init_end(self, args, state, control, **kwargs): pass
    def on_train_begin(self, args, state, control, **kwargs): pass
    def on_train_end(self, args, state, control, **kwargs): pass
    def on_epoch_begin(self, args, state, control, **kwargs): pass
    def on_epoch_end(self, args, state, control, **kwargs): pass
    def on_step_begin(self, args, state, control, **kwargs): pass
    def on_pre_optimizer_step(self, args, state, control, **kwargs): pass
    def on_optimizer_step(self, args, state, control, **kwargs): pass
    def on_substep_end(self, args, state, control, **kwargs): pass
    def on_step_end(self, args, state, control, **kwargs): pass

class Trainer:
    def __init__(self, callbacks, local_zero=True):
        self.callbacks, self.control = callbacks, TrainerControl()
        self.state = TrainerState(is_local_process_zero=local_zero)
        self.call("on_init_end")

    def call(self, event):
        for callback in self.callbacks:
            result = getattr(callback, event)(
                None, self.state, self.control, model=None, processing_class=None, optimizer=None, lr_scheduler=None,
                train_dataloader=None, eval_dataloader=None,
            )
            assert result is None or result is self.control

    def train(self):
        self.call("on_train_begin")
        for _ in steps():
            self.call("on_step_begin")
            self.call("on_pre_optimizer_step")
            self.call("on_optimizer_step")
            self.state.global_step += 1
            self.call("on_step_end")
        self.call("on_train_end")
"""
LIGHTNING = f"""{_STEPS}
class Callback:
    def setup(self, trainer, pl_module, stage): pass
    def on_fit_start(self, trainer, pl_module): pass
    def on_train_start(self, trainer, pl_module): pass
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx): pass
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx): pass
    def on_train_end(self, trainer, pl_module): pass
    def on_exception(self, trainer, pl_module, exception): pass
    def teardown(self, trainer, pl_module, stage): pass

class Trainer:
    local_rank = 0

    def __init__(self, callbacks):
        self.callbacks, self.global_step = callbacks, 0

    def call(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook)(self, None, *args)

    def fit(self, error=None):
        try:
            self.call("on_train_start")
            for index, _ in enumerate(steps()):
                self.call("on_train_batch_start", None, index)
                self.global_step += index % 2  # two batches are accumulated
                self.call("on_train_batch_end", None, None, index)
            if error is not None:
                raise error
            self.call("on_train_end")
        except BaseException as exception:
            self.call("on_exception", exception)
            raise
"""


class Scripts(test_tune.Scripts):
    """Runs scripts beside the stand-ins of the frameworks."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        frameworks = folder / "frameworks"
        for name, text in (
            ("transformers.py", TRANSFORMERS),
            ("lightning/__init__.py", ""),
            ("lightning/pytorch.py", LIGHTNING),
            ("pytorch_lightning.py", LIGHTNING),
        ):
            (frameworks / name).parent.mkdir(parents=True, exist_ok=True)
            (frameworks / name).write_text(text)
        self.env["PYTHONPATH"] = f"{frameworks}:{self.env['PYTHONPATH']}"


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Scripts]:
    made = Scripts(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "from transformers import Trainer\n"
        "import autocap\n"
        "tune = autocap.integrations.huggingface.TuneCallback(metric='eds', device='emulated', out='run')\n"
        "Trainer(callbacks=[tune]).train()\n",
        "from lightning.pytorch import Trainer\n"
        "from autocap.integrations.lightning import TuneCallback\n"
        "tune = TuneCallback(metric='eds', device='emulated', out='run')\n"
        "Trainer(callbacks=[tune]).fit()\n",
        "from pytorch_lightning import Trainer, Callback\n"
        "from autocap.integrations.lightning import TuneCallback\n"
        "tune = TuneCallback(metric='eds', device='emulated', out='run')\n"
        "assert isinstance(tune, Callback)\n"
        "Trainer(callbacks=[tune]).fit()\n",
        "from lightning.pytorch import Trainer\n"
        "from autocap.integrations.lightning import TuneCallback\n"
        "tune = TuneCallback(device='emulated', out='run')\n"
        "try:\n"
        "    Trainer(callbacks=[tune]).fit(KeyboardInterrupt())\n"
        "except KeyboardInterrupt:\n"
        "    pass\n",
    ],
    ids=["huggingface", "lightning", "pytorch_lightning", "lightning that fails"],
)
def test_a_training_is_tuned_from_its_begin_to_its_end(cli: Scripts, script: str) -> None:
    cli.require_tuned(cli.counted(script + "tell(tune.result)\n"))


@pytest.mark.parametrize(
    "script",
    [
        "from transformers import Trainer\n"
        "from autocap.integrations.huggingface import TuneCallback\n"
        "tune = TuneCallback(device='emulated', out='run')\n"
        "Trainer([tune], local_zero=False).train()\n",
        "from lightning.pytorch import Trainer\n"
        "from autocap.integrations.lightning import TuneCallback\n"
        "Trainer.local_rank = 1\n"
        "tune = TuneCallback(device='emulated', out='run')\n"
        "Trainer([tune]).fit()\n",
    ],
    ids=["huggingface", "lightning"],
)
def test_other_ranks_of_a_machine_start_nothing(cli: Scripts, script: str) -> None:
    cli.stop()
    done = cli(script + "tell(tune.result)\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == OTHER_RANK
    assert not (cli.folder / "run").exists()


@pytest.mark.parametrize("framework", ["huggingface", "lightning"])
def test_wrong_options_are_an_error_before_the_training(cli: Scripts, framework: str) -> None:
    done = cli(f"import autocap\nautocap.integrations.{framework}.TuneCallback(k=0.5)\n")
    assert done.returncode == 1
    assert "UsageError: k is 0.5; EDS needs a finite k above 1" in done.stderr


def test_a_framework_that_is_not_installed_is_not_imported_before_it_is_asked_for() -> None:
    assert autocap.integrations.__name__ == "autocap.integrations"
    with pytest.raises(AttributeError, match=r"module 'autocap\.integrations' has no attribute 'keras'"):
        _ = autocap.integrations.keras
