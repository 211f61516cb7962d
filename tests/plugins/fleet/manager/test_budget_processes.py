"""A budget between real processes: what is given and put back, whoever is killed."""

import json
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocap.cli import main
from bench.budget_faults.command import credentials
from bench.budget_faults.scene import ARRIVALS_MW, BUDGET_W, LESS_W, Floor, is_alive
from bench.budget_faults.vtn import CLIENT_SECRET, StandInVtn, event, in_seconds
from tests.doubles.jobs import children


@pytest.fixture
def floor(tmp_path: Path) -> Iterator[Floor]:
    with Floor(tmp_path / "floor") as floor:
        yield floor


def is_as_found(floor: Floor) -> bool:
    return floor.are_back() and not floor.leftovers()


@pytest.mark.slow
def test_four_jobs_on_eight_gpus_share_a_budget_that_falls(floor: Floor) -> None:
    floor.start_jobs()
    floor.start_budget(BUDGET_W)
    floor.until(lambda: floor.joined() == 4, "all jobs have joined")
    assert floor.autocap("budget", "set", f"{LESS_W:g}").returncode == 0
    assert floor.is_within(LESS_W)  # the word is answered once it is so
    floor.until(lambda: floor.power_w() <= LESS_W, "the cards draw no more")
    assert "a power budget of 1200 W runs here" in floor.autocap("devices").stdout
    swept = floor.autocap("sweep", "--gpus", "0", "--shared-gpu", "--repeats", "1", "--", "true")
    assert swept.returncode == 1
    assert "a power budget of 1200 W runs here, and a sweep needs caps of its own choice" in swept.stderr
    second = floor.autocap("budget", "500")
    assert second.returncode == 1
    assert "a budget runs here already" in second.stderr
    shown = floor.autocap("budget", "status").stdout
    assert f"budget {LESS_W:.0f} W (fair)" in shown
    assert floor.harmed() is None
    floor.end()
    assert is_as_found(floor)
    assert floor.supervisor.returncode == 0
    report = floor.autocap("report", str(floor.folder / "record")).stdout
    assert "1600/1200 W for 4 jobs on 8 GPUs" in report
    assert "limits found that are back: 8 of 8" in report


def signalled(floor: Floor, signum: int) -> None:
    """The budget has ended by a signal to its supervisor."""
    os.kill(floor.supervisor.pid, signum)
    floor.until(floor.has_ended, "the budget ends")


@pytest.mark.slow
def test_a_manager_that_is_killed_or_stopped_is_followed_by_another_and_without_the_supervisor_by_none(
    floor: Floor,
) -> None:
    floor.start_jobs(1)
    floor.start_budget(LESS_W)
    floor.autocap("budget", "set", "1100", "--policy", "throughput")
    floor.until(lambda: floor.joined() == 1, "the job has joined")
    weighed = [floor.autocap("budget", "weight", str(pid), "2.5") for pid in (floor.players[0].pid, os.getpid())]
    assert [done.returncode for done in weighed] == [0, 1]
    assert f"process {os.getpid()} belongs to no job under the budget; `autocap budget status`" in weighed[1].stderr
    first = floor.manager_pid()
    os.kill(first, signal.SIGKILL)
    floor.until(lambda: floor.manager_pid() != first, "another manager answers")
    standing = floor.standing()
    assert (standing.budget_w, standing.policy) == (1100.0, "throughput")
    assert floor.is_within(1100.0)
    floor.until(lambda: floor.joined() == 1, "the job is found again")
    found = floor.standing()
    assert [job.weight for job in found.jobs] == [2.5]
    second = found.pid
    os.kill(second, signal.SIGSTOP)
    floor.until(lambda: not is_alive(second), "the stopped one is killed")
    floor.until(lambda: floor.manager_pid() != second, "another manager answers")
    assert floor.is_within(1100.0)
    third = floor.manager_pid()
    os.kill(floor.supervisor.pid, signal.SIGKILL)
    floor.until(lambda: not is_alive(third), "the manager ends")
    assert is_as_found(floor)


@pytest.mark.slow
def test_when_both_are_killed_the_limits_are_back_all_the_same(floor: Floor) -> None:
    floor.start_jobs(1)
    floor.start_budget(LESS_W)
    manager = floor.manager_pid()
    os.kill(floor.supervisor.pid, signal.SIGKILL)
    os.kill(manager, signal.SIGKILL)
    floor.until(floor.are_back, "the watchdog puts the limits back")


