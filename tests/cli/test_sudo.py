"""Under sudo a user gains nothing but power limits: what a path of theirs leads to, autocap reaches as them.

sudo is imitated: we are root, and its variables name somebody else. Python's own installation is, on some machines that
test this, nothing that they may read.
"""

import gzip
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from autocap.cli import main
from autocap.job.invoking_user import InvokingUser
from autocap.job.processes import package_root
from autocap.session import modes as _of_a_session  # noqa: F401 - once, and not by each fork
from bench.faults.scene import ARRIVALS_MW
from bench.faults.sudo_faults import SudoScene
from bench.helper.people import USER as SCENES_USER
from tests.doubles import file_device
from tests.doubles.waiting import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can imitate sudo")
NOBODY = pwd.getpwnam("nobody")
USER = InvokingUser(uid=NOBODY.pw_uid, gid=NOBODY.pw_gid, groups=(NOBODY.pw_gid,), name="nobody", home="/")
SECRET = "root:$6$secret:1:2\n"
TRACE = "t_s,power_w\n" + "".join(f"{0.1 * n:.1f},{200 if n % 20 < 12 else 100}\n" for n in range(400))


class Machine:
    """root: of a directory that only root writes. home: the user's. secret: root's alone, with a file. state: ours."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.secret, self.state = (root, root / "home", root / "secret", root / "state")
        root.chmod(0o755)
        for folder, mode in ((self.home, 0o755), (self.secret, 0o700)):
            folder.mkdir()
            folder.chmod(mode)
        (self.secret / "file").write_text(SECRET)
        os.chown(self.home, USER.uid, USER.gid)
        self.sudo = {"SUDO_UID": str(USER.uid), "SUDO_GID": str(USER.gid), "SUDO_USER": "nobody"}
        self.env = {**os.environ, **self.sudo, "AUTOCAP_STATE_DIR": str(self.state), "NO_COLOR": "1"}
        self.env["PYTHONPATH"] = os.pathsep.join([package_root(), file_device.INSTALLED])

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-P", "-m", "autocap", *words]

    def given(self, path: Path) -> Path:
        """That path with all that is in it, as the user's."""
        for each in (path, *path.rglob("*")):
            os.chown(each, USER.uid, USER.gid, follow_symlinks=False)
        return path

    def a_run(self) -> Path:
        """A run directory of the user's, as far as a report needs it."""
        folder = self.home / "run"
        folder.mkdir()
        started = {
            **{"event": "run_started", "t_s": 0.0, "autocap_version": "0.1.0", "mode": "run", "command": ["true"]},
            **{"pid": 1, "started_at": "2026-01-01T00:00:00+00:00", "strategy": "model", "strategy_options": []},
            **{"metric": {"name": "energy"}, "observe": False},
        }
        (folder / "events.jsonl").write_text(json.dumps(started) + "\n")
        with gzip.open(folder / "samples.csv.gz", "wt") as samples:
            samples.write(TRACE)
        return self.given(folder)

    def untouched(self) -> bool:
        """Whether nothing came into root's own directory, and nothing changed there."""
        return os.listdir(self.secret) == ["file"] and (self.secret / "file").read_text() == SECRET


@pytest.fixture
def machine() -> Iterator[Machine]:
    root = Path(tempfile.mkdtemp(prefix="autocap-sudo-"))
    yield Machine(root)
    shutil.rmtree(root)


