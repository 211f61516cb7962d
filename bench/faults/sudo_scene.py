"""A scene whose commands a user types under sudo: we are root, and its variables name them."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bench.faults.processes import Scene
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
