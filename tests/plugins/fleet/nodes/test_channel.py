"""Lines to a child and back, whatever it does; a step that Slurm does not take at once is tried again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from autocap.errors import EngineUnavailable
from autocap.plugins.fleet.nodes.channel import FOR_S, Channel, EngineJob, RetriedChannels
from autocap.plugins.fleet.nodes.protocol import (
    Done,
    FromAgent,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Lost,
    Message,
    line_of,
)
from tests.plugins.fleet.nodes.hearing import heard, until

HELLO = Hello(version=1, autocap_version="", node="node1", pid=1, boot_id="", clock_id="")
ECHO = str(Path(__file__).parent / "echo_agent.py")
JOB = EngineJob(id="7", nodes=("node1", "node2"))
NO_MEMORY = "srun has ended with status 1: srun: error: Unable to create step: Memory required by task is not available"
WORD = Heartbeat(number=1, interval_s=0.1, counted=True)


def _job(count: int) -> EngineJob:
    return EngineJob(id="1", nodes=tuple(f"node{number}" for number in range(count)))


def _shell(script: str, *words: str, job: EngineJob | None = None) -> Channel:
    return Channel(["sh", "-c", script, "sh", *words], job=job or _job(2))


def _printing(data: bytes, folder: Path, agents: int = 2, then: str = "cat >/dev/null") -> Channel:
    (folder / "lines").write_bytes(data)
    return _shell(f'cat "$1"; {then}', str(folder / "lines"), job=_job(agents))


def _labelled(number: int, text: bytes) -> bytes:
    return b"%d: %s\n" % (number, text.removesuffix(b"\n"))


def _in_session(leader: int) -> list[int]:
    """What lives of a session; who is dead but not yet reaped by init does not."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, session = (place / "stat").read_text().rpartition(") ")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(int(place.name))
    return found


def test_a_message_goes_to_the_child_and_its_answer_comes_back(tmp_path: Path) -> None:
    channel = _shell(f'"$1" {ECHO} "$2" --number 3 | sed -u "s/^/3: /"', sys.executable, str(tmp_path), job=_job(4))
    assert isinstance(heard(channel, 1)[3], Hello)
    channel.send(Heartbeat(number=5, interval_s=0.1, counted=True))
    assert heard(channel, 1)[3] == HeartbeatReply(number=5, heard_s=0.0, said_s=0.0)
    channel.close()
    assert (tmp_path / "left-3").read_text() == "end of input"


def test_what_srun_cut_is_put_together_and_what_is_not_ours_left_out(tmp_path: Path) -> None:
    first, second = (Done(number=number, why='{"x":}' * 400) for number in (1, 2))
    lines = [_labelled(0, b"Loading modules"), b"srun: note\n", _labelled(1, b'{"half')]
    for start in range(0, 4096, 1024):  # the two cut lines come in turns
        lines += [
            _labelled(number, line_of(message)[start : start + 1024])
            for number, message in enumerate((first, second))
            if line_of(message)[start : start + 1024].strip()
        ]
    lines.append(
        _labelled(0, line_of(Heartbeat(number=1, interval_s=0.1, counted=True)))
    )  # which is for agents to hear
    lines.append(b" 1: " + line_of(HeartbeatReply(number=9, heard_s=1.0, said_s=2.0)))
    channel = _printing(b"".join(lines), tmp_path)
    got: list[tuple[int, object]] = []
    until(lambda: got.extend(channel.receive()) or len(got) >= 3, "three messages")
    assert got == [(0, first), (1, second), (1, HeartbeatReply(number=9, heard_s=1.0, said_s=2.0))]
    channel.close()


def test_an_agent_is_lost_once_and_all_are_when_the_child_ends(tmp_path: Path) -> None:
    lost = _labelled(1, line_of(Lost(why="killed")))
    channel = _printing(
        lost + lost + _labelled(1, line_of(HeartbeatReply(number=1, heard_s=0.0, said_s=0.0))), tmp_path, 3
    )
    assert heard(channel, 1) == {1: Lost(why="killed")}
    os.killpg(channel.pid, signal.SIGKILL)
    got = heard(channel, 2)
    assert set(got) == {0, 2}
    assert all(isinstance(message, Lost) and "sh has ended" in message.why for message in got.values())
    assert channel.receive() == []
    channel.close()


def test_the_end_of_the_child_is_told_with_its_last_errors() -> None:
    channel = _shell("for i in $(seq 99); do echo line $i >&2; done; exit 3", job=_job(1))
    until(lambda: channel._process.poll() is not None, "the child's end")
    assert heard(channel, 1) == {
        0: Lost(why="sh has ended with status 3: " + " | ".join(f"line {i}" for i in range(94, 100)))
    }
    channel.close()


@pytest.mark.slow
def test_a_child_that_reads_nothing_holds_nobody_up_and_is_killed() -> None:
    channel = _shell("trap '' TERM; echo '0: '; while :; do sleep 1; done", job=_job(1))
    for number in range(20_000):
        channel.send(Heartbeat(number=number, interval_s=0.1, counted=True))
    assert channel._child.waiting < 1 << 19
    channel.close()
    until(lambda: not _in_session(channel.pid), "the end of all of it")


