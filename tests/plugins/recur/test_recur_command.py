"""`autocap recur` as a user meets it: a few real recurrences on the emulated device, and what the command refuses."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from autocap.errors import RunDirectoryError
from autocap.plugins.recur.store import FILE
from autocap.reports.document import Document
from autocap.reports.rendering import Presentation, write_page
from tests.cli.test_cli import EMULATED, Cli, Here, cli, here
from tests.doubles.waiting import eventually

__all__ = ["cli", "here"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")

# Steps by hand and reports its accuracy each "epoch"; the batch size says how fast that grows. It notes that it was
# asked to end, as one that writes a checkpoint.
JOB = """
import signal, sys, time, autocap
def end(*_):
    open("asked-to-end", "a").write("x")
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
accuracy, size = 0.0, int(sys.argv[1])
print("scale", sys.argv[2:], flush=True)
while accuracy < 0.9:
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        for _ in range(20_000):
            pass
        time.sleep(0.002)
        autocap.step()
    accuracy += size / 3000
    print(f"accuracy {accuracy:.3f}", flush=True)
    autocap.report(accuracy=accuracy)
"""
OUTPUT = r"accuracy (\S+) >= 0.9"
NAMED = ("--name", "nightly", "--batch-sizes", "100,20", "--metric", "energy", *EMULATED)


@pytest.fixture
def job(cli: Cli) -> Cli:
    cli.job.write_text(JOB)
    return cli


def state(cli: Cli) -> dict[str, Any]:
    shown = cli("recur", "status", "nightly", "--json")
    assert shown.returncode == 0, shown.stderr
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def outcomes(cli: Cli) -> list[tuple[int, str]]:
    return [(one["batch_size"], one["outcome"]) for one in state(cli)["recurrences"]]


@pytest.mark.slow
def test_a_job_comes_again_and_a_batch_size_that_costs_too_much_is_stopped(job: Cli) -> None:
    words = ("recur", *NAMED, "--lr-rule", "linear", "--target", OUTPUT, "--")
    # In a shell, which passes no signal on.
    command = ("sh", "-c", f"{job.argv()[0]} job.py {{batch_size}} {{lr_scale}}; exit $?")
    first = job(*words, *command)
    assert first.returncode == 0
    assert "recurrence 0 of nightly: batch size 100, exploring (the default comes first)\n" in first.stderr
    assert "scale ['1']" in first.stdout
    assert "the target is reached, at a cost of" in first.stderr
    second = job(*words, *command)
    assert re.search(r"recurrence 1 of nightly: batch size 20, .*; it is ended early beyond .* J\n", second.stderr)
    assert "the job is asked to end (SIGTERM): recurrence 1 has cost" in second.stderr
    assert "scale ['0.2']" in second.stdout
    assert (job.folder / "asked-to-end").exists()
    assert outcomes(job) == [(100, "reached"), (20, "stopped")]
    found = state(job)
    assert found["cheapest"] == 100
    assert found["recurrences"][0]["cost"] == pytest.approx(found["recurrences"][0]["spent"]["energy_j"])
    assert found["recurrences"][0]["gpus"] == ["Quadro RTX 6000 (emulated)"]
    assert (Path(found["recurrences"][0]["run_dir"]) / "result.json").exists()
    page = job("recur", "status", "nightly", "--html").stdout
    assert "EMULATED power: modelled, not measured" in page
    assert "<svg" in (job.folder / "nightly.html").read_text()
    assert job.leftovers() == []


@pytest.mark.slow
def test_what_was_finished_survives_a_kill_and_what_was_killed_is_lost(job: Cli) -> None:
    command = (*job.argv()[:1], "job.py", "{batch_size}")
    words = ("recur", *NAMED[:2], "--batch-sizes", "100", *NAMED[4:], "--target", "accuracy >= 0.9", "--", *command)
    assert job(*words).returncode == 0
    (before,) = state(job)["recurrences"]
    assert before["outcome"] == "reached"
    run = job.start("recur", "--out", "run", *words[1:3], "--batch-sizes", "1", *words[5:])
    eventually(lambda: job.events("device_found"))
    assert [one["outcome"] for one in state(job)["recurrences"]] == ["reached", "running"]
    run.send_signal(signal.SIGKILL)
    run.wait(120)
    first, second = state(job)["recurrences"]
    assert first == before
    assert (second["outcome"], second["spent"]) == ("lost", None)
    assert "autocap was killed" in second["reason"]
    os.kill(int(str(job.events("run_started")[0]["pid"])), signal.SIGKILL)


def test_a_signal_is_passed_on_and_says_nothing_of_the_batch_size(job: Cli) -> None:
    command = (*job.argv()[:1], "job.py", "{batch_size}")
    run = job.start("recur", *NAMED[:3], "1,2", *NAMED[4:], "--out", "run", "--target", OUTPUT, "--", *command)
    eventually(lambda: job.events("device_found"))
    run.terminate()
    assert run.wait(120) == 3
    assert (job.folder / "asked-to-end").exists()
    (lost,) = state(job)["recurrences"]
    assert (lost["outcome"], lost["reason"]) == ("lost", "a signal ended it before its target")


def test_a_job_that_cannot_be_started_is_no_recurrence(here: Here, cli: Cli) -> None:
    done = cli("recur", *NAMED, "--target", OUTPUT, "--", "no-such-program", "{batch_size}")
    assert done.returncode == 127
    assert "no-such-program" in done.stderr
    assert json.loads(here("recur", "status", "nightly", "--json").stdout)["recurrences"] == []
    other = here("recur", *NAMED, "--target", "accuracy >= 0.95", "--", "no-such-program", "{batch_size}")
    assert other.returncode == 1
    assert "nightly was to reach 'accuracy (\\S+) >= 0.9' and is now to reach 'accuracy >= 0.95'" in other.stderr
    assert here("recur", "status").stdout == "nightly\n"
    assert here("recur", "reset", "nightly").stdout == "forgotten: nightly, 0 recurrences\n"
    assert here("recur", "status").stdout.startswith("no recurring job in ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--name", "a"), "a command is missing; write `autocap recur [options] -- CMD … {batch_size} …`"),
        (("--name", "a", "--", "x"), "autocap recur needs --batch-sizes and --target as well"),
        (("--name", "a/b", "--", "x"), "argument --name: 'a/b' is no name; give 1 to 64 letters"),
        (("--batch-sizes", "8,8", "--", "x"), "argument --batch-sizes: '8,8' is no list of at most 100 different"),
        (("--batch-sizes", "8,0", "--", "x"), "argument --batch-sizes: '0' is not a whole number above 0"),
        (("--threshold", "1", "--", "x"), "argument --threshold: 1 would stop the cheapest run"),
        ((*NAMED, "--target", OUTPUT, "--", "x"), "the command has no {batch_size}"),
        ((*NAMED, "--target", "acc", "--", "x", "{batch_size}"), "--target 'acc' has no bound"),
        (
            (*NAMED, "--default-batch-size", "3", "--target", OUTPUT, "--", "x", "{batch_size}"),
            "the default batch size 3 is none of those to try: 20, 100",
        ),
        (
            (*NAMED, "--nodes", "slurm", "--target", OUTPUT, "--", "x", "{batch_size}"),
            "autocap recur runs a job on this machine; leave out --nodes slurm",
        ),
        ((*NAMED, "--html", "--target", OUTPUT, "--", "x"), "--html and --plots are of `autocap recur status`"),
        (("stauts",), "'stauts' is neither an option nor a word of `autocap recur` (did you mean status?)"),
        (("status", "a", "--", "x"), "`autocap recur status` runs nothing"),
        (("reset",), "`autocap recur reset` is followed by one name"),
        (("status", "a", "b"), "`autocap recur status` is followed by at most one name"),
        (("status", "../a"), "'../a' is no name"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_status_2(here: Here, words: tuple[str, ...], message: str) -> None:
    done = here("recur", *words)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path(os.environ["XDG_STATE_HOME"], "autocap", "recur", FILE).exists()


def test_settings_of_a_run_hold_for_its_recurrences(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOCAP_METRIC", "edp")
    words = ("--name", "a", "--batch-sizes", "8", "--target", OUTPUT, "--k", "3", "--", "x", "{batch_size}")
    said = here("recur", *words).stderr
    assert said == "autocap: k belongs to the metric eds, not to edp (with metric edp from AUTOCAP_METRIC)\n"
    Path("autocap.toml").write_text(
        'k = 3\n[run]\nmetric = "energy"\nwait = 1\n[recur]\nmetric = "edp"\nname = "a"\nbatch-sizes = [8, 16]\n'
    )
    monkeypatch.delenv("AUTOCAP_METRIC")
    shown = json.loads(here("config", "recur", "--json").stdout)["settings"]
    found = {one["option"]: (one["value"], one["unused"]) for one in shown}
    assert [found[name] for name in ("metric", "name", "batch-sizes", "wait")] == [
        ("edp", ""),
        ("a", ""),
        ("8,16", ""),
        ("1", ""),
    ]
    assert found["k"] == ("3", "the metric is edp")
    assert here("recur", "--", "x", "{batch_size}").stderr.startswith("autocap: autocap recur needs --target as well")


def test_under_sudo_it_is_refused(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocap.plugins.recur.cli.invoking_user", object)
    for words in (("status", "a"), (*NAMED, "--target", OUTPUT, "--", "x", "{batch_size}")):
        assert "autocap recur does not work under sudo; run it as yourself" in here("recur", *words).stderr


@needs_root
def test_root_follows_no_link_of_another_user_to_where_a_page_or_a_picture_goes(tmp_path: Path) -> None:
    """As plain root, in a folder of somebody else's or with a link of theirs on the way."""
    theirs, precious = tmp_path / "theirs", tmp_path / "precious"
    precious.write_text("root's own")
    theirs.mkdir()
    (theirs / "page.html").symlink_to(precious)
    os.chown(theirs, 65534, 65534)
    os.lchown(theirs / "page.html", 65534, 65534)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "page.html").symlink_to(precious)
    report = Presentation(document=Document(headline="", body=(), job=(("", ""),)), pictures=tuple, result=None)
    for name in ("page.html", "new.html"):
        with pytest.raises(RunDirectoryError, match="output directories of other users are refused for root"):
            write_page(theirs, report, name)
    write_page(mine, report, "page.html")  # put there instead of the link, whoever made it
    assert (mine / "page.html").read_text() == report.page
    assert not (mine / "page.html").is_symlink()
    assert precious.read_text() == "root's own"
    assert sorted(os.listdir(theirs)) == ["page.html"]
