"""A machine with GPUs that a helper lends to a user without rights: real processes, above an emulated NVML library."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest

from autocap.limits.helper.connection import offers_at
from autocap.testing.nvml import FileBoard, Limits, Machine, environment
from tests.doubles.waiting import eventually

USER = 65534  # without rights, but to read files: Python's own may lie where only root can
_SETPRIV = shutil.which("setpriv")
_AS_USER = (
    *(
        _SETPRIV or "setpriv",
        f"--reuid={USER}",
        f"--regid={USER}",
        "--clear-groups",
        "--inh-caps=-all,+dac_read_search",
    ),
    *("--ambient-caps=-all,+dac_read_search", "--bounding-set=-all,+dac_read_search"),
)
needs_two_users = pytest.mark.skipif(
    os.geteuid() != 0 or _SETPRIV is None, reason="only root can be two users, by setpriv (util-linux)"
)


class LentNode:
    """folder: everybody's. home: the user's. state: the helper's. socket: where it listens. helper: its process."""

    def __init__(self, folder: Path, made: Machine) -> None:
        self.folder, self.home, self.state = folder, folder / "home", folder / "helper"
        self.socket = self.state / "helper.sock"
        folder.chmod(0o755)
        for place in (self.home, folder / "machine"):
            place.mkdir()
            place.chmod(0o777)
        state = folder / "machine" / "state.json"
        roots = [replace(card, limits=Limits.ROOTS) for card in made.cards]
        self.board = FileBoard.create(state, replace(made, cards=tuple(roots), start_s=None))
        state.with_suffix(".lock").touch()
        state.with_suffix(".lock").chmod(0o666)
        self.gpus = range(len(made.cards))
        self.arrival_mw = self.limits_mw()
        env = {**os.environ, "NO_COLOR": "1", "AUTOCAP_SYSFS": str(folder / "sys"), "HOME": str(self.home)}
        for name in ("AUTOCAP_OBSERVE", "AUTOCAP_STATE_DIR", "SUDO_UID", "SUDO_GID", "PYTHONPATH"):
            env.pop(name, None)
        self._env = environment(state, env)
        self.env = {**self._env, "AUTOCAP_HELPER": str(self.socket), "XDG_STATE_HOME": str(self.home)}
        self.helper: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[str]] = []

    def serve(self) -> None:
        """Start the helper, and wait until it answers."""
        argv = [sys.executable, "-m", "autocap", "helper", "serve", "--socket", str(self.socket), "--group", "nogroup"]
        env = {**self._env, "AUTOCAP_STATE_DIR": str(self.state)}
        with (self.folder / "helper.log").open("ab") as log:
            self.helper = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)
        eventually(self._answers)

    def kill_helper(self) -> None:
        self.helper.kill()
        self.helper.wait()

    def limits_mw(self) -> list[int]:
        return [self.board.requested_mw(gpu) for gpu in self.gpus]

    def are_back(self) -> bool:
        return self.limits_mw() == self.arrival_mw

    def argv(self, *words: str) -> list[str]:
        return [*_AS_USER, sys.executable, *words]

    def start(self, *words: str, out: str = "out") -> "subprocess.Popen[str]":
        """Python, as the user, in a session of its own, with words for it."""
        with (self.home / out).open("w") as text, (self.home / f"{out}.err").open("w") as errors:
            made = subprocess.Popen(
                self.argv(*words), cwd=self.home, env=self.env, stdin=subprocess.DEVNULL, stdout=text, stderr=errors,
                text=True, start_new_session=True,
            )  # fmt: skip
        self._started.append(made)
        return made

    def run(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        """Python, as the user, to its end."""
        return subprocess.run(
            self.argv(*words), cwd=self.home, env={**self.env, **env}, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip

    def said(self, out: str = "out") -> str:
        return (self.home / out).read_text() + (self.home / f"{out}.err").read_text()

    def end(self) -> None:
        """End whatever a test left running; the driver lists no job any more."""
        job = self.board.read().job_pid  # of a run: it has a session of its own, and outlives its tuner
        for one in self._started:
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
        if job is not None:
            with suppress(ProcessLookupError):
                os.kill(job, signal.SIGKILL)
        self._started.clear()
        self.board.update(lambda state: replace(state, job_pid=None, reported_pid=None, start_s=None))

    def close(self) -> None:
        self.end()
        if self.helper is not None and self.helper.poll() is None:
            self.helper.terminate()
            self.helper.wait(120)

    def _answers(self) -> bool:
        assert self.helper.poll() is None, (self.folder / "helper.log").read_text()
        with suppress(Exception):
            return bool(offers_at(self.socket))
        return False


@contextmanager
def lent_node(made: Machine) -> Iterator[LentNode]:
    """A machine whose helper serves. It is nowhere below a folder that only root may enter."""
    folder = Path(mkdtemp(prefix="autocap-lent-"))
    node = LentNode(folder, made)
    try:
        node.serve()
        yield node
    finally:
        node.close()
        shutil.rmtree(folder)
