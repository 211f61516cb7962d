"""Standard streams that are closed, full, or read by nobody: the job and its limits feel nothing of it. A service's
log, line by line."""

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autocap.cli import main
from autocap.cli.logging_setup import ServiceLines, goes_to_journal
from tests.cli.test_cli import EMULATED, Cli, terminated
from tests.doubles import warm
from tests.doubles.recorded import record
from tests.doubles.waiting import eventually

NO_SPACE = "autocap: standard output cannot be written: No space left on device; check where it goes\n"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("runs") / "run")


def closed(cli: Cli, closing: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command with streams closed as a shell does it; whatever it prints on those that are not is read."""
    script = f'exec "$@" {closing}'
    argv = ["sh", "-c", script, "sh", *cli.argv(*words)]
    return subprocess.run(argv, cwd=cli.folder, env=cli.env, input=b"", capture_output=True, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("closing", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_with_closed_streams_a_job_is_tuned_as_ever_and_its_status_is_given(cli: Cli, closing: str) -> None:
    job = "for fd in 0 1 2; do name=$(readlink /proc/$$/fd/$fd); echo $name >> fds; done"
    # The command is recorded beside the events, and must not be what is found.
    job += "; until grep -qs device_[f]ound run/events.jsonl; do sleep 0.05; done; exit 3"
    done = closed(cli, closing, "run", *EMULATED, "--json", "--out", "run", "--", "sh", "-c", job)
    assert done.returncode == 3, done.stderr
    assert len(cli.events("device_found")) == 1
    assert cli.events("run_ended")[0]["exit_status"] == 3
    assert (cli.folder / "run" / "report.html").exists()
    assert cli.leftovers() == []
    assert (cli.folder / "fds").read_text().split().count("/dev/null") == closing.count("&-")
    if ">&-" not in closing.split():
        assert json.loads(done.stdout.splitlines()[-1])["ended_because"] == "the job ended"


@pytest.mark.slow
def test_a_sweep_with_all_streams_closed_is_done(cli: Cli) -> None:
    options = ("--caps", "200", "--repeats", "1", "--no-warm-up", "--cool-down", "0", "--out", "run")
    done = closed(cli, "<&- >&- 2>&-", "sweep", *EMULATED, *options, "--", "true")
    assert done.returncode in (0, 1)  # so short a command is not always measured
    assert cli.events("run_ended")


@pytest.mark.slow
def test_attaching_with_all_streams_closed_goes_on_to_the_end_of_the_job(cli: Cli) -> None:
    job = subprocess.Popen([sys.executable, str(cli.job), "60"], cwd=cli.folder, stdout=subprocess.DEVNULL)
    attach = subprocess.Popen(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh",
         *cli.argv("attach", "--pid", str(job.pid), *EMULATED, "--out", "run", "--json")],
        cwd=cli.folder, env=cli.env,
    )  # fmt: skip
    try:
        eventually(lambda: cli.events("device_found"))
        job.kill()
        job.wait()
        assert attach.wait(120) == 0
    finally:
        for process in (job, attach):
            process.kill()
            process.wait()
    assert cli.leftovers() == []


@pytest.mark.slow
def test_a_script_with_all_streams_closed_is_tuned(cli: Cli) -> None:
    script = (
        "import autocap, time\n"
        "with autocap.tune(device='emulated', out='run'):\n"
        "    end = time.monotonic() + 30\n"
        "    while time.monotonic() < end and 'device_' + 'found' not in open('run/events.jsonl').read()"
        " if __import__('os').path.exists('run/events.jsonl') else time.monotonic() < end:\n"
        "        time.sleep(0.05)\n"
    )
    (cli.folder / "script.py").write_text(script)
    root = str(Path(__file__).resolve().parent.parent.parent)
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "script.py"],
        cwd=cli.folder, env={**cli.env, "PYTHONPATH": root}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    assert cli.events("device_found")
    assert cli.events("run_ended")


@pytest.mark.parametrize("words", [["--help"], ["restore"], ["report", "RUN"], ["report", "RUN", "--json"]])
@pytest.mark.parametrize("full", ["out", "err"])
def test_a_full_disk_is_one_sentence_and_status_1_and_no_matter_for_what_is_only_said(
    cli: Cli, recorded: Path, words: list[str], full: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: what Python itself does at the end is in the next test."""
    monkeypatch.chdir(cli.folder)
    for name, value in cli.env.items():
        monkeypatch.setenv(name, value)
    with open("/dev/full", "w") as stream, (cli.folder / "other").open("w") as other:
        monkeypatch.setattr(sys, "stdout", stream if full == "out" else other)
        monkeypatch.setattr(sys, "stderr", other if full == "out" else stream)
        status = main([str(recorded) if word == "RUN" else word for word in words])
        monkeypatch.undo()
        os.dup2(other.fileno(), stream.fileno())  # so that closing it can write what it still holds
    said = (cli.folder / "other").read_text()
    assert (status, said.startswith(NO_SPACE)) == ((1, True) if full == "out" else (0, False))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "words", "status", "said"),
    [
        (">/dev/full", ["report", "RUN"], 1, NO_SPACE),
        ("2>/dev/full", ["report", "RUN", "--html"], 0, ""),
        ("2>/dev/full", ["report", "nosuch"], 1, ""),
        (">/dev/full", ["run", "--json", "--quiet", "--", "sh", "-c", "exit 3"], 3, NO_SPACE),
        ("1</dev/null", ["--help"], 1, NO_SPACE.replace("No space left on device", "Bad file descriptor")),
        (">&- 2>&- <&-", ["report", "RUN"], 0, ""),
        ("| true", ["report", "RUN"], 0, ""),
    ],
)
def test_python_itself_has_nothing_to_add(cli, recorded, to, words, status, said) -> None:
    done = closed(cli, to, *(str(recorded) if word == "RUN" else word for word in words))
    assert (done.returncode, done.stderr.decode()) == (status, said)