@pytest.mark.parametrize(
    ("ending", "has_spoken", "is_asked"),
    [
        ((signal.SIGTERM, signal.SIGKILL), True, True),
        ((signal.SIGKILL,), True, False),
        ((signal.SIGKILL,), False, True),  # nothing is set yet, and agents that begin would wait for a word
    ],
)
def test_a_child_that_does_not_leave_gets_the_signals_of_its_engine_alone(
    ending: tuple[signal.Signals, ...],
    has_spoken: bool,
    is_asked: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for patience in ("LEAVES_S", "TERM_S"):
        monkeypatch.setattr(f"autocap.plugins.fleet.nodes.channel.{patience}", 0.3)
    (tmp_path / "hello").write_bytes(_labelled(0, line_of(HELLO) if has_spoken else b""))
    script = 'trap "echo asked >>$1/log" TERM; cat $1/hello; while :; do sleep 0.05; done'
    begun: list[int] = []
    channel = Channel(["sh", "-c", script, "sh", str(tmp_path)], job=_job(1), ending=ending, begun=begun.append)
    if has_spoken:
        until(lambda: channel.receive(), "its traps are set")
        assert begun == [channel.pid]
    else:
        until(lambda: channel._child.read(), "its traps are set")
    channel.close()
    until(lambda: not _in_session(channel.pid), "the end of who was sent SIGKILL")
    assert (tmp_path / "log").exists() == is_asked


@pytest.mark.slow
def test_a_child_that_writes_without_end_is_read_in_parts(tmp_path: Path) -> None:
    channel = _shell("exec yes x", job=_job(1))
    begun_s = time.process_time()
    for _ in range(3):
        assert channel.receive() == []
    assert time.process_time() - begun_s < 60  # that it returns at all
    channel.close()


@pytest.mark.slow
def test_our_death_ends_it(tmp_path: Path) -> None:
    script = (
        "import sys, time; from autocap.plugins.fleet.nodes.channel import Channel, EngineJob\n"
        "argv = [sys.executable, sys.argv[1], sys.argv[2], '--number', '0']\n"
        "channel = Channel(argv, job=EngineJob(id='1', nodes=('a',)))\n"
        "while not channel.receive(): time.sleep(0.02)\n"
        "print(flush=True); time.sleep(600)"
    )
    ours = subprocess.Popen([sys.executable, "-c", script, ECHO, str(tmp_path)], stdout=subprocess.PIPE)
    ours.stdout.readline()
    ours.kill()
    ours.wait()
    ours.stdout.close()
    until((tmp_path / "left-0").exists, "the agent's leaving")


def test_a_carrier_that_cannot_be_started_is_named() -> None:
    with pytest.raises(EngineUnavailable, match="no-such-carrier cannot be started: No such file or directory"):
        Channel(["no-such-carrier"], job=_job(1))


def test_a_child_that_finds_the_job_says_so_first_or_why_it_did_not() -> None:
    channel = Channel(["sh", "-c", """echo 'job: {"id": "02", "nodes": ["a", "b"]}'; cat >/dev/null"""])
    assert channel.job is None
    until(lambda: bool(channel.receive() or channel.job), "the job")
    assert channel.job == EngineJob(id="02", nodes=("a", "b"))
    channel.close()
    channel = Channel(["sh", "-c", "echo nowhere to be reached >&2; exit 1"])
    with pytest.raises(EngineUnavailable, match=r"^nowhere to be reached$"):
        until(lambda: bool(channel.receive()), "the refusal")
    channel.close()


class Step:
    """One that is refused with a reason, says nothing where that is empty, or begins where there is none."""

    job, descriptors, pids = JOB, (), ()

    def __init__(self, why: str | None) -> None:
        self._heard: list[tuple[int, FromAgent]] = [(0, HELLO)] if why is None else [(0, Lost(why=why))] if why else []
        self.said: list[Message] = []
        self.left = False

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        self.said.append(message)

    def receive(self) -> list[tuple[int, FromAgent]]:
        heard, self._heard = self._heard, []
        return heard

    def leave(self) -> None:
        self.left = True


class Trial:
    """Looks every quarter of a second, until something is heard."""

    def __init__(self, *whys: str | None) -> None:
        self.now_s, self._whys = 0.0, list(whys)
        self.steps: list[Step] = []
        self.told: list[str] = []
        self.channel = RetriedChannels(self._opened, JOB, lambda: self.now_s, self.told.append)  # type: ignore[arg-type]
        self.channel.send(WORD)
        self.heard: list[tuple[int, FromAgent]] = []
        while not self.heard and self.now_s < 2 * FOR_S:
            self.now_s += 0.25
            self.heard = self.channel.receive()

    def _opened(self) -> list[Step]:
        self.steps.append(Step(self._whys.pop(0) if len(self._whys) > 1 else self._whys[0]))
        return self.steps[-1:]


@pytest.mark.parametrize(("first", "within_s"), [(NO_MEMORY, 3.0), ("", 16.0)])
def test_it_is_tried_again_and_said_once(first: str, within_s: float) -> None:
    trial = Trial(first, NO_MEMORY, None)
    assert trial.heard == [(0, HELLO)]
    assert trial.now_s <= within_s
    assert [step.left for step in trial.steps] == [True, True, False]
    assert trial.steps[-1].said == [WORD]
    assert len(trial.told) == 1
    assert trial.told[0].endswith("; it is tried again for a minute")


def test_after_a_minute_it_is_lost_with_the_last_reason() -> None:
    trial = Trial(NO_MEMORY)
    assert trial.heard == [(0, Lost(why=NO_MEMORY))]
    assert FOR_S <= trial.now_s <= FOR_S + 2


def test_what_passes_not_is_told_at_once() -> None:
    trial = Trial("srun has ended with status 1: Access/permission denied")
    assert (trial.now_s, trial.told) == (0.25, [])
