"""What each tracker's library is told: stand-ins of the few names that are used, and the libraries where they are."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from autocap.plugins.trackers.sink import Result, Row, Sink, joined_sink, new_sink
from autocap.runlog.event_log import EVENTS, line_of
from tests.doubles.told import told

ROW = Row(t_s=12.5, unix_s=1_800_000_012.5, numbers={"autocap/power_w": 170.0, "autocap/phase": 2.0})
LAST = Row(t_s=60.0, unix_s=1_800_000_060.0, numbers={"autocap/kept_cap_w": 160.0})
RESULT = Result(row=LAST, words={"autocap/verdict": "kept 160 W"}, killed=False)
SETTINGS = {"autocap/metric": "eds", "autocap/k": 2.0, "autocap/emulated_power": False}


def tell(sink: Sink) -> None:
    """A whole run."""
    sink.begin(SETTINGS)
    sink.log(ROW)
    sink.end(RESULT)


class Calls:
    """An object whose methods only keep what they were called with."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, tuple[object, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *words, **named: self.kept.append((name, words, named))

    def of(self, name: str) -> list[tuple[tuple[object, ...], dict[str, Any]]]:
        return [(words, named) for called, words, named in self.kept if called == name]


class Run(Calls):
    """Of W&B."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.summary = Calls(), Calls()


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Modules to be imported anew, and the variables of the trackers unset."""
    for name in (*names, *(f"autocap.plugins.trackers.{name}" for name in names)):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for variable in ("WANDB_NAME", "WANDB_RUN_ID", "WANDB_MODE", "MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    without(monkeypatch, "wandb")
    library: Any = ModuleType("wandb")
    library.run, library.started = None, []
    library.Table = SimpleNamespace
    library.Settings = dict
    library.setup = lambda: SimpleNamespace(settings=SimpleNamespace(mode=library.mode))
    library.mode = "online"

    def init(**named: object) -> Run:
        library.started.append(named)
        return Run()

    library.init = init
    monkeypatch.setitem(sys.modules, "wandb", library)
    return library


def test_a_run_of_ours_at_wandb_is_called_as_its_directory_and_prints_nothing(wandb: Any, tmp_path: Path) -> None:
    sink: Any = new_sink("wandb", tmp_path / "20260101T000000Z-7")
    (started,) = wandb.started
    assert started["name"] == "20260101T000000Z-7"
    assert (started["settings"]["silent"], started["settings"]["console"]) == (True, "off")
    assert "mode" not in started["settings"]  # which is for the environment to say
    tell(sink)
    run = sink._run
    assert run.config.of("update") == [((SETTINGS,), {"allow_val_change": True})]
    assert run.of("log") == [(({**ROW.numbers, "autocap/time_s": 12.5},), {"commit": True})]
    assert run.summary.of("update") == [(({**LAST.numbers, **RESULT.words},), {})]
    assert run.of("finish") == [((), {"exit_code": 0})]


def test_a_name_that_wandbs_environment_gives_stands(wandb, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_NAME", "mine")
    new_sink("wandb", tmp_path)
    assert wandb.started[0]["name"] is None


@pytest.mark.parametrize(("mode", "shared"), [("online", True), ("offline", False), ("disabled", False)])
def test_a_run_that_the_environment_names_is_shared_with_its_owner(wandb, tmp_path, monkeypatch, mode, shared) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", "abc")
    wandb.mode = mode
    new_sink("wandb", tmp_path)
    settings = wandb.started[0]["settings"]
    assert (settings.get("mode"), settings.get("x_primary"), settings.get("x_update_finish_state")) == (
        ("shared", False, False) if shared else (None, None, None)
    )


def test_in_an_open_run_of_wandbs_the_owners_steps_and_end_stay_theirs(wandb: Any) -> None:
    assert joined_sink("wandb") is None
    wandb.run = Run()
    sink = joined_sink("wandb")
    assert sink is not None
    tell(sink)
    assert [named for _, named in wandb.run.of("log")] == [{"commit": False}]
    assert wandb.run.of("finish") == []


def test_in_an_open_run_of_wandbs_no_trial_is_lost_to_a_later_one(wandb: Any) -> None:
    """Of what is logged before the script's next row each key keeps its last value."""
    wandb.run = Run()
    sink = joined_sink("wandb")
    for number in (1.0, 2.0):
        sink.log(replace(ROW, numbers={"autocap/trial/number": number}))
    sink.log(ROW)
    sink.log(replace(ROW, numbers={"autocap/trial/withdrawn_cap_w": 150.0}))
    last = wandb.run.of("log")[-1][0][0]["autocap/trials"]
    columns = ["autocap/trial/number", "autocap/time_s", "autocap/trial/withdrawn_cap_w"]
    rows = [[1.0, 12.5, None], [2.0, 12.5, None], [None, 12.5, 150.0]]
    assert (last.columns, last.data) == (columns, rows)
    sink.end(RESULT)
    assert wandb.run.summary.of("update")[0][0][0]["autocap/trials"] == last


class Client(Calls):
    """Of MLflow. params: of its runs, by id."""

    def __init__(self) -> None:
        super().__init__()
        self.params: dict[str, dict[str, str]] = {}

    def get_run(self, run_id: str) -> object:
        return SimpleNamespace(data=SimpleNamespace(params=self.params.get(run_id, {})))


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    without(monkeypatch, "mlflow")
    library, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    active = SimpleNamespace(info=SimpleNamespace(run_id="theirs"))
    started = Calls()

    def start_run(**named: object) -> object:
        started.start_run(**named)
        return SimpleNamespace(info=SimpleNamespace(run_id="ours"))

    client = Client()
    pair = lambda key, value: (key, value)  # noqa: E731
    vars(entities).update(Metric=SimpleNamespace, RunTag=pair, Param=pair)
    names = {"MlflowClient": lambda: client, "start_run": start_run, "active_run": lambda: active}
    vars(library).update(names, client=client, started=started)
    monkeypatch.setitem(sys.modules, "mlflow", library)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return library


def test_mlflow_gets_metrics_by_second_and_tags_and_a_run_of_ours_ends(mlflow: Any, tmp_path: Path) -> None:
    tell(new_sink("mlflow", tmp_path / "a-run"))
    assert mlflow.started.of("start_run") == [((), {"run_name": "a-run", "log_system_metrics": False})]
    (first, second, third, fourth), (ended,) = mlflow.client.of("log_batch"), mlflow.client.of("set_terminated")
    settings = [("autocap/metric", "eds"), ("autocap/k", "2.0"), ("autocap/emulated_power", "False")]
    assert first[1]["params"] == settings
    metric = second[1]["metrics"][0]
    assert (metric.key, metric.value, metric.timestamp, metric.step) == (
        "autocap/power_w", 170.0, 1_800_000_012_500, 12,
    )  # fmt: skip
    assert third[1]["metrics"][0].key == "autocap/kept_cap_w"
    assert fourth[1]["tags"] == [("autocap/verdict", "kept 160 W")]
    assert {words[0] for words, _ in (first, second, third, fourth)} == {"ours"}
    assert ended[0] == ("ours", "FINISHED")


def test_a_second_tuning_of_a_run_of_mlflows_leaves_the_params_of_the_first(mlflow: Any, tmp_path: Path) -> None:
    """They cannot be changed."""
    mlflow.client.params["ours"] = {"autocap/metric": "eds", "autocap/k": "3.0", "autocap/emulated_power": "False"}
    tell(new_sink("mlflow", tmp_path))
    first = mlflow.client.of("log_batch")[0]
    assert first[1] == {"tags": [("autocap/k", "2.0")]}


def test_a_run_of_mlflows_that_is_somebody_elses_keeps_its_state(mlflow, tmp_path, monkeypatch) -> None:
    open_run = joined_sink("mlflow")
    monkeypatch.setenv("MLFLOW_RUN_ID", "named")
    for sink in (open_run, new_sink("mlflow", tmp_path)):
        assert sink is not None
        tell(sink)
    assert mlflow.started.kept == mlflow.client.of("set_terminated") == []
    assert [words[0] for words, _ in mlflow.client.of("log_batch")] == ["theirs"] * 4 + ["named"] * 4


def test_a_script_that_has_not_imported_a_tracker_has_no_open_run(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "wandb", "mlflow", "tensorboard")
    assert [joined_sink(name) for name in ("wandb", "mlflow", "tensorboard")] == [None] * 3
    assert not {"wandb", "mlflow", "tensorboard"} & sys.modules.keys()


class Message(SimpleNamespace):
    """Of protobuf, as far as it is used."""

    def CopyFrom(self, other: "Message") -> None:
        vars(self).update(vars(other))


class EventFileWriter:
    """Of TensorBoard."""

    def __init__(self, logdir: str, flush_secs: int) -> None:
        self.logdir, self.events, self.closed = logdir, list[Any](), False

    def add_event(self, event: Any) -> None:
        assert not self.closed
        self.events.append(event)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in, in whose place the real one is looked at below."""
    without(monkeypatch, "tensorboard")
    summary = type("Summary", (Message,), {"Value": Message})
    modules = {
        "compat.proto.event_pb2": {"Event": Message},
        "compat.proto.summary_pb2": {"Summary": summary, "SummaryMetadata": Message},
        "compat.proto.tensor_pb2": {"TensorProto": Message},
        "compat.proto.tensor_shape_pb2": {"TensorShapeProto": Message},
        "compat.proto.types_pb2": {"DT_STRING": 7},
        "plugins.text.metadata": {"create_summary_metadata": lambda **named: Message(plugin="text")},
        "summary.writer.event_file_writer": {"EventFileWriter": EventFileWriter},
    }
    packages = {place.rsplit(".", n)[0] for place in modules for n in (1, 2)}
    for place, names in {"": {}, **{package: {} for package in packages}, **modules}.items():
        module = ModuleType(f"tensorboard.{place}".rstrip("."))
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("tensorboard")
def test_tensorboard_gets_scalars_and_texts_in_the_run_directory(tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard"
    folder.mkdir()
    for name in ("events.out.tfevents.1.host", "notes.txt"):
        (folder / name).touch()
    sink: Any = new_sink("tensorboard", tmp_path)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]  # the other was of a run that was replaced
    tell(sink)
    first, last, words = sink._writer.events
    assert (sink._writer.logdir, sink._writer.closed) == (str(folder), True)
    assert (first.wall_time, first.step) == (1_800_000_012.5, 12)
    assert [(one.tag, vars(one).get("simple_value")) for one in first.summary.value] == [
        ("autocap/power_w", 170.0),
        ("autocap/phase", 2.0),
        *((key, None) for key in SETTINGS),
    ]
    assert [(one.tag, one.simple_value) for one in last.summary.value] == [("autocap/kept_cap_w", 160.0)]
    assert [(one.tag, one.tensor.string_val) for one in words.summary.value] == [("autocap/verdict", [b"kept 160 W"])]


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a run that has ended."""
    without(monkeypatch)
    made = tmp_path / "a-run"
    made.mkdir()
    (made / EVENTS).write_bytes(b"".join(map(line_of, told(emulated=False))))
    return made


def told_to(name: str, run_dir: Path, **env: str) -> None:
    """The real library, in a process of its own as ever."""
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    words = [sys.executable, "-m", "autocap.plugins.trackers", name, str(run_dir)]
    done = subprocess.run(words, env={**os.environ, **env}, cwd=run_dir.parent, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.filterwarnings("ignore")
def test_the_real_tensorboard_reads_what_was_written(run_dir: Path) -> None:
    told_to("tensorboard", run_dir)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run_dir / "tensorboard"))
    read.Reload()
    assert [(one.step, one.value) for one in read.Scalars("autocap/kept_cap_w")] == [(5600, 160.0)]
    assert [one.value for one in read.Scalars("autocap/trial/cap_w")] == [160.0, 180.0, 120.0, 180.0, 160.0]
    (kept,) = read.Tensors("autocap/kept")
    assert list(kept.tensor_proto.string_val) == [b"160 W"]


@pytest.mark.filterwarnings("ignore")
def test_the_real_mlflow_reads_what_was_written(run_dir: Path) -> None:
    place = f"sqlite:///{run_dir}/mlflow.db"
    told_to("mlflow", run_dir, MLFLOW_TRACKING_URI=place)
    from mlflow import MlflowClient

    (run,) = MlflowClient(place).search_runs(["0"])
    assert (run.info.run_name, run.info.status) == ("a-run", "FINISHED")
    assert run.data.metrics["autocap/kept_cap_w"] == 160.0
    assert run.data.tags.items() >= {("autocap/kept", "160 W")}
    assert run.data.params.items() >= {("autocap/metric", "eds")}


@pytest.mark.filterwarnings("ignore")
def test_the_real_mlflow_keeps_all_of_an_emulated_run_in_a_store_of_files(run_dir: Path) -> None:
    """There a key is a path: none may be the folder of another."""
    (run_dir / EVENTS).write_bytes(b"".join(map(line_of, told(emulated=True))))
    env = {"MLFLOW_TRACKING_URI": f"file:{run_dir}/store", "MLFLOW_ALLOW_FILE_STORE": "true"}
    told_to("mlflow", run_dir, **env)
    (tags,) = (run_dir / "store").rglob("tags")
    words = {name: (tags / "autocap" / "emulated" / name).read_text() for name in ("headline", "verdict", "kept")}
    assert words["kept"] == "160 W"
    assert (tags.parent / "params" / "autocap" / "emulated_power").read_text() == "True"
    assert (tags.parent / "metrics" / "autocap" / "emulated" / "kept_cap_w").exists()


JOINED = """
import sys
import wandb
from pathlib import Path
from threading import Event
from autocap.plugins.trackers.rows import follow
from autocap.plugins.trackers.sink import joined_sink

run = wandb.init(mode="offline", settings=wandb.Settings(silent=True))
run.log({"loss": 1.0})
stop = Event()
stop.set()
follow(Path(sys.argv[1]), joined_sink("wandb"), stop)
run.log({"loss": 0.5})
assert run.step == 2
run.finish()
"""


def test_all_trials_are_in_an_open_run_of_the_real_wandb(run_dir: Path) -> None:
    if find_spec("wandb") is None:
        pytest.skip("wandb is not installed")
    env = {**os.environ, "WANDB_DIR": str(run_dir)}
    done = subprocess.run([sys.executable, "-c", JOINED, str(run_dir)], env=env, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    tables = [json.loads(path.read_text()) for path in run_dir.rglob("trials_*.table.json")]
    last = max(tables, key=lambda table: len(table["data"]))
    assert [row[last["columns"].index("autocap/trial/cap_w")] for row in last["data"]] == [160, 180, 120, 180, 160]


def test_the_real_wandb_writes_a_run_offline(run_dir: Path) -> None:
    told_to("wandb", run_dir, WANDB_MODE="offline", WANDB_DIR=str(run_dir))
    (written,) = run_dir.rglob("*.wandb")
    for words in (b"a-run", b"autocap/trial/metric_stderr", b"24 % less energy"):
        assert words in written.read_bytes()
