"""Faults by a second user: what somebody who may type `sudo autocap`, and no more, does to gain from it. We are root,
and sudo's variables name them."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from bench.faults import process_faults
from bench.faults.outcome import Outcome, difference
from bench.faults.scene import (
    ARRIVALS_MW,
    BACK_WITHIN_S,
    HUNG_BACK_WITHIN_S,
    ITERATIONS,
    LOOKED_AT_S,
    Scene,
    ended,
    inject_into,
    put_back,
    random_moment,
    send,
)
from bench.helper.people import USER, as_user
from bench.helper.served import KEEPER, watchdogs_of


class SudoScene(Scene):
    """The job is the user's, in a folder of theirs; the state directory beside it is root's."""

    def __init__(self, folder: Path, iterations: int) -> None:
        super().__init__(folder, iterations)
        beside = folder.parent
        beside.chmod(0o755)
        (folder / "machine.lock").touch()
        for path in (folder, *folder.iterdir()):
            os.chown(path, USER, USER)
        self.state_dir = beside / "state"
        self.env["AUTOCAP_STATE_DIR"] = str(self.state_dir)
        self.env |= {"SUDO_UID": str(USER), "SUDO_GID": str(USER), "SUDO_USER": "mallory"}
        self._reached: subprocess.Popen[bytes] | None = None
        self.job_python, self.job_rights = self._python_of_user(), as_user()

    def close(self) -> None:
        super().close()
        if self._reached is not None:
            self._reached.kill()
            self._reached.wait()

    def keepers(self) -> list[int]:
        """PIDs of the keepers of this scene's sessions."""
        found, place = [], f"AUTOCAP_STATE_DIR={self.state_dir}".encode()
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                ours = entry.name.isdigit() and KEEPER in (entry / "cmdline").read_bytes()
                if ours and place in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return [pid for pid in found if not any(pid in watchdogs_of(other) for other in found)]

    def guards(self) -> Sequence[int]:
        return self.keepers()

    def _python_of_user(self) -> Sequence[str]:
        """Our Python as the user reaches it, whose place may be root's alone: by a descriptor of its folder, which a
        process of theirs holds."""
        prefix = os.open(sys.base_prefix, os.O_PATH)
        self._reached = subprocess.Popen(["sleep", "infinity"], pass_fds=(prefix,), **as_user())
        os.close(prefix)
        there = f"/proc/{self._reached.pid}/fd/{prefix}"
        program = os.path.realpath(sys.executable).removeprefix(sys.base_prefix)
        path = os.pathsep.join(filter(None, [*sys.path, self.env.get("PYTHONPATH", "")]))
        return ("env", f"LD_LIBRARY_PATH={there}/lib", f"PYTHONPATH={self.env['PYTHONPATH']}:{path}", there + program)


_SHARED_MEMORY = Path("/dev/shm")
_KEPT = "what only root may read or write\n"
_EARLIEST_S = 3.0  # of a hostile act
# A session's limits on files and descriptors are no fault of whoever writes the journal here.
_NOT_HERE = ("no room for the journal", "descriptors used up", "run directory's disk full")


@dataclass(frozen=True, slots=True)
class Secret:
    """A directory of root's beside the user's, and a file in it, which must stay as they are and unread."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "kept"

    @staticmethod
    def make(folder: Path) -> "Secret":
        folder.mkdir(mode=0o700)
        secret = Secret(folder)
        secret.file.write_text(_KEPT)
        secret.file.chmod(0o600)
        return secret

    def gained(self, said: str) -> str | None:
        """What the user has gained; `None` for nothing."""
        if sorted(os.listdir(self.folder)) != [self.file.name]:
            return f"the user has put {', '.join(sorted(os.listdir(self.folder)))} into a directory of root's"
        if self.file.read_text() != _KEPT or stat.S_IMODE(self.file.stat().st_mode) != 0o600:
            return "the user has changed a file of root's"
        if self.file.stat().st_uid != 0 or self.folder.stat().st_uid != 0:
            return "a file of root's belongs to the user"
        return "the user has read a file of root's" if _KEPT.strip() in said else None


def hostile(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """The user tampers with a run that they have started under sudo: with its directory, its map and its job."""
    secret = Secret.make(scene.folder.parent / "secret")
    scene.start(rng.choice(("run", "attach")))
    random_moment(scene, rng, after_s=_EARLIEST_S)
    act = rng.choice(_ACTS)
    _as_user(act, scene, secret, rng)
    right = [0, 1, 128 + signal.SIGKILL] if act is _job_killed else [0]
    if rng.random() < 0.3:
        # Before it listens for signals, Python's own ways apply.
        right.append(128 + signal.SIGTERM if scene.said() else -signal.SIGTERM)
        scene.controller.send_signal(signal.SIGTERM)
    harmed = scene.failure(*right, what="run")
    harmed = secret.gained("\n".join(scene.said())) or _owners(scene) or harmed
    return replace(result, harmed=harmed, changed=difference(ARRIVALS_MW, scene.limits_mw()))


Act = Callable[[Scene, Secret, Random], object]


def _as_user(act: Act, scene: Scene, secret: Secret, rng: Random) -> None:
    """Do something in a process that has the user's rights and no others."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            with suppress(OSError):
                act(scene, secret, rng)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _run_directory_exchanged(scene: Scene, secret: Secret, rng: Random) -> None:
    run = scene.folder / "run"
    run.rename(scene.folder / "away")
    run.symlink_to(secret.folder) if rng.random() < 0.7 else run.write_text("in the way")


