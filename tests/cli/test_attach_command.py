"""`autocap attach` as a user meets it: real processes on the emulated device, which belong to nobody of ours."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_cli import EMULATED, Cli, Here, is_never_stopped, require_said, terminated
from tests.doubles.waiting import eventually

TRAINING = "import time\nwhile True:\n    sum(range(100_000))\n    time.sleep(0.02)"


@pytest.fixture
def trainer() -> Iterator["subprocess.Popen[bytes]"]:
    """A job in a session of its own, as if it had been started elsewhere."""
    child = subprocess.Popen([sys.executable, "-S", "-c", TRAINING], start_new_session=True)
    yield child
    child.kill()
    child.wait()


def attach(cli: Cli, pid: int, *words: str) -> "subprocess.Popen[str]":
    run = cli.start("attach", "--pid", str(pid), *EMULATED, "--out", "run", *words)
    eventually(lambda: cli.events("state_entered"))
    return run


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_puts_the_caps_back_and_leaves_the_job_alone(cli: Cli, trainer, signum: int) -> None:
    run = attach(cli, trainer.pid)
    run.send_signal(signum)
    assert run.wait(120) == 0
    assert trainer.poll() is None
    assert is_never_stopped(trainer.pid, 0.2)
    assert cli.leftovers() == []
    (ended,) = cli.events("run_ended")
    assert ended["ended_because"] == f"{signal.Signals(signum).name} ended autocap, the job goes on"
    assert cli.events("limit_restored")[0]["restored"] is True


@pytest.mark.slow
def test_it_ends_with_the_job_and_its_record_names_it(cli: Cli, trainer) -> None:
    run = attach(cli, trainer.pid)
    trainer.kill()
    assert run.wait(120) == 0
    (started,) = cli.events("run_started")
    assert (started["mode"], started["pid"]) == ("attach", trainer.pid)
    assert started["command"] == [sys.executable, "-S", "-c", TRAINING]
    assert cli.events("run_ended")[0]["ended_because"] == "the job ended"
    assert cli.leftovers() == []


@pytest.mark.slow
def test_a_suspended_autocap_stops_itself_alone_and_goes_on_later(cli: Cli, trainer) -> None:
    run = attach(cli, trainer.pid)
    run.send_signal(signal.SIGTSTP)
    eventually(lambda: Path(f"/proc/{run.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    assert is_never_stopped(trainer.pid, 0.2)
    run.send_signal(signal.SIGCONT)
    assert terminated(run) == 0
    assert trainer.poll() is None


@pytest.mark.slow
def test_a_second_attach_is_refused_with_the_pid_of_the_first(cli: Cli, here: Here, trainer) -> None:
    run = attach(cli, trainer.pid)
    second = here("attach", "--pid", str(trainer.pid), *EMULATED)
    assert second.returncode == 1
    said = rf"autocap: emulated-{trainer.pid}-\d+ is controlled by autocap with PID {run.pid}; wait for it.*\n"
    assert re.fullmatch(said, second.stderr)
    assert not (cli.folder / "autocap-runs").exists()
    assert terminated(run) == 0


def test_observing_takes_no_lock_and_writes_no_journal(cli: Cli, trainer) -> None:
    run = attach(cli, trainer.pid, "--observe")
    assert cli.leftovers() == []
    assert terminated(run) == 0
    assert cli.events("limit_restored")[0]["final_w"] == 260.0
    assert cli.events("cap_set") == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_another_users_process_is_refused_on_the_emulated_device_even_to_root(here: Here) -> None:
    other = subprocess.Popen(["sleep", "60"], user=12345, start_new_session=True)
    try:
        done = here("attach", "--pid", str(other.pid), *EMULATED)
        require_said(done, 1, f"PID {other.pid} of the job belongs to user 12345, autocap runs as user 0; the emulated")
    finally:
        other.kill()
        other.wait()


def test_without_an_nvidia_driver_attach_says_what_else_there_is(cli: Cli, trainer) -> None:
    done = cli("attach", "--pid", str(trainer.pid))
    assert done.returncode == 1
    assert re.fullmatch(r"autocap: .*--device emulated.*\n", done.stderr)
    assert not (cli.folder / "autocap-runs").exists()
