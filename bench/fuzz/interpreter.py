"""One command line in this process, from its streams to its exit status as the interpreter would have it."""

import atexit
import os
import runpy
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn, TextIO

from bench.fuzz.case import Call
from bench.fuzz.confined import CALL, ERR, OUT

_FLUSH_FAILED = 120  # Python's own status for it


def become(call: Call, folder: Path) -> NoReturn:
    """Be `python -m MODULE WORDS`. Its streams go into files in the folder."""
    (folder / CALL).write_bytes(repr(asdict(call)).encode("utf-8", "surrogatepass"))
    _connect(folder)
    for name in [name for name in os.environ if name.startswith(("AUTOCAP_", "SUDO_"))]:
        del os.environ[name]
    home = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "home-state"), "NO_COLOR": "1", "COLUMNS": "120"}
    home["AUTOCAP_STATE_DIR"] = str(folder / "state")
    os.environ.update(home | dict(call.environment))
    sys.argv = [call.module, *call.words]
    os._exit(_status(call.module))


def _connect(folder: Path) -> None:
    """The standard streams as the interpreter opens them: nothing, and two files."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        place = folder / (OUT, ERR)[fd - 1] if fd else os.devnull
        file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND if fd else os.O_RDONLY, 0o600)
        os.dup2(file, fd)
        os.close(file)
        stream = _stream(fd)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(fd: int) -> TextIO:
    errors = "backslashreplace" if fd == 2 else "strict"
    return open(fd, "w" if fd else "r", encoding="utf-8", errors=errors, buffering=1 if fd == 2 else -1, closefd=False)


def _status(module: str) -> int:
    status = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = _of(ended.code)
    except BaseException:  # noqa: BLE001 - what the interpreter would print
        with suppress(Exception):
            traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter calls to await threads
    atexit._run_exitfuncs()
    return status if _flushed() else _FLUSH_FAILED


def _of(code: object) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    with suppress(Exception):
        print(code, file=sys.stderr)
    return 1


def _flushed() -> bool:
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - the interpreter prints any
        with suppress(Exception):
            print(f"Exception ignored in: {sys.stdout!r}\n{error!r}", file=sys.stderr)
        return False
    with suppress(Exception):
        sys.stderr.flush()
    return True
