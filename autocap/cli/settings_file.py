"""The settings that a file `autocap.toml` holds, as it has them: which options take them is not known here.

Such a file may say which bounds a cap has and where files are written, and a run may be root's. So no file is used that
somebody else could have written; it is read with the rights of whoever typed the command.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from autocap.errors import UsageError
from autocap.job.invoking_user import InvokingUser, acting_as, invoking_user
from autocap.job.keeper import user_behind_sudo
from autocap.job.trusted_code import writer_of
from autocap.runlog.input_file import KIB, InputRefused, read_input

NAME = "autocap.toml"
HERE = f"./{NAME}"
_MOST = 64 * KIB
_WITHOUT = "or go on without such files by --no-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """table: the command whose table it stands in, `None` for what holds for every command. place: where it stands, as
    an error begins."""

    table: str | None
    key: str
    value: object
    place: str


def paths() -> list[str]:
    """The files that may be there, that of the current directory first, as they are shown."""
    own = _of_user(user_behind_sudo())
    return [HERE] if own is None or os.path.abspath(own) == os.path.abspath(HERE) else [HERE, own]


def read(path: str, is_table: Callable[[str], bool]) -> list[Entry] | None:
    """What one of these files holds; `None` where it is not there. is_table: whether that is a command's name.

    Raises UsageError where it cannot be read, is no TOML, or is not to be trusted.
    """
    if not is_there(path):
        return None
    with acting_as(invoking_user()):
        text = _text(path)
    return list(_entries(path, text, is_table))


def is_there(path: str) -> bool:
    """Whether there is such a file for whoever typed the command: one in a directory that is closed to them is not
    meant for them."""
    with acting_as(invoking_user()):
        try:
            os.stat(path)
        except (OSError, ValueError):
            return False
        return True


def _of_user(user: InvokingUser | None) -> str | None:
    """Where the user's own file is; under sudo nothing but their home counts, as the variables may be root's."""
    base = os.environ.get("XDG_CONFIG_HOME", "") if user is None else ""
    if not os.path.isabs(base):
        home = os.path.expanduser("~") if user is None else user.home
        base = os.path.join(home, ".config")
    return os.path.join(base, "autocap", NAME) if os.path.isabs(base) else None


def _entries(path: str, text: str, is_table: Callable[[str], bool]) -> Iterator[Entry]:
    for key, value in _parsed(path, text).items():
        if is_table(key) and isinstance(value, Mapping):
            for inner, of_inner in value.items():
                yield Entry(table=key, key=inner, value=of_inner, place=_place(path, text, key, inner))
        else:
            yield Entry(table=None, key=key, value=value, place=_place(path, text, None, key))


def _text(path: str) -> str:
    try:
        return read_input(Path(path), _MOST, partial(_require_own, path)).decode()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; give it the right mode, {_WITHOUT}") from error
    except InputRefused as error:
        raise UsageError(f"{error}; make it a plain file, {_WITHOUT}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 text, as TOML is; write it anew, {_WITHOUT}") from error


def _require_own(path: str, fd: int) -> None:
    why_not = writer_of(fd, os.getuid())
    if why_not is not None:
        raise UsageError(
            f"{path} is not to be trusted, as {why_not}; make it your own, with `chmod go-w`, or a copy, {_WITHOUT}"
        )


def _parsed(path: str, text: str) -> dict[str, object]:
    import tomllib  # most runs have no such file

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, arrays in arrays
        why = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f'{path} is no TOML: {why}; write lines such as `metric = "energy"`') from None


def _place(path: str, text: str, table: str | None, key: str) -> str:
    """Where a key stands, as far as that can be told: the parser does not say."""
    inside: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([\w-]+)\s*\]", line)
        if header:
            inside = header[1]
            if table is None and inside == key:
                return f"{path}, line {number}"
        elif inside == table and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return f"{path}, line {number}"
    return path
