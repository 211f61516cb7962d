"""Where in an ELF file a function begins. The file is one that a job maps: nothing it says of itself is believed."""

import os
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from autocap.progress.calls.target import CallsUnavailable, CallTarget

_DEFINED_FUNCTION = 2  # STT_FUNC
_EXECUTABLE = 1  # PF_X
_TABLES = ("SHT_DYNSYM", "SHT_SYMTAB")  # what is exported, then what a file that is not stripped tells besides
_SYMBOL_64 = [("name", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2"), ("value", "u8"), ("size", "u8")]
_SYMBOL_32 = [("name", "u4"), ("value", "u4"), ("size", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2")]


def function_offset(file: BinaryIO, target: CallTarget) -> int:
    """Bytes from the file's beginning to the function's first instruction.

    Raises CallsUnavailable where the file has no such function, has several, or is no ELF file.
    """
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


def _addresses(file: BinaryIO, elf: ELFFile, target: CallTarget) -> list[int]:
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


def _offsets(elf: ELFFile, address: int) -> list[int]:
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
