"""Without a plug-in, or without any, everything else works; and what is missing is said in a sentence."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = ("fleet", "grid", "predict", "recur", "trackers")
# Of each plug-in a command line, and what is said where it is not there.
ASKED = {
    "fleet": (["run", "--nodes", "slurm", "--", "true"], "--nodes slurm needs the plug-in fleet"),
    "grid": (
        ["run", "--device", "emulated", "--carbon", "gb", "--", "true"],
        "unknown source 'gb'; give a number, in grams of CO2 per kWh, or file:PATH, command:CMD",
    ),
    "predict": (["predict", "run", "--to", "all"], "unknown command 'predict'"),
    "recur": (["recur", "status"], "unknown command 'recur'"),
    "trackers": (
        ["run", "--device", "emulated", "--log-to", "wandb", "--", "true"],
        "--log-to wandb needs the plug-in",
    ),
}


class Copy:
    """autocap in a folder, from which plug-ins can be taken."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.env = folder, {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "100"}
        self.add("autocap", "strategies", "workloads", "docs")

    def add(self, *folders: str) -> None:
        for name in folders:
            left_out = shutil.ignore_patterns("__pycache__", *(["plugins"] if name == "tests" else []))
            shutil.copytree(ROOT / name, self.folder / name, symlinks=True, ignore=left_out)

    def __call__(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*words), cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-P", "-m", "autocap", *words]

    def without(self, *plugins: str) -> None:
        for name in plugins:
            shutil.rmtree(self.folder / "autocap/plugins" / name)


@pytest.mark.slow
@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_only_a_plug_in_does_is_refused_without_it(tmp_path: Path, plugin: str) -> None:
    copy = Copy(tmp_path)
    copy.without(plugin)
    words, said = ASKED[plugin]

    done = copy(*words)

    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("autocap: ") == 1


@pytest.mark.slow
def test_without_any_plug_in_jobs_are_tuned_attached_to_swept_and_reported(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    shutil.rmtree(tmp_path / "autocap/plugins")
    job = (sys.executable, "-c", "import time; time.sleep(0.3)")

    helped = copy("--help")
    assert helped.returncode == 0
    assert not {"budget", "predict", "recur"} & {
        line.split()[0] for line in helped.stdout.splitlines() if line.startswith("  ")
    }
    run = copy("run", "--device", "emulated", "--no-memory", "--out", "run", "--", *job)
    assert (run.returncode, "Traceback" in run.stderr) == (0, False), run.stderr
    shown = copy("report", "run")
    assert (shown.returncode, "no cap" in shown.stdout.lower()) == (0, True), shown.stderr
    swept = copy("sweep", "--device", "emulated", "--caps", "200", "--repeats", "1", "--out", "sweep", "--", *job)
    assert swept.returncode == 0, swept.stderr
    assert copy("report", "sweep").returncode == 0
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as to_attach:
        words = ("attach", str(to_attach.pid), "--device", "emulated", "--no-memory")
        attached = subprocess.Popen(copy.command(*words), env=copy.env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert "autocap" in attached.stderr.readline()
        to_attach.communicate(b"\n")
        attached.communicate()
    assert attached.returncode == 0


@pytest.mark.slow
def test_the_cores_tests_of_words_settings_and_rooms_pass_without_plug_ins(tmp_path: Path) -> None:
    """Those that come nearest to what plug-ins add; all others name none."""
    copy = Copy(tmp_path)
    shutil.rmtree(tmp_path / "autocap/plugins")
    copy.add("tests", "bench")
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    files = (
        "test_layers.py",
        *(f"cli/test_{name}.py" for name in ("command_words", "settings")),
    )
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in files))
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=copy.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_settings_of_a_plug_in_that_is_not_there_stop_no_run(tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    copy.without("fleet", "recur")
    settings = tmp_path / "autocap.toml"
    settings.write_text('observe = true\nbatch-sizes = [1, 2]\n[budget]\nfloor = "what"\n[recur]\nname = "x"\n')
    shown = copy("config", "--json")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert '"./autocap.toml"' in shown.stdout
    settings.write_text("observ = true\n")
    done = copy("config")
    assert (done.returncode, "there is no option 'observ' (did you mean observe?)" in done.stderr) == (2, True)


def test_the_core_and_its_tests_name_no_plug_in() -> None:
    """What is run where there is none; the benches, the documents and the packaging are of all of it."""
    of_all = ("plugins", "bench", "docs", "frameworks", "doubles")
    rooms = (room for room in (ROOT / "tests").iterdir() if room.is_dir() and room.name not in of_all)
    tests = [path for room in rooms for path in room.rglob("*.py")]
    assert len(tests) > 100
    named = [path for path in tests if "autocap.plugins" in path.read_text() or "tests.plugins" in path.read_text()]
    assert named == []
