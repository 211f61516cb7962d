"""Real processes that log real runs, to stand-ins of the trackers' libraries."""

import json
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from autocap.errors import TrackerUnavailable
from autocap.integrations.tuned import Tuned
from autocap.plugins.trackers import process as tracking
from autocap.plugins.trackers.process import Tracker, await_end
from tests.cli.test_cli import EMULATED, Cli, here
from tests.doubles.told import told
from tests.doubles.waiting import eventually
from tests.integrations.test_tune import Scripts
from tests.plugins.trackers.test_rows import write

__all__ = ["here"]  # the fixture

# It prints as much as the real one, and keeps what it is told.
WANDB = """
import json, os, sys
run = None
print("wandb: loud")
print("wandb: louder", file=sys.stderr)
os.system("echo wandb: loudest")

class Kept(dict):
    def update(self, new, **named):
        say("update", sorted(new))

class Run:
    config, summary = Kept(), Kept()
    def define_metric(self, *words, **named): pass
    def log(self, row, commit): say("log", sorted(row))
    def finish(self, exit_code): say("finish", exit_code)

def say(*words):
    with open(os.environ["TOLD"], "a") as told:
        print(json.dumps(words), file=told)

def Settings(**named): return named

def init(name, settings):
    assert sys.stdin.read() == ""
    say("init", name)
    return Run()
"""
MLFLOW = "def start_run(**named): raise OSError('no server')\n"
HANGING = "import time, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen('hangs', 'w')\ntime.sleep(600)\n"


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    made = Cli(tmp_path)
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / "wandb.py").write_text(WANDB)
    (libraries / "mlflow.py").write_text(MLFLOW)
    made.env["PYTHONPATH"] = f"{libraries}:{made.env['PYTHONPATH']}"
    made.env["TOLD"] = str(tmp_path / "told")
    for name in ("WANDB_NAME", "WANDB_RUN_ID", "MLFLOW_RUN_ID"):
        made.env.pop(name, None)
    yield made
    made.end()


def heard(cli: Cli) -> list[list[object]]:
    return [json.loads(line) for line in (cli.folder / "told").read_text().splitlines()]


@pytest.mark.slow
def test_a_run_is_logged_and_neither_noise_nor_a_failure_disturbs_it(cli: Cli) -> None:
    options = ("--out", "run", "--json", "--log-to", "wandb", "--log-to=mlflow", "--log-to=wandb")
    run = cli.start("run", *EMULATED, *options, "--", sys.executable, "job.py", "60")
    told = cli.folder / "told"
    eventually(lambda: told.exists() and "time_per_iteration_s" in told.read_text())
    assert cli.ended(run) == 0
    out, err = (cli.folder / "out").read_text(), (cli.folder / "err").read_text()
    assert "loud" not in out + err
    assert json.loads(out.splitlines()[-1])["ended_because"] == "the job ended"
    assert err.count("nothing more is logged to mlflow: OSError: no server") == 1
    (start, settings), *rows, last, end = [(words[0], words[1]) for words in heard(cli)]
    assert (start, settings) == ("init", "run")
    assert end == ("finish", 0)
    assert last[0] == "update"
    assert {"autocap/emulated/headline", "autocap/emulated/ended_because"} <= set(last[1])
    logged = {key for name, keys in rows if name == "log" for key in keys}
    assert {f"autocap/emulated/{key}" for key in ("power_w", "cap_w", "time_per_iteration_s", "phase")} <= logged


def test_a_tracker_that_is_not_installed_is_refused_before_the_job_starts(cli, here, monkeypatch) -> None:
    if find_spec("tensorboard") is not None:
        pytest.skip("tensorboard is installed")
    (cli.folder / "tensorboard").mkdir()  # no package, although Python would import it
    monkeypatch.syspath_prepend(cli.folder)
    done = here("run", *EMULATED, "--out", "run", "--log-to", "tensorboard", "--", "touch", "started")
    assert (done.returncode, done.stdout) == (1, "")
    said = "autocap: --log-to tensorboard needs the package tensorboard; install it with: pip install tensorboard\n"
    assert done.stderr == said
    assert not (cli.folder / "started").exists()
    assert not (cli.folder / "run").exists()


@pytest.mark.slow
def test_a_tracker_that_hangs_is_given_up_with_all_that_it_started(tmp_path, monkeypatch) -> None:
    (tmp_path / "mlflow.py").write_text(HANGING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    write(tmp_path, told())
    tracking.require(["mlflow"])
    hanging = Tracker("mlflow", tmp_path)
    try:
        eventually((tmp_path / "hangs").exists)
        began_s = time.monotonic()
        said = "mlflow has not taken the run's last numbers within 0.1 s, and is not waited for"
        assert list(await_end([hanging], 0.1)) == [said]
        assert time.monotonic() - began_s < 10.0  # the grace of 1 s, on whatever machine
    finally:
        hanging.close()


# A script with a run of W&B open, of a package that no other process can import.
OPEN = """
import types
rows = []

class Kept(dict):
    def update(self, new, **named): super().update(new)

class Run:
    config, summary = Kept(), Kept()
    def define_metric(self, *words, **named): pass
    def log(self, row, commit): rows.append((row, commit))

wandb = types.ModuleType("wandb")
wandb.run = Run()
wandb.Table = lambda columns, data: [columns, data]  # where the search has come to a trial by then
sys.modules["wandb"] = wandb
with autocap.tune(device="emulated", out="run", log_to="wandb") as run:
    train(60)
print(json.dumps([run.result.ended_because, sorted(wandb.run.config), wandb.run.summary,
                  sorted({key for row, _ in rows for key in row}), [commit for _, commit in rows]]))
"""


@pytest.mark.slow
def test_a_block_is_logged_in_the_run_that_the_script_has_open(tmp_path: Path) -> None:
    scripts = Scripts(tmp_path)
    try:
        script = scripts.start(OPEN)
        eventually(lambda: scripts.events("tally"))
        scripts.stop()
        assert script.wait(120) == 0
        ended, settings, summary, keys, commits = json.loads((tmp_path / "out").read_text())
        assert ended == "the tuned block ended"
        assert "autocap/metric" in settings
        assert summary["autocap/emulated/ended_because"] == ended
        assert {"autocap/emulated/phase", "autocap/emulated/power_w"} <= set(keys)
        assert not any(commits)
    finally:
        scripts.end()


def test_a_script_whose_tracker_is_not_installed_is_told_before_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(TrackerUnavailable, match=r"pip install wandb"):
        Tuned({"log_to": ["wandb"]})
