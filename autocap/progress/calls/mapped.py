"""The file that a process has mapped, even where it was replaced or lies in another mount namespace."""

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autocap.job.keeper import keeper
from autocap.progress.calls.target import CallsUnavailable, CallTarget, ProcessHidden

_PROC = Path("/proc")
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedFile:
    """pid: of the process. path: as the process sees it. addresses: of one of its mappings, as
    /proc/PID/map_files has them. inode: the file's number. deleted: no such file is at the path any more."""

    pid: int
    path: str
    addresses: str
    inode: int
    deleted: bool


def mapped_file(pid: int, target: CallTarget) -> MappedFile | None:
    """The file with the function, of which the process has mapped code; `None` where it has not, or has ended.

    Raises ProcessHidden where the process hides it.
    """
    try:
        with (_PROC / str(pid) / "maps").open(errors="surrogateescape") as lines:
            return next((found for line in lines if (found := _mapped(pid, line, target)) is not None), None)
    except PermissionError as error:
        raise ProcessHidden(f"process {pid} hides what it has loaded; run autocap as root") from error
    except OSError:
        return None


def open_mapped(mapped: MappedFile) -> BinaryIO:
    """The very file that is mapped, for reading.

    Raises CallsUnavailable where it cannot be opened, and where only another one is to be had.
    """
    process = _PROC / str(mapped.pid)
    root = keeper()
    with suppress(OSError):  # only root of the first user namespace may
        if root is not None:
            return os.fdopen(root.mapped(mapped.pid, mapped.addresses), "rb", buffering=0)
        return _open(process / "map_files" / mapped.addresses)
    try:
        file = _open(Path(f"{process}/root{mapped.path}"))
    except OSError as error:
        raise CallsUnavailable(
            f"{mapped.path} cannot be opened as process {mapped.pid} sees it ({error.strerror}); run autocap as root"
        ) from error
    if mapped.deleted or os.fstat(file.fileno()).st_ino != mapped.inode:
        file.close()
        raise CallsUnavailable(
            f"{mapped.path} was replaced since process {mapped.pid} loaded it; run autocap as root, or start the job "
            "again"
        )
    return file


def _mapped(pid: int, line: str, target: CallTarget) -> MappedFile | None:
    fields = line.rstrip("\n").split(maxsplit=5)
    if len(fields) < 6 or "x" not in fields[1]:
        return None
    begin, _, end = fields[0].partition("-")
    inode, name = fields[4:]
    path = name.removesuffix(_DELETED)
    if not path.startswith("/") or not target.is_in(path):
        return None
    return MappedFile(
        pid=pid, path=path, addresses=f"{int(begin, 16):x}-{int(end, 16):x}", inode=int(inode), deleted=path != name
    )


def _open(path: Path) -> BinaryIO:
    """A regular file; whatever else a job may have put there is not waited for. Raises OSError."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "no regular file")
    return file
