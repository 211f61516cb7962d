"""Where autocap's own command is, and so how to call it with sudo, whose PATH holds the system's folders alone.

In a session under sudo its Python may lie in a place of root's, where its user may not look. It then finds its
libraries by a variable, which processes of ours inherit and a job does not.
"""

import os
import shlex
import sys
from collections.abc import Mapping

_NAME = "autocap"
# What sudo's secure_path holds where nobody has changed it.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def own_folders(argv0: str | None = None, executable: str | None = None) -> tuple[str, ...]:
    """The folder of the command that was called, where it was called by its name, and that of its Python."""
    script, python = _script(argv0), sys.executable if executable is None else executable
    return tuple(dict.fromkeys(os.path.dirname(path) for path in (script, python) if path))


def sudo_advice(argv0: str | None = None) -> str:
    """What to do for root's rights, as the beginning of a sentence."""
    command = _as_root(argv0)
    return f"run {_NAME} with sudo" if command == _NAME else f"run sudo {command}"


def helper_advice() -> str:
    """What to do for a limit that is set without root's rights, as a clause."""
    return f"have an administrator run `{sudo_command('helper install')}` once"


def sudo_command(words: str) -> str:
    """How autocap is called as root with those words."""
    return f"sudo {_as_root()} {words}"


def _as_root(argv0: str | None = None) -> str:
    """Behind sudo: the name where sudo finds the command by it."""
    script = _script(argv0)
    return _NAME if script is None or os.path.dirname(script) in SYSTEM_FOLDERS else shlex.quote(script)


def _script(argv0: str | None) -> str | None:
    called = sys.argv[0] if argv0 is None else argv0
    return os.path.abspath(called) if os.path.basename(called) == _NAME else None


VARIABLE = "LD_LIBRARY_PATH"
UNCHANGED = "-"
_before = UNCHANGED  # what the variable was, "" where there was none


def changed_from(before: str) -> None:
    """The variable is ours by now. before: what it was, "" where there was none; UNCHANGED where it is as it was."""
    global _before
    _before = before


def environment_of(job: Mapping[str, str]) -> dict[str, str]:
    """A job's variables, with that one as it was."""
    found = dict(job)
    if _before != UNCHANGED:
        found.pop(VARIABLE, None)
        found |= {VARIABLE: _before} if _before else {}
    return found


def libraries() -> dict[str, str]:
    """What our own Python needs beside the variables of a job."""
    return {} if _before == UNCHANGED else {VARIABLE: os.environ[VARIABLE]}


def libraries_before() -> str:
    """As `changed_from` was told."""
    return _before
