"""Every command that the documents show is right: some are run, the others go through the real parsers.

A fenced block without a language holds commands and nothing else, a line each; output is marked `text`.

Run are those in `RUN`, on the emulated device and with a job of two seconds in the place of `train.py`. Only parsed, up
to the settings that they mean, are

    sudo …                  they need a real device
    autocap attach, sweep   a sweep is a dozen runs; tests/cli runs both
    autocap run             but for the two in RUN; they differ in options alone
    make                    `make -n`: the recipe's own commands are parsed in turn
    python -m bench         but for one; tests/bench runs them
    python -m autocap.workloads, pytest, curl, docker
"""

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import autocap.cli
from autocap.job import registry
from bench.__main__ import COMMANDS as BENCHMARKS
from tests.cli.test_cli import Cli
from tests.docs.pages import ALL_BLOCKS, PAGES, ROOT, Block, prose

COMMANDS = [
    (block, line)
    for block in ALL_BLOCKS
    if block.language == ""
    for line in block.text.replace("\\\n", " ").splitlines()
    if line
]
IDS = [f"{block.page}: {line}" for block, line in COMMANDS]
RUN_DIR = "autocap-runs/20261121T193705Z-28029"
STRATEGY_RUN = (
    "autocap run --device emulated --strategy coarse:CoarseToFine --strategy-option stride=6 -- python train.py"
)
RUN = {
    "autocap devices",
    "autocap restore",
    "autocap run --device emulated --observe -- python train.py",
    STRATEGY_RUN,
    "autocap runs",
    "autocap report",
    f"autocap report {RUN_DIR}",
    f"autocap report {RUN_DIR} --html",
    f"autocap report {RUN_DIR} --json",
    f"autocap report {RUN_DIR} --follow",
    f"autocap period {RUN_DIR}/samples.csv.gz",
    "python -m bench strategies --quick --strategies coarse:CoarseToFine,model",
}
# A job that steps by hand, waiting for a GPU most of the time.
JOB = """
import time, autocap
end = time.monotonic() + 2.0
while time.monotonic() < end:
    for _ in range(50_000):
        pass
    time.sleep(0.004)
    autocap.step()
"""
# Where `autocap run`, `attach` and `sweep` go once their options are read.
SESSIONS = (
    "autocap.session.modes:run",
    "autocap.session.modes:attach",
    "autocap.sweep.session:sweep",
    "autocap.plugins.recur.session:recur",
    "autocap.plugins.recur.cli:_speak",
)


class Parsed(Exception):
    """Ends a program once its options are read."""


def words_of(line: str) -> tuple[dict[str, str], list[str]]:
    """The variables in front of a command, and its words without sudo, the comment and where its output goes."""
    words = shlex.split(re.sub(r"\$\(which (\w+)\)", r"\1", line), comments=True)
    words = words[: words.index(">")] if ">" in words else words
    variables = {}
    while re.match(r"[A-Z_]+=", words[0]):
        name, _, variables[name] = words.pop(0).partition("=")
    return variables, words[words[0] == "sudo" :]