@contextmanager
def unread_pipe() -> Iterator[int]:
    """A pipe that is full, and that nobody reads."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    os.write(writing, 4096 * b"x")
    os.set_blocking(writing, True)
    yield writing
    os.close(reading)
    os.close(writing)


@pytest.mark.slow
def test_nobody_reads_stderr_and_signals_are_passed_on_and_the_run_ends_with_its_job(cli: Cli) -> None:
    script = "trap 'exit 7' TERM; touch ready; while :; do sleep 0.05; done"
    with unread_pipe() as pipe:
        run = warm.start(
            cli.argv("run", *EMULATED, "-v", "--json", "--out", "run", "--", "sh", "-c", script),
            cwd=cli.folder, env=cli.env, stdout=subprocess.PIPE, stderr=pipe,
        )  # fmt: skip
        eventually(lambda: (cli.folder / "ready").exists() and cli.events("device_found"))
        began_s = time.monotonic()
        assert terminated(run) == 7
        assert time.monotonic() - began_s < 6
        result = json.loads(run.stdout.read())
        run.stdout.close()
    assert result["device"]["gpus"][0]["restored"] is True
    assert (cli.folder / "run" / "report.html").exists()
    assert cli.leftovers() == []


@pytest.mark.slow
def test_nobody_reads_stdout_either_and_a_signal_ends_the_wait_for_it(cli: Cli) -> None:
    with unread_pipe() as pipe:
        run = warm.start(
            cli.argv("run", "--json", "--out", "run", "--", "sh", "-c", "exit 3"),
            cwd=cli.folder, env=cli.env, stdout=pipe, stderr=pipe,
        )  # fmt: skip
        eventually(lambda: (cli.folder / "run" / "report.html").exists())
        time.sleep(1.5)  # for what is said, a moment's patience
        assert run.poll() is None
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM


def test_stderr_of_the_child_is_what_it_was(cli: Cli) -> None:
    """A pipe is one description for all who have it: were ours not to block, the job's would not either."""
    reading, writing = os.pipe()
    words = ("run", "--quiet", "--", sys.executable, "-S", "-c", "import os; print(os.get_blocking(2))")
    with warm.start(cli.argv(*words), cwd=cli.folder, env=cli.env, stdout=subprocess.PIPE, stderr=writing) as run:
        assert run.stdout.read() == "True\n"
    os.close(reading)
    os.close(writing)


def log_record(level: int, text: str, *, fault: BaseException | None = None) -> logging.LogRecord:
    info = None if fault is None else (type(fault), fault, None)
    return logging.LogRecord("autocap", level, "here", 1, text, None, info)


def test_the_journal_is_told_how_grave_a_line_is():
    lines = ServiceLines(to_journal=True)
    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
    assert [lines.format(log_record(level, "x")) for level in levels] == ["<7>x", "<6>x", "<4>x", "<3>x", "<3>x"]
    assert lines.format(log_record(logging.ERROR, "x", fault=ValueError("y"))) == "<3>x\n<3>ValueError: y"


def test_whatever_a_line_holds_it_is_one_line():
    assert ServiceLines(to_journal=True).format(log_record(logging.INFO, "a\n<0>b\x1b[2J")) == "<6>a\\n<0>b\\x1b[2J"
    assert ServiceLines(to_journal=False).format(log_record(logging.INFO, "a\nb")) == "autocap: a\\nb"
    faulty = log_record(logging.ERROR, "x", fault=ValueError("y\x1b[2J"))
    assert ServiceLines(to_journal=False).format(faulty) == "autocap: x\nValueError: y\\x1b[2J"


def test_the_journal_is_known_by_its_very_stream():
    status = os.fstat(sys.__stderr__.fileno()) if sys.__stderr__ else os.stat("/dev/null")
    fd = sys.__stderr__.fileno() if sys.__stderr__ else os.open("/dev/null", os.O_WRONLY)
    assert goes_to_journal({"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}, fd)
    assert not goes_to_journal({"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"}, fd)
    assert not goes_to_journal({}, fd)
    assert not goes_to_journal({"JOURNAL_STREAM": "8:1"}, 999_999)
