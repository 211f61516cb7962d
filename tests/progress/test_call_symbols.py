"""Where a function begins in a file that a process maps, told by the dynamic loader and by us."""

import ctypes
import io
import mmap
import os
import random
from pathlib import Path

import numpy as np
import pytest

from autocap.progress.calls.host import MappedFile, function_offset, mapped_file, open_mapped
from autocap.progress.calls.target import CallsUnavailable, CallTarget

LIBRARY = Path(np.linalg._umath_linalg.__file__)  # type: ignore[attr-defined]
ENTRY = CallTarget(library=LIBRARY.name, symbol=f"PyInit_{LIBRARY.name.partition('.')[0]}")


def loaded_at(target: CallTarget) -> int:
    """The function's place in its file, as this process has it loaded."""
    address = ctypes.cast(getattr(ctypes.CDLL(str(LIBRARY)), target.symbol), ctypes.c_void_p).value or 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split()
        begin, end = (int(part, 16) for part in fields[0].split("-"))
        if begin <= address < end:
            assert fields[5] == str(LIBRARY)
            return address - begin + int(fields[2], 16)
    raise AssertionError("no mapping holds the function")


def test_a_function_begins_where_the_loader_has_it() -> None:
    with LIBRARY.open("rb") as file:
        assert function_offset(file, ENTRY) == loaded_at(ENTRY)


def test_the_beginning_of_a_name_is_enough_where_it_is_asked_for() -> None:
    cut = CallTarget(library=ENTRY.library, symbol=ENTRY.symbol[:-3], by_prefix=True)
    with LIBRARY.open("rb") as file:
        assert function_offset(file, cut) == loaded_at(ENTRY)
        whole = CallTarget(library=ENTRY.library, symbol=cut.symbol)
        with pytest.raises(CallsUnavailable, match=f"has no function called {cut.symbol}; list its names with: nm -D"):
            function_offset(file, whole)


def test_what_is_only_imported_is_not_there() -> None:
    with LIBRARY.open("rb") as file, pytest.raises(CallsUnavailable, match="has no function called PyErr_SetString"):
        function_offset(file, CallTarget(library=LIBRARY.name, symbol="PyErr_SetString"))


def test_whatever_a_file_holds_the_search_ends_with_a_reason(tmp_path: Path) -> None:
    whole, chance = LIBRARY.read_bytes(), random.Random(1)
    damaged = [b"", b"\x7fELF", whole[:5000]]
    for _ in range(60):
        header = bytearray(whole)
        for _ in range(4):
            at = chance.choice((chance.randrange(64), len(whole) - 1 - chance.randrange(2000)))  # sections stand last
            header[at] = chance.randrange(256)
        damaged.append(bytes(header))
    found = set()
    for content in damaged:
        (tmp_path / "file").write_bytes(content)
        with (tmp_path / "file").open("rb") as file:
            try:
                found.add(function_offset(file, ENTRY))
            except CallsUnavailable:
                found.add(None)
    assert None in found


def test_a_mapped_file_is_found_by_name_and_opened_itself() -> None:
    ctypes.CDLL(str(LIBRARY))
    mapped = mapped_file(os.getpid(), ENTRY)
    assert mapped.path == str(LIBRARY)
    with open_mapped(mapped) as file:
        assert os.fstat(file.fileno()).st_ino == LIBRARY.stat().st_ino
    assert mapped_file(os.getpid(), CallTarget(library="libnone.so", symbol="run")) is None


def test_code_alone_counts_as_loaded(tmp_path: Path) -> None:
    (tmp_path / "libdata.so").write_bytes(bytes(mmap.PAGESIZE))
    with (tmp_path / "libdata.so").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert mapped_file(os.getpid(), CallTarget(library="libdata.so", symbol="run")) is None


@pytest.mark.parametrize("deleted", [False, True])
def test_without_root_a_file_that_was_replaced_is_refused(tmp_path: Path, deleted: bool) -> None:
    (tmp_path / "lib.so").write_bytes(b"new")
    number = (tmp_path / "lib.so").stat().st_ino
    nowhere = "0-1"  # as if its mapping could not be followed
    path = str(tmp_path / "lib.so")
    replaced = MappedFile(
        pid=os.getpid(), path=path, addresses=nowhere, inode=number if deleted else number + 1, deleted=deleted
    )
    with pytest.raises(CallsUnavailable, match=f"was replaced since process {os.getpid()} loaded it; run autocap as"):
        open_mapped(replaced)
    same = MappedFile(pid=os.getpid(), path=path, addresses=nowhere, inode=number, deleted=False)
    with open_mapped(same) as file:
        assert file.read() == b"new"


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lib.so")
    pipe = MappedFile(pid=os.getpid(), path=str(tmp_path / "lib.so"), addresses="0-1", inode=1, deleted=False)
    with pytest.raises(CallsUnavailable, match=r"cannot be opened as process \d+ sees it \(no regular file\); run"):
        open_mapped(pipe)


def test_what_is_no_elf_file_has_a_reason() -> None:
    with pytest.raises(CallsUnavailable, match=r"the symbols of lib\.so cannot be read: "):
        function_offset(io.BytesIO(b"#!/bin/sh"), CallTarget(library="lib.so", symbol="run"))