class Sudo:
    """Runs autocap in a fork of this process, which may become the user for good."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __call__(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            pid = os.fork()
            if pid == 0:
                status = 99
                try:
                    os.environ.clear()
                    os.environ.update(self._machine.env)
                    os.chdir(cwd or self._machine.home)
                    os.dup2(out.fileno(), 1)
                    os.dup2(err.fileno(), 2)
                    with os.fdopen(1, "w", closefd=False) as sys.stdout, os.fdopen(2, "w", closefd=False) as sys.stderr:
                        try:
                            status = main(list(words))
                        finally:
                            sys.stdout.flush()
                            sys.stderr.flush()
                finally:
                    os._exit(status)
            _, ended = os.waitpid(pid, 0)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, os.waitstatus_to_exitcode(ended), out.read(), err.read())


@pytest.fixture
def sudo(machine: Machine) -> Sudo:
    return Sudo(machine)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("period", "{secret}/file"), 1),
        (("period", "link"), 1),
        (("report", "{secret}"), 1),
        (("report", "{secret}", "{secret}"), 1),
        (("runs", "{secret}"), 1),
        (("report", "{secret}", "--html"), 1),
        (("report", "{secret}", "--follow"), 1),
        (("run", "--warm-start", "{secret}", "--", "true"), 1),
        (("run", "--device", "emulated", "--out", "{secret}/out", "--", "touch", "ran"), 1),
        (("run", "--device", "emulated", "--out", "way/out", "--", "touch", "ran"), 1),
        (("sweep", "--device", "emulated", "--observe", "--out", "way/out", "--", "touch", "ran"), 1),
        (("attach", "--device", "emulated", "--pid", "{pid}", "--out", "way/out"), 1),
        (("attach", "--device", "emulated", "--pid", "{root_pid}", "--out", "out"), 1),
        (("period", "trace.csv", "--plots", "--out", "way/plots"), 1),
    ],
)
def test_nothing_of_roots_is_read_or_written(machine: Machine, sudo: Sudo, words: tuple[str, ...], status: int) -> None:
    (machine.home / "trace.csv").write_text(TRACE)
    (machine.home / "link").symlink_to(machine.secret / "file")
    (machine.home / "way").symlink_to(machine.secret)
    machine.given(machine.home)
    with subprocess.Popen(["sleep", "60"], user=USER.uid, group=USER.gid, start_new_session=True) as job:
        told = [word.format(secret=machine.secret, pid=job.pid, root_pid=os.getpid()) for word in words]
        done = sudo(*told)
        job.kill()
    assert done.returncode == status
    assert "Permission denied" in done.stderr or "belongs to user 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret:1" not in done.stderr + done.stdout
    assert machine.untouched()
    assert not (machine.home / "ran").exists()


@pytest.mark.slow
def test_a_report_does_not_write_through_links_to_what_is_roots(machine: Machine, sudo: Sudo) -> None:
    folder = machine.a_run()
    links = {"report.html", "half-written.tmp", "timeline.svg", "result.json"}
    for name in links:
        (folder / name).symlink_to(machine.secret / "file")
    done = sudo("report", str(folder), "--html", "--plots")
    assert machine.untouched()
    assert set(done.stderr.splitlines()) <= {f"autocap: wrote {folder / name}" for name in links}, done.stderr
    assert {path.lstat().st_uid for path in folder.iterdir() if not path.is_symlink()} == {USER.uid}


@pytest.mark.slow
def test_reports_and_periods_work_for_a_user_who_may_not_read_the_installation(machine: Machine) -> None:
    folder = machine.a_run()
    private, installed = machine.root / "private", machine.root / "private" / "installed"
    private.mkdir(mode=0o700)
    for name in ("autocap", "strategies", "workloads"):
        shutil.copytree(Path(package_root()) / name, installed / name, symlinks=True)
    machine.env["PYTHONPATH"] = str(installed)
    run = str(folder)
    for words in (
        ("report", run, "--html"), ("report", run, run), ("runs", "."), ("period", str(folder / "samples.csv.gz")),
    ):  # fmt: skip
        done = subprocess.run(machine.argv(*words), env=machine.env, cwd=machine.home, capture_output=True, text=True)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    page = folder / "report.html"
    assert "<style>\n:root" in page.read_text() or "<style>" in page.read_text()
    assert page.stat().st_uid == USER.uid


@pytest.mark.slow
def test_a_session_is_the_users_but_for_the_limits(machine: Machine) -> None:
    device = file_device.make(machine.root).uuid
    looks = 'echo $$; id -u; id -g; echo "$HOME $USER"; cat /proc/$PPID/status'
    capped = f"grep -q '\"requested_w\": 200' {device} || exec sleep 0.7"  # power must be read while it runs
    words = ("--device", f"file:{device}", "--caps", "200", "--repeats", "1", "--no-warm-up", "--cool-down", "0")
    run = subprocess.Popen(
        machine.argv("sweep", *words, "--quiet", "--out", "made/sweep", "--",
                     "sh", "-c", f"{capped}; ({looks}) > part; mv part seen; exec sleep 60"),
        env=machine.env, cwd=machine.home, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually((machine.home / "seen").exists)
        pid, uid, gid, names, *status = (machine.home / "seen").read_text().splitlines()
        assert (uid, gid, names) == (str(USER.uid), str(USER.gid), f"{NOBODY.pw_dir} nobody")
        ids = next(line.split()[1:] for line in status if line.startswith("Uid:"))
        assert ids == [str(USER.uid)] * 4
        assert {path.lstat().st_uid for path in machine.home.rglob("*")} == {USER.uid}
        assert {path.lstat().st_uid for path in (machine.state, *machine.state.iterdir())} == {0}
        assert file_device.FileLimits().requested_w(device) == 200.0
    finally:
        run.kill()
        run.wait()
    eventually(lambda: file_device.FileLimits().requested_w(device) == 260.0)
    eventually(lambda: os.listdir(machine.state) == [])
    os.kill(int(pid), signal.SIGKILL)


def processes_of(machine: Machine) -> dict[int, list[str]]:
    """The command lines of all that was started with the machine's variables, by PID."""
    mark, found = f"MARK={machine.root}".encode(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_text().split("\0")
    return {pid: words for pid, words in found.items() if words != [""]}  # not of who has just ended


def require_rights(pid: int, uid: int = USER.uid, gid: int = USER.gid) -> bool:
    """Whether a process has root's, and no numpy then; else it is the user's in every way."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    ids = {name: lines[name].split() for name in ("Uid", "Gid")}
    capabilities = {int(lines[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")}
    if ids["Uid"][0] == "0":
        assert "numpy" not in Path(f"/proc/{pid}/maps").read_text()
        return True
    assert (ids["Uid"], ids["Gid"], capabilities) == ([str(uid)] * 4, [str(gid)] * 4, {0}), pid
    return False


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["", "autocap", "autocap/cli/session.py"])
def test_an_installation_that_is_not_for_the_user_is_said(machine: Machine, closed: str) -> None:
    folder, installed = machine.a_run(), machine.root / "installed"
    for name in ("autocap", "strategies", "workloads"):
        shutil.copytree(Path(package_root()) / name, installed / name, symlinks=True)
    (installed / closed).chmod(0o700)
    machine.env["PYTHONPATH"] = str(installed)
    argv = machine.argv("report", str(folder))
    done = subprocess.run(argv, env=machine.env, cwd=machine.home, capture_output=True, text=True)
    assert (done.returncode != 0, "Traceback" in done.stderr) == (True, False)
    assert f"they may not read {installed / closed}; let them with `chmod -R go+rX" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "attach", "sweep"])
def test_a_keeper_and_its_watchdog_alone_have_roots_rights(machine: Machine, command: str) -> None:
    device = file_device.make(machine.root).uuid
    machine.env["MARK"] = str(machine.root)
    options = ["--device", f"file:{device}", "--quiet", "--out", "out"]
    job = ["--", "sh", "-c", "sleep 60"]
    with subprocess.Popen(["sleep", "60"], user=USER.uid, group=USER.gid) as other:
        if command == "attach":
            options, job = ["--pid", str(other.pid), *options], []
        elif command == "sweep":
            options += ["--caps", "200", "--repeats", "1", "--no-warm-up", "--cool-down", "0"]
        session = subprocess.Popen(
            machine.argv(command, *options, *job), env=machine.env, cwd=machine.home, stdin=subprocess.DEVNULL
        )
        seen: dict[int, list[str]] = {}  # by PID, as many as have root's rights; without words before its exec
        try:
            while sum(map(bool, seen.values())) < 2:
                assert session.poll() is None
                for pid, words in processes_of(machine).items():
                    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                        before_its_exec = pid == session.pid and not any("autocap.cli.session" in one for one in words)
                        if not before_its_exec and require_rights(pid):
                            seen[pid] = [word for word in words if word.startswith("autocap.")]
        finally:
            session.kill()
            session.wait()
            other.kill()
    assert [words for words in seen.values() if words] == [
        ["autocap.limits.keeper.process"]
    ] * 2  # it forks its standby
    eventually(lambda: not any("autocap.limits" in word for words in processes_of(machine).values() for word in words))


@pytest.mark.slow
def test_a_budget_is_the_users_as_well_and_a_killed_manager_is_followed(machine: Machine) -> None:
    with SudoScene(machine.root / "scene", 300) as scene:
        scene.env["MARK"] = str(machine.root)
        budget = subprocess.Popen(
            machine.argv("budget", "420"), env=scene.env, cwd=scene.folder, stdin=subprocess.DEVNULL
        )
        try:
            eventually(scene.is_capped)
            owned = {pid: require_rights(pid, SCENES_USER, SCENES_USER) for pid in processes_of(machine)}
            (manager,) = set(owned) - {budget.pid} - {pid for pid, is_roots in owned.items() if is_roots}
            assert sum(owned.values()) == 2  # keeper and watchdog
            os.kill(manager, signal.SIGKILL)
            eventually(lambda: scene.limits_mw() == ARRIVALS_MW)
            eventually(scene.is_capped)
            assert scene.autocap("budget", "end").returncode == 0
            assert budget.wait(60.0) == 0
            assert scene.limits_mw() == ARRIVALS_MW
        finally:
            budget.kill()
            budget.wait()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("progress", "look"),
    [("steps", 'stat -c %u "$AUTOCAP_STEP_MAP"'), ("regex:^step", "echo > /dev/stdout && stat -L -c %u /proc/$$/fd/1")],
)
def test_what_counts_iterations_is_the_users(machine: Machine, sudo: Sudo, progress: str, look: str) -> None:
    done = sudo("run", "--device", "emulated", "--progress", progress, "--", "sh", "-c", f"{look} > seen")
    assert done.returncode == 0, done.stderr
    assert (machine.home / "seen").stat().st_uid == USER.uid


@pytest.mark.slow
def test_the_job_has_no_descriptor_of_autocaps(machine: Machine, sudo: Sudo) -> None:
    done = sudo("run", "--device", "emulated", "--", "sh", "-c", "exec ls -l /proc/self/fd > seen")
    assert done.returncode == 0, done.stderr
    opened = [line.split(" -> ") for line in (machine.home / "seen").read_text().splitlines()[1:]]
    beyond = [where for number, where in opened if int(number.split()[-1]) > 2]
    assert [where for where in beyond if not where.startswith(("/proc/", "pipe:"))] == []  # the listing's, and given


@pytest.mark.slow
def test_a_meter_and_a_strategy_of_the_users_are_no_root(machine: Machine, sudo: Sudo) -> None:
    (machine.home / "mine.py").write_text(
        "import os\nfrom autocap.strategies.linear import Linear\n"
        "class Mine(Linear):\n    open('loaded', 'w').write(str(os.getresuid()))\n"
    )
    machine.given(machine.home)
    meter = "id -u > metered; while :; do echo 300; sleep 0.1; done"
    words = ("--node-power", f"command:{meter}", "--strategy", "mine:Mine")
    done = sudo("run", "--device", "emulated", *words, "--", "true")
    assert done.returncode == 0, done.stderr
    assert (machine.home / "metered").read_text() == f"{USER.uid}\n"
    assert (machine.home / "loaded").read_text() == str((USER.uid,) * 3)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_the_command_is_the_one_beside_autocap_and_finds_what_is_there(
    machine: Machine, sudo: Sudo, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    own, plain = machine.root / "own", machine.root / "plain"
    options = ("--repeats", "1", "--caps", "260", "--no-warm-up") if command == "sweep" else ()
    pause = 0.7 if options else 0  # power must be read while it runs
    for folder in (own, plain):
        folder.mkdir()
        for name, text in (("train", "exec part"), ("part", f"echo {folder} > seen; exec sleep {pause}")):
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(own / "autocap")])
    machine.env["PATH"] = f"{plain}:/usr/bin:/bin"

    done = sudo(command, "--device", "emulated", *options, "--out", "out", "--", "train")
    assert done.returncode == 0, done.stderr
    assert (machine.home / "seen").read_text() == f"{own}\n"
    said = f"autocap: command 'train' is {own}/train here; sudo's own PATH gives {plain}/train\n"
    assert done.stderr.count(said) == 1
    recorded = [json.loads(line) for line in (machine.home / "out" / "events.jsonl").read_text().splitlines()]
    (found,) = [event for event in recorded if event["event"] == "program_found"]
    assert (found["name"], found["program"], found["plain"]) == ("train", f"{own}/train", f"{plain}/train")
    assert json.loads((machine.home / "out" / "result.json").read_text())["warnings"] == []


@pytest.mark.slow
def test_settings_are_read_as_the_user_from_files_of_theirs_or_roots_alone(machine: Machine, sudo: Sudo) -> None:
    here = machine.home / "autocap.toml"
    words = ("run", "--device", "emulated", "--", "true")
    here.symlink_to(machine.secret / "file")
    assert sudo(*words, "--no-config").returncode == 0, "nor is it seen"
    here.unlink()
    (machine.home / "own.toml").write_text("metric = 'nonsense'")
    here.symlink_to(machine.home / "own.toml")
    for uid, gid, mode, refused in (
        (0, 0, 0o664, "unknown metric 'nonsense'"),
        (USER.uid, USER.gid, 0o644, "unknown metric 'nonsense'"),
        (0, 0, 0o600, "autocap.toml cannot be read: Permission denied"),
        (USER.uid + 1, USER.gid, 0o644, f"is not to be trusted, as it belongs to user {USER.uid + 1}"),
        (USER.uid, USER.gid, 0o666, "is not to be trusted, as any user can write it"),
        (USER.uid, USER.gid, 0o664, f"is not to be trusted, as group {USER.gid} can write it"),
    ):
        os.chown(here, uid, gid)
        here.chmod(mode)
        done = sudo(*words)
        assert (done.returncode, refused in done.stderr) == (2, True), done.stderr
    assert machine.untouched()


def test_the_internal_command_is_refused_and_touches_nothing(machine: Machine, sudo: Sudo) -> None:
    words = ("inside", "--pid", str(os.getpid()))
    done = sudo(*words, "--step-map-fd", "5", "--out", str(machine.secret / "out"))
    assert done.stderr == "autocap: `inside` is what autocap.tune starts in a script, and nothing to run under sudo\n"
    assert (done.returncode, machine.untouched()) == (2, True)
    assert sudo(*words, "--step-map", str(machine.secret / "file")).returncode == 2
    assert machine.untouched()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ipmitool") is not None, reason="there is one, and it would be asked")
def test_root_starts_no_ipmitool_of_the_callers_path(machine: Machine, sudo: Sudo) -> None:
    program = machine.home / "ipmitool"
    program.write_text("#!/bin/sh\ntouch ran\necho 'Instantaneous power reading: 100 Watts'\n")
    program.chmod(0o755)
    machine.env["PATH"] = f"{machine.home}:{machine.env['PATH']}"
    done = sudo("run", "--device", "emulated", "--node-power", "ipmi", "--", "touch", "job")
    assert (done.returncode, os.listdir(machine.home)) == (1, ["ipmitool"])
    assert done.stderr.startswith("autocap: --node-power ipmi: there is no ipmitool; install it")
