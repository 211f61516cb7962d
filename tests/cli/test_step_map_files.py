"""The files of the step counter, as a run leaves them: none, whatever it died of or its job did to its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocap.cli import main
from autocap.job.processes import package_root
from tests.cli.test_cli import EMULATED, Cli

SUDO = {"SUDO_UID": "65534", "SUDO_GID": "65534", "SUDO_USER": "nobody"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can imitate sudo")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that everybody can reach."""
    made = Path(tempfile.mkdtemp(prefix="autocap-maps-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.mark.slow
@pytest.mark.parametrize("sudo", [{}, pytest.param(SUDO, marks=needs_root)], ids=["as a user", "under sudo"])
def test_what_a_run_that_no_watchdog_knew_leaves_is_removed_by_restore_which_says_so(
    folder: Path, sudo: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def said_of(path: str) -> list[str]:
        return [line for line in capfd.readouterr().out.splitlines() if path in line]

    home = folder / "home"
    home.mkdir()
    if sudo:
        os.chown(home, int(sudo["SUDO_UID"]), int(sudo["SUDO_GID"]))
    for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AUTOCAP_OBSERVE", raising=False)
    monkeypatch.setenv("AUTOCAP_STATE_DIR", str(folder / "state"))
    job = 'echo "$$ $AUTOCAP_STEP_MAP"; exec sleep 60'
    words = ["run", "--observe", *EMULATED, f"--out={home / 'run'}", "--", "sh", "-c", job]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "autocap", *words],
        cwd=home,
        env={**os.environ, **sudo, "PYTHONPATH": package_root()},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as run:
        child, path = run.stdout.readline().split()
        assert main(["restore"]) == 0
        assert os.path.exists(path)  # its maker lives
        assert said_of(path) == []
        run.kill()
        run.wait()
        os.kill(int(child), signal.SIGKILL)
    assert os.stat(path).st_uid == int(sudo.get("SUDO_UID", os.getuid()))
    monkeypatch.setenv("AUTOCAP_OBSERVE", "1")
    assert main(["restore"]) == 1
    assert os.path.exists(path)
    says = f"{path}: the step counter's file of a run that was killed"
    assert said_of(path) == [f"{says}, would be removed"]
    monkeypatch.delenv("AUTOCAP_OBSERVE")
    assert main(["restore", "--json"]) == 0
    assert not os.path.exists(path)
    (line,) = said_of(path)
    said = {"uuid": None, "outcome": "removed", "sentence": f"{says}, removed"}
    assert said in json.loads(line)


def test_a_job_that_puts_a_directory_in_the_place_of_its_map_ends_with_its_own_status(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    job = 'rm "$AUTOCAP_STEP_MAP"; mkdir "$AUTOCAP_STEP_MAP"; echo "$AUTOCAP_STEP_MAP"; exit 3'
    done = cli("run", "--observe", *EMULATED, "--", "sh", "-c", job)
    os.rmdir(done.stdout.strip())
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "internal fault" not in done.stderr


def test_inside_opens_and_removes_nothing_that_its_command_line_names(tmp_path, monkeypatch, capfd) -> None:
    for name in SUDO:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AUTOCAP_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    pid = str(os.getppid())
    assert main(["inside", f"--pid={pid}", f"--step-map={victim}", *EMULATED]) == 2
    assert main(["inside", f"--pid={pid}", "--step-map-fd=999", *EMULATED]) == 1
    refused, untuned = capfd.readouterr().err.splitlines()
    assert "--step-map" in refused
    assert "the job runs untuned: descriptor 999 is not open, so it is no step map; autocap.tune alone" in untuned
    assert victim.read_text() == "precious"
