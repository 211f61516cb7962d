"""The child is started, signalled and awaited as a shell and a terminal would have done it without us."""

import os
import pty
import pwd
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from autocap.errors import CommandNotExecutable, CommandNotFound, TargetError
from autocap.job import child as child_job
from autocap.job.invoking_user import InvokingUser, acting_as, invoking_user
from tests.doubles import warm
from tests.doubles.waiting import eventually

Process = warm.WarmProcess | subprocess.Popen[bytes]
PATIENCE_S = 120.0  # bounds a failure; nothing below takes as long

# What the session does with the parts, small. Arguments: REPORT KILL_AFTER|- CMD…; it writes "began PID" to REPORT.
DRIVER = """
import math, os, sys
from autocap.job.signals import Reaction, SignalClock, SignalPolicy, from_terminal
from autocap.job.child import start
report, kill_after, *command = sys.argv[1:]
if "TTY" in os.environ:
    os.open(os.environ["TTY"], os.O_RDWR)  # a session leader's first terminal becomes its controlling one
policy = SignalPolicy(None if kill_after == "-" else float(kill_after))
with SignalClock() as clock:
    with clock.lifted():
        job = start(command, os.environ)
    with open(report, "a") as file:
        file.write(f"began {job.pid}\\n")
    while (status := job.poll()) is None:
        arrival = clock.wait_until(math.inf if policy.kill_at_s is None else policy.kill_at_s)
        if policy.kill_is_due(clock.now()):
            job.kill()
        if arrival is None:
            continue
        match policy.receive(arrival, clock.now()):
            case Reaction.FORWARD | Reaction.RESTORE_AND_FORWARD:
                job.forward(arrival, from_terminal=from_terminal(arrival))
            case Reaction.SUSPEND:
                job.suspend(from_terminal=from_terminal(arrival))
            case Reaction.KILL:
                job.kill()
sys.exit(status)
"""


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    return text[text.rindex(")") + 2]


class Job:
    """A driver process with its child, which reports into a file. start: how it is started."""

    def __init__(
        self,
        tmp_path: Path,
        *command: str,
        kill_after: str = "-",
        tty: str | None = None,
        start: Callable[..., Process] = warm.start,
    ) -> None:
        self.report = tmp_path / "report"
        environ = {**os.environ, "REPORT": str(self.report), **({"TTY": tty} if tty else {})}
        self.driver = start(
            [sys.executable, "-c", DRIVER, str(self.report), kill_after, *command],
            env=environ,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
        )

    def ready(self, *words: str) -> None:
        eventually(lambda: {"began", *words} <= {line.split()[0] for line in lines(self.report)})

    def number(self, word: str) -> int:
        return int(next(line.split()[1] for line in lines(self.report) if line.startswith(word)))

    @property
    def pid(self) -> int:
        return self.number("began")

    def ended(self) -> int:
        return self.driver.wait(PATIENCE_S)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    started: list[Job] = []

    def begin(*command: str, **how: Any) -> Job:
        started.append(Job(tmp_path, *command, **how))
        return started[-1]

    yield begin
    for one in started:
        if one.driver.poll() is None:
            one.driver.kill()
            one.driver.wait()
        for line in lines(one.report):
            if line.startswith("began"):
                with suppress(ProcessLookupError):
                    os.killpg(int(line.split()[1]), signal.SIGKILL)


# A child that notes every signal it gets; SIGTERM makes it take its time over a checkpoint.
NOTING = """
import os, signal, sys, time
def note(signum, frame):
    with open(os.environ["REPORT"], "a") as file:
        file.write(f"{signal.Signals(signum).name} in {sys.argv[1]}\\n")
    if signum == signal.SIGTERM:
        time.sleep(0.3)
        with open(os.environ["REPORT"], "a") as file:
            file.write("saved\\n")
        sys.exit(5)
for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(signum, note)
if sys.argv[1] == "child" and len(sys.argv) > 2:
    import subprocess
    grandchild = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[2], "grandchild"])
with open(os.environ["REPORT"], "a") as file:
    file.write(f"{sys.argv[1]}-ready {os.getpid()}\\n")
while True:
    time.sleep(60)
"""
CHILD = (sys.executable, "-S", "-c", NOTING, "child")
FAMILY = (*CHILD, NOTING)


