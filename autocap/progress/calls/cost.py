"""What counting a call costs the thread that makes it, measured on ourselves: it differs tenfold between machines.

Between two calls a thread computes, and the kernel's way through the breakpoint is in no cache when it makes the next:
that costs several times as much as call upon call would.

The kernel replaces the function's first instruction. Some it then carries out itself, others it has the CPU step over
in a copy, which takes several times as long: which of the two is told by the instruction.
"""

import ctypes
import mmap
import os
import platform
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import BinaryIO

import numpy as np

from autocap.progress.calls.target import CallsUnavailable
from autocap.progress.calls.uprobe import Uprobes

# A function that does nothing, whose first instruction is carried out by the kernel, or stepped over.
_CARRIED_OUT = {"x86_64": b"\x55\x5d\xc3"}  # push %rbp; pop %rbp; ret
_STEPPED_OVER = {
    "x86_64": b"\x89\xf8\xc3",  # mov %edi,%eax; ret
    "aarch64": b"\xe0\x03\x00\x2a\xc0\x03\x5f\xd6",  # mov w0,w0; ret
}
_CALLS = 60
_IN_A_JOB = 1.5  # times as much as here, a network's own call took at most (bench/overhead/README.md)
_BETWEEN_BYTES = 8 << 20  # that are moved between two calls: more than the caches of a core hold


def call_cost_s(uprobes: Uprobes, first: bytes) -> float:
    """Seconds a counted call takes longer than one that is not counted.

    first: the function's first bytes. Raises CallsUnavailable where it cannot be measured.
    """
    machine = platform.machine()
    codes = _CARRIED_OUT if machine in _CARRIED_OUT and _is_carried_out(first) else _STEPPED_OVER
    if machine not in codes:
        raise CallsUnavailable(f"what counting a call costs cannot be measured on {machine}")
    try:
        with os.fdopen(os.memfd_create("autocap-probed", os.MFD_CLOEXEC), "r+b", buffering=0) as file:
            file.write(codes[machine].ljust(mmap.PAGESIZE, b"\0"))
            protection = mmap.PROT_READ | mmap.PROT_EXEC
            with mmap.mmap(file.fileno(), mmap.PAGESIZE, flags=mmap.MAP_PRIVATE, prot=protection) as code:
                return _measured(uprobes, file, code)
    except OSError as error:
        raise CallsUnavailable(f"what counting a call costs cannot be measured: {error.strerror}") from error


def _measured(uprobes: Uprobes, file: BinaryIO, code: mmap.mmap) -> float:
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(np.frombuffer(code, np.uint8).ctypes.data)
    plain_s = _timed(function)
    calls = uprobes.open(threading.get_native_id(), file, 0)
    if calls is None:
        raise CallsUnavailable("what counting a call costs cannot be measured: the kernel does not find our own thread")
    try:
        counted_s = _timed(function)
        counted, _ = calls.last() or (0, 0.0)
        if counted != _CALLS:
            raise CallsUnavailable(f"the kernel counted {counted} of {_CALLS} calls of our own")
    finally:
        calls.close()
    return _IN_A_JOB * max(0.0, counted_s - plain_s)


def _is_carried_out(first: bytes) -> bool:
    """Of x86: a push of a register."""
    return first[:1] in _PUSHES or (first[:1] == b"\x41" and first[1:2] in _PUSHES)


_PUSHES = frozenset(bytes([code]) for code in range(0x50, 0x58))


def _timed(call: Callable[[int], int]) -> float:
    """Seconds a call takes: the median."""
    source, sink = ctypes.create_string_buffer(_BETWEEN_BYTES), ctypes.create_string_buffer(_BETWEEN_BYTES)
    taken_ns = []
    for _ in range(_CALLS):
        ctypes.memmove(sink, source, _BETWEEN_BYTES)
        begun_ns = time.perf_counter_ns()
        call(1)
        taken_ns.append(time.perf_counter_ns() - begun_ns)
    return median(taken_ns) / 1e9