def check_autocap(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []

    def session(config: Any, *_: Any) -> int:
        called.append(config)
        return 0

    def command(self: Any, args: argparse.Namespace) -> int:
        called.append(args)
        return 0

    for reference in SESSIONS:
        module, _, name = reference.partition(":")
        monkeypatch.setattr(f"{module}.{name}", session)
    readers = ("devices", "doctor", "restore", "report", "runs", "period", "config", "completion", "help")
    for name in (*readers, "memory", "helper", "budget", "predict"):
        monkeypatch.setattr(registry.load("commands", name), "run", command)
    assert autocap.cli.main(words) == 0
    assert len(called) == 1


def check_workloads(words: list[str]) -> None:
    parse = import_module("autocap.workloads.__main__")._parser().parse_args
    parse(words)
    if "--" in words:  # record: what follows is a network and options of train
        parse(["train", *words[words.index("--") + 1 :]])


def check_benchmark(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parse_args = argparse.ArgumentParser.parse_args

    def then_end(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        parse_args(self, args, namespace)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", then_end)
    with pytest.raises(Parsed):
        import_module(BENCHMARKS[words[0]]).main(words[1:])


def check(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse a command as its program does."""
    match words_of(line)[1]:
        case ["autocap" | ".venv/bin/autocap", *options]:
            check_autocap(options, monkeypatch)
        case ["python" | ".venv/bin/python", "-m", "bench", *options]:
            check_benchmark(options, monkeypatch)
        case ["python" | ".venv/bin/python", "-m", "autocap.workloads", *options]:
            check_workloads(options)
        case [".venv/bin/python", "-m", "pytest", where, *_]:
            assert (ROOT / where).exists()
        case ["python3", "-m", "venv", ".venv"]:
            pass  # where the commands below it are
        case [".venv/bin/pip", "install", "."]:
            assert (ROOT / "pyproject.toml").exists()
        case ["make", target]:
            recipe = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
            for made in recipe.replace("\\\n", "").splitlines():
                if re.search(r"/autocap run", made):
                    check(made.replace("$PATH", "").replace(".venv/bin/autocap", "autocap"), monkeypatch)
                    check(made.partition(" -- ")[2], monkeypatch)
        case ["docker", "build", "-f", "Containerfile", "-t", "autocap", "."]:
            assert (ROOT / "Containerfile").exists()
        case ["docker", "run", *words]:
            # What stands behind the image; tests/test_container.py looks at what is in front of it.
            check_autocap(words[len(words) - words[::-1].index("autocap") :], monkeypatch)
        case ["curl", "-s", "localhost:9101/metrics"]:
            pass  # the port of the command above it
        case words:
            pytest.fail(f"no test knows {words}; mark what is no command as text")


@pytest.mark.parametrize(("block", "line"), COMMANDS, ids=IDS)
def test_a_command_is_one_that_its_program_takes(block: Block, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(line, monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A folder as the documents have it: a training script, a strategy of one's own, and the run that they report."""
    cli = Cli(tmp_path_factory.mktemp("documents"))
    (cli.folder / "train.py").write_text(JOB)
    (cli.folder / "coarse.py").write_text(
        next(block.text for block in ALL_BLOCKS if "class CoarseToFine" in block.text)
    )
    cli.env["PATH"] = f"{Path(sys.executable).parent}:{cli.env['PATH']}"
    yield cli
    cli.end()


def run(line: str, cli: Cli) -> str:
    """Run `autocap …` in the folder, as a process of its own; what it printed."""
    done = cli(*words_of(line)[1][1:])
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_what_is_run_is_in_the_documents() -> None:
    assert {line.partition("  #")[0].strip() for _, line in COMMANDS} >= RUN


def test_devices_and_restore_answer_where_there_is_nothing(folder: Cli) -> None:
    assert "autocap run --device emulated" in run("autocap devices", folder)
    assert "nothing to put back" in run("autocap restore", folder)


@pytest.mark.slow
def test_an_observed_run_can_be_reported_in_every_way(folder, monkeypatch, capsys) -> None:
    said = run("autocap run --device emulated --observe -- python train.py", folder)
    found = re.search(r"run directory: (\S+)", said)
    assert found is not None, said
    (folder.folder / found[1]).rename(folder.folder / RUN_DIR)
    monkeypatch.chdir(folder.folder)

    def shown(line: str) -> str:
        assert autocap.cli.main(words_of(line)[1][1:]) == 0
        return "".join(capsys.readouterr())

    table = shown(f"autocap report {RUN_DIR}")
    assert "EMULATED power: modelled, not measured" in table
    assert table in shown(f"autocap report {RUN_DIR} --follow")
    assert table in shown("autocap report")
    assert RUN_DIR.rpartition("/")[2] in shown("autocap runs")
    assert '"schema": 1' in shown(f"autocap report {RUN_DIR} --json")
    assert "report.html" in shown(f"autocap report {RUN_DIR} --html")
    assert "one every" in shown(f"autocap period {RUN_DIR}/samples.csv.gz")


@pytest.mark.slow
def test_a_strategy_of_ones_own_is_found_in_the_current_folder(folder: Cli) -> None:
    assert "with strategy coarse:CoarseToFine" in run(STRATEGY_RUN, folder)


@pytest.mark.slow
def test_a_strategy_of_ones_own_stands_beside_the_built_in_ones_on_the_published_curves(
    folder: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(folder.folder)
    words = words_of("python -m bench strategies --quick --strategies coarse:CoarseToFine,model")[1][3:]
    assert import_module(BENCHMARKS[words[0]]).main(words[1:]) == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| coarse")]
    assert len(rows) == 3
    assert all(float(row[4].split(" / ")[0]) < 1 for row in rows), "mean regret, percent"


# Commands and options in running text.

BY_MESSAGE = {ROOT / "docs" / name for name in ("no-cap-kept.md", "troubleshooting.md")}  # what begins with autocap
SPANS = [(page, " ".join(span.split())) for page in PAGES for span in re.findall(r"`([^`]+)`", prose(page))]
FOREIGN = {  # of other programs; any of ours
    *("--cap-add", "--init", "--privileged", "--stop-timeout", "--option", "--hypothesis-seed"),
    *("--me", "--comment", "--overlap", "--exclusive", "--signal", "--full", "--gres", "--gpus-per-node"),  # of Slurm's
}


def own_options() -> set[str]:
    """Every option of every program of ours."""
    found = set()
    for name in registry.ours("commands"):
        parser = argparse.ArgumentParser()
        registry.load("commands", name)().prepare_parser(parser)
        found |= set(parser._option_string_actions)
    programs = [*BENCHMARKS.values(), "bench.strategies.curve_set.__main__", "autocap.testing.nvml.player"]
    programs += ["bench.budget_faults.command", "bench.budget_nodes.command", "bench.common", "bench.faults.outcome"]
    programs += [f"bench.cluster.{name}" for name in ("up", "job", "jobs", "deaths", "cost")]
    for module in [*programs, "autocap.workloads.__main__"]:
        path = ROOT / (module.replace("autocap.workloads", "workloads").replace(".", "/") + ".py")
        found |= set(re.findall(r'"(--[a-z][a-z-]+)"', path.read_text()))
    return found | {"--help", "--version"}


def test_every_option_in_the_text_is_one_of_ours() -> None:
    known = own_options() | FOREIGN
    wrong = {
        f"{page.name}: {option} in `{span}`"
        for page, span in SPANS
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span)
        if option not in known
    }
    assert not wrong


@pytest.mark.parametrize("span", sorted({span for _, span in SPANS if span.startswith("python -m bench ")}))
def test_a_benchmark_in_the_text_takes_its_options(span: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not re.search(r"…|--help|\b[A-Z]{3,}\b", span):  # else it is a pattern of a command
        check_benchmark(words_of(span)[1][3:], monkeypatch)


def test_every_command_in_the_text_is_one_of_ours() -> None:
    for page, span in SPANS:
        match words_of(span)[1] if span.startswith("sudo ") else span.split():
            case ["autocap", name, *_] if re.fullmatch(r"[a-z]+", name) and page not in BY_MESSAGE:
                assert name in {*autocap.cli.commands(), "inside"}, f"{page.name}: {span}"
            case ["python", "-m", "bench", name, *_] if re.fullmatch(r"[a-z]+", name):
                assert name in BENCHMARKS, f"{page.name}: {span}"
            case ["python", "-m", module, *_] if module.startswith("bench."):
                package = (ROOT / module.replace(".", "/")).is_dir()
                assert import_module(f"{module}.__main__" if package else module).main, f"{page.name}: {span}"
            case _:
                pass


def test_the_jobs_that_are_shown_can_be_planned_with_the_command_that_is_shown(tmp_path, monkeypatch, capsys) -> None:
    (jobs,) = (block.text for block in ALL_BLOCKS if block.text.startswith("name,arrive_s,work_s"))
    (line,) = (line for block, line in COMMANDS if "--simulate JOBS.csv" in line)
    (tmp_path / "JOBS.csv").write_text(jobs)
    monkeypatch.chdir(tmp_path)
    assert autocap.cli.main(shlex.split(line)[1:]) == 0
    assert "2 jobs" in capsys.readouterr().out