@pytest.mark.slow
def test_a_tuner_is_lent_its_devices_follows_a_ceiling_that_falls_and_what_it_leaves_is_the_budgets(
    floor: Floor,
) -> None:
    floor.start_jobs(1)
    floor.start_budget(BUDGET_W)
    floor.start_tuner(1)
    floor.until(lambda: len(set(floor.limits_mw()[2:4]) & {130_000, 170_000, 200_000}) == 1, "it tries a cap")
    floor.tell(820.0)
    assert floor.is_within(820.0)
    floor.until(lambda: ceilings(floor)[-1] < 200.0, "the tuner has heard of it")
    floor.tell(BUDGET_W)
    floor.until(lambda: ceilings(floor)[-1] > 200.0, "it hears of more")
    assert floor.joined(tuned=True) == 1
    assert not any("tuning ended" in line for line in floor.said())
    floor.until(lambda: len(set(floor.limits_mw()[2:4]) & {130_000, 170_000, 200_000}) == 1, "it tries a cap")
    os.kill(floor.tuner.pid, signal.SIGKILL)
    floor.until(lambda: floor.joined(tuned=True) == 0, "the manager takes it back")
    floor.until(lambda: floor.limits_mw()[2] not in (130_000, 170_000, 200_000), "the budget's cap holds")
    assert floor.is_within(BUDGET_W)
    floor.end()
    assert is_as_found(floor)


def ceilings(floor: Floor) -> list[float]:
    """What the tuner was given so far, watts."""
    lines = (floor.folder / "run" / "events.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith('{"event": "granted"') and line.endswith("}")]
    return [event["ceiling_w"] for event in found]


@pytest.mark.parametrize("words", ["set 100", "status", "watch", "end"])
def test_words_to_a_budget_that_does_not_run(words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("AUTOCAP_STATE_DIR", str(tmp_path))
    assert main(["budget", *shlex.split(words)]) == 1
    assert "no budget runs here; start one with `autocap budget WATTS`" in capsys.readouterr().err


@pytest.mark.slow
def test_a_schedule_is_read_again_at_sighup_and_sigint_ends_it(floor: Floor) -> None:
    rows = floor.folder / "rows.csv"
    rows.write_text("time,watts\n0,1500\n")
    floor.start_jobs(1)
    floor.start_budget(1500, "--schedule", str(rows))
    rows.write_text("time,watts\n0,many\n")
    os.kill(floor.supervisor.pid, signal.SIGHUP)
    floor.until(lambda: any("watts is 'many'" in line for line in floor.said()), "what is wrong with it is said")
    rows.write_text("time,watts\n0,1150\n")
    os.kill(floor.supervisor.pid, signal.SIGHUP)
    floor.until(lambda: floor.is_within(1150.0), "the new one is followed")
    signalled(floor, signal.SIGINT)
    assert is_as_found(floor)
    assert floor.limits_mw() == ARRIVALS_MW


@pytest.mark.slow
def test_events_of_a_vtn_lower_it_for_their_time_and_no_secret_is_seen(floor: Floor) -> None:
    with StandInVtn() as vtn:
        words = ("--openadr", vtn.url, "--openadr-credentials", str(credentials(floor.folder.parent)))
        vtn.events = [event("bad\x1b[31m", 1, start="soon"), event("soon", 1.0, start=in_seconds(4), duration="PT1H")]
        floor.start_jobs(1)
        floor.start_budget(BUDGET_W, *words, "--openadr-every", "1", "--openadr-program", "peaks")
        floor.until(lambda: floor.is_within(1000.0), "the first event has begun")
        vtn.events.append(event("first", 1.1, start=in_seconds(-60), duration="PT2H", priority=0))
        floor.until(lambda: budget_w(floor) == 1100.0, "one that goes before it is followed")
        seen = b"".join(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children() if is_alive(pid))
        first = floor.manager_pid()
        vtn.fault = "garbage"
        floor.until(lambda: any("answers with no JSON" in line for line in floor.said()), "that is said")
        os.kill(first, signal.SIGKILL)
        floor.until(lambda: floor.manager_pid() != first, "another manager answers")
        standing = floor.standing()
        assert standing.budget_w == 1100.0  # what the first one knew
        vtn.fault = ""
        vtn.events = []
        floor.until(lambda: budget_w(floor) == BUDGET_W, "events that are gone count no more")
        signalled(floor, signal.SIGTERM)
    assert is_as_found(floor)
    assert vtn.url.encode() in seen
    records = [path for path in floor.folder.rglob("*") if path.is_file()]
    assert any(b"event 'peak first' (first)" in path.read_bytes() for path in records if path.name == "events.jsonl")
    for secret in (CLIENT_SECRET, *vtn.tokens):
        assert not [path for path in records if secret.encode() in path.read_bytes()]
        assert secret.encode() not in seen
    said = "\n".join(floor.said())
    assert said.count("its start is 'soon', which is no date with a zone") == 1
    assert "\x1b" not in said
    report = floor.autocap("report", str(floor.folder / "record")).stdout
    assert "1600/1000/1100 W for 1 jobs on 8 GPUs" in report
    assert "event 'peak soon' (soon) of 127.0.0.1" in report


def budget_w(floor: Floor) -> float | None:
    standing = floor.standing()
    return None if standing is None else standing.budget_w