def printed(body: str) -> str:
    """What a process that runs `body` and its children print; where the streams of this one would be in the way."""
    program = (
        "import os, signal, sys\nfrom autocap.job import child as child_job\nfrom autocap.errors import *\n"
        + textwrap.dedent(body)
    )
    done = warm.run([sys.executable, "-c", program], env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(*command: str) -> int:
    return child_job.start(command, os.environ).wait()


def script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_the_childs_exit_status_is_ours() -> None:
    assert [run("sh", "-c", f"exit {status}") for status in (0, 7, 255)] == [0, 7, 255]


def test_a_death_by_signal_is_128_plus_its_number() -> None:
    assert run("sh", "-c", "kill -TERM $$") == 143
    assert run("sh", "-c", "kill -KILL $$") == 137


def test_poll_reaps_the_child_and_keeps_its_status() -> None:
    child = child_job.start(["sh", "-c", "exit 3"], os.environ)
    eventually(lambda: child.poll() is not None)

    assert child.poll() == child.wait() == 3
    assert not Path(f"/proc/{child.pid}").exists()


def test_a_stopped_child_has_no_status_yet() -> None:
    child = child_job.start(["sleep", "100"], os.environ)
    child.forward(signal.SIGSTOP)
    eventually(lambda: state(child.pid) == "T")
    assert child.poll() is None

    child.forward(signal.SIGCONT)
    assert child.poll() is None

    child.kill()
    assert child.wait() == 137


def test_nothing_is_sent_once_the_child_was_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    job, sent = child_job.start(["true"], os.environ), []
    job.wait()
    monkeypatch.setattr(os, "kill", lambda *args: sent.append(args))
    monkeypatch.setattr(os, "killpg", lambda *args: sent.append(args))
    job.forward(signal.SIGTERM)
    job.kill()
    job.suspend()
    assert sent == []


def test_the_identity_is_the_childs() -> None:
    child = child_job.start(["sleep", "100"], os.environ)

    assert child.identity.pid == child.pid
    assert child.identity.is_alive()
    child.kill()
    child.wait()
    assert not child.identity.is_alive()


def test_the_child_leads_its_own_session_and_inherits_directory_and_descriptors(tmp_path: Path) -> None:
    out = printed(
        f"""
        os.chdir("{tmp_path}")
        os.dup2(1, 3)
        command = 'echo $$; cut -d" " -f5,6 /proc/self/stat; pwd; echo $X; echo third >&3'
        child = child_job.start(["sh", "-c", command], {{**os.environ, "X": "y"}})
        sys.exit(child.wait() or print(child.pid))
        """
    )
    pid, *words, third, started = out.split()
    assert [*words, third, started] == [pid, pid, str(tmp_path), "y", "third", pid]


AT_ONCE = (child_job.start,)
AT_ONCE_OR_WAITING = (*AT_ONCE, lambda command, env: child_job.waiting_start(command, env).__enter__())


@pytest.mark.parametrize(
    ("word", "said", "begins"),
    [
        ("nosuchcmd", "command 'nosuchcmd' was not found in PATH; check its spelling", AT_ONCE_OR_WAITING),
        ("{}/absent", "does not exist; check its path", AT_ONCE_OR_WAITING),
        ("", "the command is empty", AT_ONCE_OR_WAITING),
        ("{}/plain", "is not executable: Permission denied; .*chmod \\+x {}/plain", AT_ONCE_OR_WAITING),
        ("{}", "is a directory; name a program in it", AT_ONCE_OR_WAITING),
        ("{}/bare/program", "cannot be executed: Not a directory", AT_ONCE),  # what the kernel alone can say
        ("{}/broken", "an interpreter it needs does not exist; check its first line", AT_ONCE),
        ("{}/garbage", "neither a script nor a program for this machine", AT_ONCE),
    ],
)
def test_a_command_that_is_not_found_is_127_and_one_that_is_not_executable_is_126(tmp_path, word, said, begins) -> None:
    script(tmp_path / "plain", "#!/bin/sh\n", mode=0o644)
    script(tmp_path / "bare", "")
    script(tmp_path / "broken", "#!/no/such/interpreter\n")
    script(tmp_path / "garbage", "exit 3 \0\0\n")
    kind, status = (CommandNotFound, 127) if word in ("nosuchcmd", "{}/absent", "") else (CommandNotExecutable, 126)
    for begin in begins:
        with pytest.raises(kind, match=said.format(tmp_path)) as caught:
            begin([word.format(tmp_path)], os.environ)
        assert caught.value.exit_status == status


@pytest.mark.parametrize("command", ["c" * 5000, "/" + "c" * 5000, "d/" * 2500, "./" + "c" * 300])
def test_a_name_that_is_too_long_is_126_and_is_not_echoed_in_full(command: str) -> None:
    with pytest.raises(CommandNotExecutable, match="cannot be executed: File name too long") as raised:
        child_job.start([command], os.environ)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("command", [["true\0"], ["true", "a\0b"], ["true", "\ud800"], ["\ud800"]])
def test_a_word_that_no_program_can_be_given_is_126(command: list[str]) -> None:
    with pytest.raises(CommandNotExecutable, match="the command holds a character that no program can be given"):
        child_job.start(command, os.environ)


def test_a_script_without_an_interpreter_line_is_run_by_the_shell(tmp_path: Path) -> None:
    path = script(tmp_path / "bare", "exit $(($1 + 1))\n")
    assert run(path, "41") == 42
    assert child_job.start(["bare", "2"], {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}).wait() == 3
    with child_job.waiting_start([path, "6"], os.environ) as job:
        pass
    assert job.wait() == 7


def test_the_path_searched_is_the_childs(tmp_path: Path) -> None:
    script(tmp_path / "only-here", "#!/bin/sh\nexit 9\n")

    assert child_job.start(["only-here"], {"PATH": str(tmp_path)}).wait() == 9
    with pytest.raises(CommandNotFound):
        child_job.start(["only-here"], {"PATH": "/bin"})


def test_a_waiting_command_is_executed_in_its_process_once_the_block_is_left(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    command = ["sh", "-c", f"echo $$ $ANSWER > {ran}; ls /proc/$$/fd; exit 3"]

    with child_job.waiting_start(command, {**os.environ, "ANSWER": "42"}) as job:
        identity = job.identity
        time.sleep(0.1)
        assert not ran.exists()
        assert job.poll() is None

    assert job.wait() == 3
    assert lines(ran) == [f"{job.pid} 42"]
    assert identity == job.identity


def test_a_waiting_command_inherits_nothing_of_the_waiting(tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    code = f"import os; open({str(facts)!r}, 'w').write(' '.join(sorted(os.listdir('/proc/self/fd'))))"
    with child_job.waiting_start([sys.executable, "-S", "-c", code], os.environ) as waited:
        pass
    waited.wait()
    after_waiting = facts.read_text()
    child_job.start([sys.executable, "-S", "-c", code], os.environ).wait()

    assert after_waiting == facts.read_text()
    with child_job.waiting_start(["sh", "-c", "grep SigIgn /proc/self/status > " + str(facts)], os.environ) as waited:
        pass
    waited.wait()
    assert int(facts.read_text().split()[1], 16) & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)) == 0


@pytest.mark.slow
def test_a_waiting_command_is_executed_when_we_die(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    code = f"""
import os, signal
from autocap.job import child as child_job
with child_job.waiting_start(["sh", "-c", "echo yes > {ran}"], os.environ):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)

    eventually(lambda: lines(ran) == ["yes"])


def test_a_refused_signal_says_so_and_how_to_send_it() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, which alone can give up the right to signal its own child, as a setuid child makes us")
    out = printed(
        """
        child = child_job.start(["sleep", "100"], os.environ)
        os.setresuid(65534, 65534, 0)
        try:
            child.forward(signal.SIGTERM)
        except TargetError as error:
            print(error)
        os.setresuid(0, 0, 0)
        child.kill()
        print(child.wait())
        """
    )
    message = (
        r"SIGTERM could not be passed on to process (\d+): Operation not permitted; send it with: sudo kill -TERM \1"
    )
    assert re.fullmatch(message + "\n137\n", out)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR2"])
def test_a_signal_is_forwarded_unchanged_once_and_to_the_child_alone(job: Callable[..., Job], name: str) -> None:
    one = job(*FAMILY)
    one.ready("child-ready", "grandchild-ready")
    one.driver.send_signal(signal.Signals[name])
    one.ready(name)
    if name != "SIGTERM":
        one.driver.send_signal(signal.SIGTERM)
    one.ended()

    assert lines(one.report).count(f"{name} in child") == 1
    assert not any("in grandchild" in line for line in lines(one.report))


def test_a_child_that_takes_its_time_over_a_checkpoint_is_awaited(job: Callable[..., Job]) -> None:
    one = job(*CHILD)
    one.ready("child-ready")
    one.driver.send_signal(signal.SIGTERM)

    assert one.ended() == 5
    assert lines(one.report)[-1] == "saved"


def test_the_retune_signal_is_not_forwarded(job: Callable[..., Job]) -> None:
    one = job(*CHILD)
    one.ready("child-ready")
    one.driver.send_signal(signal.SIGUSR1)
    one.driver.send_signal(signal.SIGTERM)

    assert one.ended() == 5
    assert "SIGUSR1 in child" not in lines(one.report)


def test_two_interrupts_are_forwarded_and_the_third_kills_the_job(job: Callable[..., Job]) -> None:
    one = job(*FAMILY)
    one.ready("child-ready", "grandchild-ready")
    for count in (1, 2):
        one.driver.send_signal(signal.SIGINT)
        eventually(lambda count=count: lines(one.report).count("SIGINT in child") == count)  # type: ignore[misc]
    grandchild = one.number("grandchild-ready")
    one.driver.send_signal(signal.SIGINT)

    assert one.ended() == 137
    assert lines(one.report).count("SIGINT in child") == 2
    eventually(lambda: state(grandchild) in ("Z", "gone"))


def test_kill_after_ends_a_child_that_outlives_a_signal(job: Callable[..., Job]) -> None:
    one = job(*CHILD, kill_after="1")  # a busy machine takes a while to let the child say what it was sent
    one.ready("child-ready")
    one.driver.send_signal(signal.SIGINT)

    assert one.ended() == 137
    assert "SIGINT in child" in lines(one.report)


def test_the_child_blocks_no_signal(job: Callable[..., Job]) -> None:
    one = job("sh", "-c", 'grep SigBlk /proc/self/status >> "$REPORT"; exec sleep 0')

    assert one.ended() == 0
    assert [line.split()[1] for line in lines(one.report) if line.startswith("SigBlk")] == ["0" * 16]


@pytest.mark.slow
def test_under_nohup_the_child_survives_a_hangup_too(tmp_path: Path, job: Callable[..., Job]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        script = 'grep SigIgn /proc/self/status >> "$REPORT"; echo ready >> "$REPORT"; exec sleep 100'
        one = job("sh", "-c", script, start=subprocess.Popen)  # which has our handlers
    finally:
        signal.signal(signal.SIGHUP, before)
    one.ready("ready")
    one.driver.send_signal(signal.SIGHUP)
    one.driver.send_signal(signal.SIGTERM)

    assert one.ended() == 143  # by SIGTERM: the SIGHUP before it did nothing
    ignored = next(int(line.split()[1], 16) for line in lines(one.report) if line.startswith("SigIgn"))
    assert ignored >> (signal.SIGHUP - 1) & 1


@pytest.fixture
def terminal() -> Iterator[tuple[int, str]]:
    master, slave = pty.openpty()
    yield master, os.ttyname(slave)
    os.close(slave)
    os.close(master)


def test_an_interrupt_typed_at_the_terminal_reaches_the_whole_job_once(
    job: Callable[..., Job], terminal: tuple[int, str]
) -> None:
    master, name = terminal
    one = job(*FAMILY, tty=name)
    one.ready("child-ready", "grandchild-ready")
    os.write(master, b"\x03")
    eventually(lambda: {"SIGINT in child", "SIGINT in grandchild"} <= set(lines(one.report)))
    one.driver.send_signal(signal.SIGTERM)

    assert one.ended() == 5
    assert sum(line.startswith("SIGINT") for line in lines(one.report)) == 2


def test_suspend_typed_at_the_terminal_stops_the_job_and_us_until_continued(
    job: Callable[..., Job], terminal: tuple[int, str]
) -> None:
    master, name = terminal
    one = job("sh", "-c", 'sleep 100 & echo "inner $!" >> "$REPORT"; wait', tty=name)
    one.ready("inner")
    everybody = (one.driver.pid, one.pid, one.number("inner"))
    # The driver is the terminal's session leader here, so its own stop would be ignored were it not SIGSTOP.
    os.write(master, b"\x1a")
    eventually(lambda: [state(pid) for pid in everybody] == ["T", "T", "T"])

    one.driver.send_signal(signal.SIGCONT)
    eventually(lambda: "T" not in [state(pid) for pid in everybody])

    one.driver.send_signal(signal.SIGTERM)
    assert one.ended() == 143


def test_a_child_that_catches_the_suspend_signal_is_left_to_handle_it(job: Callable[..., Job]) -> None:
    one = job("sh", "-c", 'trap "echo caught >> $REPORT" TSTP; echo ready >> "$REPORT"; while :; do sleep 0.02; done')
    one.ready("ready")
    one.driver.send_signal(signal.SIGTSTP)
    one.ready("caught")
    eventually(lambda: state(one.driver.pid) == "T")

    assert state(one.pid) != "T"


def test_there_is_no_user_behind_root_without_sudo() -> None:
    assert invoking_user({}) is None
    assert invoking_user({"SUDO_UID": "0", "SUDO_GID": "0"}) is None


def test_sudo_variables_mean_nothing_to_an_ordinary_user() -> None:
    somebody = InvokingUser(uid=65534, gid=65534, groups=(65534,), name="nobody", home="/")
    with acting_as(somebody if os.geteuid() == 0 else None):
        assert invoking_user({"SUDO_UID": "not a number"}) is None


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as somebody else")


@needs_root
@pytest.mark.parametrize("bad", ["", "abc", "-1", "1.5", "²", "4294967295", "1000 "])
def test_a_uid_that_sudo_cannot_have_written_is_refused_and_not_run_as_root(bad: str) -> None:
    with pytest.raises(
        TargetError, match=f"SUDO_UID is '{re.escape(bad)}', not a number .*unset SUDO_UID and SUDO_GID"
    ):
        invoking_user({"SUDO_UID": bad, "SUDO_GID": "1"})
    with pytest.raises(TargetError, match=f"SUDO_GID is '{re.escape(bad)}'"):
        invoking_user({"SUDO_UID": "1", "SUDO_GID": bad})


@needs_root
def test_a_user_without_a_passwd_entry_keeps_the_ids_sudo_gave() -> None:
    known = {entry.pw_uid for entry in pwd.getpwall()}
    uid = next(number for number in range(70000, 2**31) if number not in known)

    user = invoking_user({"SUDO_UID": str(uid), "SUDO_GID": "1234", "SUDO_USER": "someone"})
    assert user == InvokingUser(uid=uid, gid=1234, groups=(1234,), name="someone", home="/")
    with pytest.raises(TargetError, match="SUDO_GID is not set; set both"):
        invoking_user({"SUDO_UID": str(uid)})


@needs_root
def test_acting_as_a_user_has_their_rights_and_ends_with_ours(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    user = InvokingUser(uid=nobody.pw_uid, gid=nobody.pw_gid, groups=(nobody.pw_gid,), name="nobody", home="/")
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    before = os.getresuid(), os.getresgid(), os.getgroups()

    with pytest.raises(PermissionError), acting_as(user):
        (private / "file").touch()

    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before
    (private / "file").touch()


@needs_root
def test_a_user_whom_the_kernel_does_not_take_is_named() -> None:
    user = InvokingUser(uid=12345, gid=12345, groups=(2**32 - 1,), name="ada", home="/")
    before = os.getresuid(), os.getresgid(), os.getgroups()
    with pytest.raises(TargetError, match=r"rights of user 12345 \(SUDO_UID\) here: Invalid argument; run autocap"):
        acting_as(user).__enter__()
    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before


def test_acting_as_nobody_in_particular_changes_nothing(tmp_path: Path) -> None:
    with acting_as(None):
        (tmp_path / "file").touch()

    assert (tmp_path / "file").stat().st_uid == os.geteuid()
