"""Without the extras, and without the frameworks of the callbacks, whatever needs one says in one line what to install,
and everything else works."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from autocap.job import registry
from autocap.runlog.directory import PICTURES
from tests.doubles.recorded import record

ROOT = Path(__file__).resolve().parent.parent
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
FRAMEWORKS = ["transformers", "lightning", "pytorch_lightning"]  # the users' own
# Runs every case in one interpreter that lacks these modules, and prints status and output of each.
PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module

absent, cases = json.load(sys.stdin)
sys.modules |= dict.fromkeys(absent)

def outcome(words):
    if words[0] == "import":
        module, _, name = words[1].partition(":")
        found = import_module(module)
        name and getattr(found, name)
        return 0
    return import_module(words[0]).main(words[1:])

results = []
for words in cases:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = outcome(words)
        except ImportError as error:
            status = 1
            print(error if error.__suppress_context__ else f"{error}\\nbecause of another one", file=sys.stderr)
        except SystemExit as ended:
            status = ended.code
    results.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""
WORKLOADS = "autocap.workloads.__main__"
PROMETHEUS, TORCH, TESTING = "prometheus-client", "torch", "pytest"
NEEDS = {  # what is run, and what it asks for
    ("autocap.cli", "run", "--device", "emulated", "--prometheus", "9101", "--", "touch", "started"): PROMETHEUS,
    **{
        ("autocap.cli", "run", "--device", "emulated", "--log-to", tracker, "--", "touch", "started"): (tracker)
        for tracker in registry.ours("trackers")
    },
    ("autocap.cli", "run", "--device", "emulated", "--energy-price", "entsoe:DE_LU", "--", "touch", "started"): (
        "entsoe-py"
    ),
    (WORKLOADS, "list"): TORCH,
    (WORKLOADS, "list", "--json"): TORCH,
    (WORKLOADS, "train", "resnet18"): TORCH,
    (WORKLOADS, "record", "trace.csv", "--device", "emulated", "--", "resnet18"): TORCH,
    ("import", "autocap.testing:StrategyContract"): TESTING,
    ("import", "autocap.testing:DeviceContract"): TESTING,
    ("import", "autocap.plugins.fleet.nodes.ray_relay"): "'ray>=2.60,<3'",
    ("import", "autocap.integrations.huggingface"): "transformers",
    ("import", "autocap.integrations.lightning"): "lightning",
}
WORKS = (  # without any of them
    ("autocap.cli", "report", "run"),
    ("autocap.cli", "report", "run", "--html", "--plots"),
    ("autocap.cli", "runs", "."),
    (WORKLOADS, "train", "--help"),
    ("import", "autocap.strategies.bayesian"),
    ("import", "autocap.testing.nvml"),
)


def spelled(value: object) -> str:
    return " ".join(value) if isinstance(value, tuple) else str(value)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], tuple[int, str, str]]:
    folder = tmp_path_factory.mktemp("bare")
    record(folder / "run")
    needed = [one for name in EXTRAS if name != "dev" for one in EXTRAS[name]]
    packages = {re.split(r"[<>=]", one)[0].replace("-", "_") for one in needed}
    given = json.dumps([[*packages, *FRAMEWORKS], [*NEEDS, *WORKS]])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, input=given, capture_output=True, text=True, check=True
    )
    assert not (folder / "started").exists(), "the job was started before the exporter was refused"
    assert not (folder / "trace.csv").exists()
    assert {path.stem for path in (folder / "run").glob("*.svg")} == set(PICTURES)  # those that --force removes
    return dict(zip((*NEEDS, *WORKS), map(tuple, json.loads(done.stdout)), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("words", "install"), NEEDS.items(), ids=spelled)
def test_what_needs_an_extra_says_in_one_line_what_to_install(
    words: tuple[str, ...], install: str, results: dict[tuple[str, ...], tuple[int, str, str]]
) -> None:
    status, out, err = results[words]
    assert (status, out, err.count("\n")) == (1, "", 1), err
    assert f"pip install {install}" in err


@pytest.mark.parametrize("words", WORKS, ids=spelled)
def test_everything_else_works(words: tuple[str, ...], results: dict[tuple[str, ...], tuple[int, str, str]]) -> None:
    status, _, err = results[words]
    assert status == 0, err


def test_every_extra_is_asked_for_somewhere() -> None:
    for name, needed in EXTRAS.items():
        asked_for = any(re.split("[<>=]", one)[0] in text for one in needed for text in NEEDS.values())
        assert asked_for or name in ("dev", "docs", "frameworks"), name
