"""Where autocap's own command is, and so how to call it with sudo, whose PATH holds the system's folders alone."""

import os
import shlex
import sys
from collections.abc import Sequence

_NAME = "autocap"
# What sudo's secure_path holds where nobody has changed it.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def own_folders(argv0: str | None = None, executable: str | None = None) -> tuple[str, ...]:
    """The folder of the command that was called, where it was called by its name, and that of its Python."""
    script, python = _script(argv0), sys.executable if executable is None else executable
    return tuple(dict.fromkeys(os.path.dirname(path) for path in (script, python) if path))


def sudo_advice(argv0: str | None = None, system: Sequence[str] = SYSTEM_FOLDERS) -> str:
    """What to do for root's rights, as the beginning of a sentence."""
    script = _script(argv0)
    if script is None or os.path.dirname(script) in system:
        return f"run {_NAME} with sudo"
    return f"run sudo {shlex.quote(script)}"


def helper_advice(argv0: str | None = None, system: Sequence[str] = SYSTEM_FOLDERS) -> str:
    """What to do for a limit that is set without root's rights, as a clause."""
    return f"have an administrator run `{sudo_command('helper install', argv0, system)}` once"


def sudo_command(words: str, argv0: str | None = None, system: Sequence[str] = SYSTEM_FOLDERS) -> str:
    """How autocap is called as root with those words."""
    script = _script(argv0)
    if script is None or os.path.dirname(script) in system:
        return f"sudo {_NAME} {words}"
    return f"sudo {shlex.quote(script)} {words}"


def _script(argv0: str | None) -> str | None:
    called = sys.argv[0] if argv0 is None else argv0
    return os.path.abspath(called) if os.path.basename(called) == _NAME else None
