"""The job's processes and threads as this machine has them, and the function that is looked for in them: the file that
a process has mapped, even where it was replaced or lies in another mount namespace, and where in it the function
begins. The file is one that a job maps: nothing it says of itself is believed.
"""

import errno
import os
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt

from autocap.job.keeper import keeper
from autocap.job.processes import ProcessId, Roots, environment, spent_ticks, tree
from autocap.progress.calls.target import CallsUnavailable, CallTarget, ProcessHidden
from autocap.progress.calls.uprobe import ThreadCalls, Uprobes, call_cost_s

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

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


_DEFINED_FUNCTION = 2  # STT_FUNC
_EXECUTABLE = 1  # PF_X
_TABLES = ("SHT_DYNSYM", "SHT_SYMTAB")  # what is exported, then what a file that is not stripped tells besides
_SYMBOL_64 = [("name", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2"), ("value", "u8"), ("size", "u8")]
_SYMBOL_32 = [("name", "u4"), ("value", "u4"), ("size", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2")]


def function_offset(file: BinaryIO, target: CallTarget) -> int:
    """Bytes from the file's beginning to the function's first instruction.

    Raises CallsUnavailable where the file has no such function, has several, or is no ELF file.
    """
    from elftools.common.exceptions import ELFError  # where it is needed
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(file)
        addresses = _addresses(file, elf, target)
        offsets = {offset for address in addresses for offset in _offsets(elf, address)}
    except (ELFError, OSError, ValueError, KeyError, AssertionError, OverflowError, MemoryError) as error:
        raise CallsUnavailable(f"the symbols of {target.library} cannot be read: {error}") from error
    if len(offsets) != 1:
        many = f"{len(offsets)} functions" if offsets else "no function"
        raise CallsUnavailable(f"{target.library} has {many} called {target.symbol}; list its names with: nm -D FILE")
    return offsets.pop()


def _addresses(file: BinaryIO, elf: "ELFFile", target: CallTarget) -> list[int]:
    """In memory, where the file's own base is 0."""
    for table in _TABLES:
        for section in elf.iter_sections(table):
            names = elf.get_section(section["sh_link"])
            found = _named(
                _read(file, section["sh_offset"], section["sh_size"]),
                _read(file, names["sh_offset"], names["sh_size"]),
                target,
                np.dtype(_SYMBOL_64 if elf.elfclass == 64 else _SYMBOL_32).newbyteorder(
                    "<" if elf.little_endian else ">"
                ),
            )
            if found:
                return found
    return []


def _named(table: bytes, names: bytes, target: CallTarget, layout: "np.dtype[np.void]") -> list[int]:
    """The values of the defined functions of that name. A hundred thousand symbols are looked through as an array."""
    wanted = target.symbol.encode() + (b"" if target.by_prefix else b"\0")
    symbols = np.frombuffer(table, dtype=layout, count=len(table) // layout.itemsize)
    fitting = np.isin(symbols["name"], _positions(names, wanted))
    fitting &= (symbols["info"] & 0xF == _DEFINED_FUNCTION) & (symbols["section"] != 0)
    return sorted({int(value) for value in symbols["value"][fitting]})


def _positions(names: bytes, wanted: bytes) -> npt.NDArray[np.int64]:
    """A name may be the end of another one, so any place may begin one."""
    found, at = [], names.find(wanted)
    while at >= 0:
        found.append(at)
        at = names.find(wanted, at + 1)
    return np.array(found, dtype=np.int64)


def _offsets(elf: "ELFFile", address: int) -> list[int]:
    return [
        address - segment["p_vaddr"] + segment["p_offset"]
        for segment in elf.iter_segments("PT_LOAD")
        if segment["p_flags"] & _EXECUTABLE and segment["p_vaddr"] <= address < segment["p_vaddr"] + segment["p_filesz"]
    ]


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    """Not mapped: reading a mapping of a file that was truncated would kill us."""
    if offset + size > os.fstat(file.fileno()).st_size:
        raise ValueError("a section reaches beyond the end of the file")
    return os.pread(file.fileno(), size, offset)


_FIRST_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function in a file that a process maps. cost_s: what counting a call costs."""

    file: BinaryIO
    offset: int
    cost_s: float


class Host:
    """What a counter needs of the machine; a double stands for it in tests.

    Raises CallsUnavailable, from everything but `close`, where the machine does not let calls be counted.
    """

    def __init__(self, target: CallTarget) -> None:
        self._target = target
        self._stack = ExitStack()
        self._uprobes: Uprobes | None = None
        self._functions: dict[tuple[int, int], Function] = {}  # by the file's device and inode

    def rehearse(self) -> None:
        """Count calls of our own."""
        call_cost_s(self._kernel(), b"")

    def processes(self, job: Roots) -> tuple[ProcessId, ...]:
        """The job's, those alone that belong to the user who asks. Raises OSError where no file can be opened."""
        own = os.getuid()  # under sudo the user's who typed the command
        return tuple(each for each in tree(job) if own == 0 or _owner(each.pid) == own)

    def rank(self, pid: int) -> int | None:
        """RANK in the process's environment."""
        with suppress(OSError, KeyError, ValueError):
            return int(environment(pid)[b"RANK"])
        return None

    def threads(self, pid: int) -> list[int]:
        """The process's first thread, then the others, those that have computed most first; none of a process that has
        ended."""
        with suppress(OSError):
            tids = [int(name) for name in os.listdir(_PROC / str(pid) / "task")]
            return sorted(tids, key=lambda tid: (tid != pid, -spent_ticks(pid, tid)))
        return []

    def is_there(self, pid: int, tid: int) -> bool:
        """Whether the process has such a thread."""
        return (_PROC / str(pid) / "task" / str(tid)).exists()

    def function(self, pid: int) -> Function | None:
        """The function in what the process has loaded; `None` while it has not loaded its file."""
        mapped = mapped_file(pid, self._target)
        if mapped is None:
            return None
        file = open_mapped(mapped)
        status = os.fstat(file.fileno())
        known = self._functions.get((status.st_dev, status.st_ino))
        if known is not None:
            file.close()
            return known
        self._stack.enter_context(file)
        offset = function_offset(file, self._target)
        cost_s = call_cost_s(self._kernel(), os.pread(file.fileno(), _FIRST_BYTES, offset))
        return self._functions.setdefault((status.st_dev, status.st_ino), Function(file, offset, cost_s))

    def open(self, tid: int, function: Function) -> ThreadCalls | None:
        """Count a thread's calls from now on; `None` where it has ended."""
        return self._kernel().open(tid, function.file, function.offset)

    def close(self) -> None:
        if self._uprobes is not None:
            self._uprobes.close()
        self._stack.close()

    def _kernel(self) -> Uprobes:
        if self._uprobes is None:
            self._uprobes = Uprobes()
        return self._uprobes


def _owner(pid: int) -> int | None:
    try:
        return (_PROC / str(pid)).stat().st_uid
    except OSError:
        return None