def _files_exchanged(scene: Scene, secret: Secret, rng: Random) -> None:
    run = scene.folder / "run"
    for name in ("result.json", "report.html", "half-written.tmp", "samples.csv.gz", "events.jsonl"):
        with suppress(OSError):
            (run / name).unlink(missing_ok=True)
            match rng.randrange(4):
                case 0:
                    (run / name).symlink_to(secret.file)
                case 1:
                    (run / name).mkdir()
                case 2:
                    os.mkfifo(run / name)


def _map_exchanged(scene: Scene, secret: Secret, rng: Random) -> None:
    for path in _SHARED_MEMORY.glob("autocap-steps-*"):
        if path.stat().st_uid != USER:
            continue
        match rng.randrange(4):
            case 0:
                path.write_bytes(rng.randbytes(1 << 14))
            case 1:
                os.truncate(path, rng.randrange(200))
            case 2:
                path.unlink()
                path.mkdir()
            case _:
                path.unlink()
                path.symlink_to(secret.file)


def _processes_signalled(scene: Scene, secret: Secret, rng: Random) -> None:
    """The watchdog is not the user's to signal; the job is."""
    for pid in scene.watchdogs():
        with suppress(PermissionError):
            os.kill(pid, signal.SIGKILL)
    if rng.random() < 0.5:
        for pid in _children(scene.controller.pid):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(rng.uniform(0.1, 2.0))
            os.kill(pid, signal.SIGCONT)


def _job_killed(scene: Scene, secret: Secret, rng: Random) -> None:
    for pid in _children(scene.controller.pid):
        os.kill(pid, signal.SIGKILL)


def _children(controller: int) -> list[int]:
    """Those that are the user's: the command."""
    found = []
    for task in Path(f"/proc/{controller}/task").glob("*/children"):
        pids = [int(pid) for pid in task.read_text().split()]
        found += [pid for pid in pids if Path(f"/proc/{pid}").stat().st_uid == USER]
    return found


_ACTS: tuple[Act, ...] = (
    _run_directory_exchanged,
    _files_exchanged,
    _map_exchanged,
    _processes_signalled,
    _job_killed,
)


def _owners(scene: Scene) -> str | None:
    """The complaint that something in the user's folder is root's; the emulated machine, which root sets, is none."""
    for path in scene.folder.rglob("*"):
        if path.lstat().st_uid != USER and not path.name.startswith(("machine", "out", "err")):
            return f"{path.name} in the user's folder belongs to root"
    return None


def keeper_lost(signum: signal.Signals) -> Callable[[Scene, Random, Outcome], Outcome]:
    """A signal of root's to the keeper: its watchdog puts the limits back, and the job goes on untuned, or tuned again
    once it is continued."""

    def inject(scene: Scene, rng: Random, result: Outcome) -> Outcome:
        scene.capped(rng)
        guards = scene.guards()
        for pid in guards:
            send(pid, signum)
        within_s = HUNG_BACK_WITHIN_S if signum is signal.SIGSTOP else BACK_WITHIN_S
        changed, back_s = put_back(scene, within_s=within_s + LOOKED_AT_S)
        if signum is signal.SIGSTOP:
            time.sleep(rng.uniform(0.0, 1.0))
            for pid in guards:
                send(pid, signal.SIGCONT)
        scene.ended_with()
        return ended(scene, replace(result, changed=changed, back_s=back_s))

    return inject


def all_killed(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """SIGKILL to session, keeper and watchdog at once: the next start, or `autocap restore`, puts the limits back."""
    scene.capped(rng, mode="attach")
    for pid in (*scene.watchdogs(), *scene.guards(), scene.controller.pid):
        send(pid, signal.SIGKILL)
    scene.controller.wait()
    scene.autocap("restore") if rng.random() < 0.5 else scene.autocap("run", "--no-memory", "--", "true")
    return ended(scene, replace(result, changed=difference(ARRIVALS_MW, scene.limits_mw())))


KINDS: dict[str, Callable[[Scene, Random, Outcome], Outcome]] = {
    "sudo: the user tampers": hostile,
    "sudo: keeper killed": keeper_lost(signal.SIGKILL),
    "sudo: keeper stopped": keeper_lost(signal.SIGSTOP),
    "sudo: all killed at once": all_killed,
    **{f"sudo: {name}": inject for name, inject in process_faults.KINDS.items() if name not in _NOT_HERE},
}


def injected(kind: str, seed: int) -> Outcome | None:
    """The outcome of one injection under sudo; `None` where the job ended before, or where only root can imitate it."""
    return inject_into(KINDS[kind], kind, seed, lambda folder: SudoScene(folder / "job", ITERATIONS))
