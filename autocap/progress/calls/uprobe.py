"""Calls as the kernel counts them (`autocap.job.call_events`), read from a ring that it shares with us; and what that
costs the thread that makes a call, measured on ourselves: it differs tenfold between machines.

Between two calls a thread computes, and the kernel's way through the breakpoint is in no cache when it makes the next:
that costs several times as much as call upon call would.

The kernel replaces the function's first instruction. Some it then carries out itself, others it has the CPU step over
in a copy, which takes several times as long: which of the two is told by the instruction.
"""

import ctypes
import errno
import mmap
import os
import platform
import resource
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import BinaryIO

import numpy as np

from autocap.job import call_events
from autocap.job.keeper import keeper
from autocap.progress.calls.target import CallsUnavailable

_PAGE = mmap.PAGESIZE  # the header's
_RING = 8 * _PAGE  # 1024 calls
_HEAD_AT = 1024  # of struct perf_event_mmap_page
_RECORD = struct.Struct("=IHHIIQQ")  # type, misc, size, pid, tid, time, value
_RECORDS = np.dtype([("kind", "u4"), ("misc", "u2"), ("size", "u2"), ("ids", "u8"), ("t_ns", "u8"), ("count", "u8")])
_SAMPLE = 9  # PERF_RECORD_SAMPLE
_NOT_SUPPORTED = 524  # the kernel's own ENOTSUPP
_FORBIDDEN = (errno.EPERM, errno.EACCES)
_FULL = (errno.EMFILE, errno.ENFILE)
_NO_PROBE = (errno.EINVAL, errno.EIO, errno.EOPNOTSUPP, _NOT_SUPPORTED)
_READINGS = 5  # of a record that is being overwritten


class ThreadCalls:
    """One thread's calls since the event was opened."""

    def __init__(self, fd: int) -> None:
        """Takes the descriptor over. Raises OSError where the kernel gives no ring."""
        try:
            # It has a copy of the descriptor.
            self._ring = mmap.mmap(fd, _PAGE + _RING, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        finally:
            os.close(fd)

    def last(self) -> tuple[int, float] | None:
        """How many there were with the newest one, and when that was, seconds on the system's monotonic clock; `None`
        before the first. This only reads memory: the thread does not feel it."""
        for _ in range(_READINGS):
            head = self._head()
            at = head % _RING  # records are of 32 bytes, so none goes round the end
            kind, _, size, _, _, t_ns, count = _RECORD.unpack_from(self._ring, _PAGE + at)
            if head == self._head():
                return (count, t_ns / 1e9) if kind == _SAMPLE and size == _RECORD.size else None
        return None

    def after(self, count: int) -> list[float] | None:
        """When the calls after the first `count` were, oldest first; `None` where some of them are overwritten."""
        before = self._head()
        ring = self._ring[_PAGE:]
        written = (before - self._head()) % (1 << 64)  # meanwhile, and one more that may be on its way
        at = before % _RING
        records = np.frombuffer(ring[at:] + ring[:at], _RECORDS)[: max(0, (_RING - written) // _RECORD.size - 1)]
        counts = records["count"].astype(np.int64)
        unlike = np.flatnonzero((records["kind"] != _SAMPLE) | (counts != counts[:1] - np.arange(counts.size)))
        counts = counts[: unlike[0]] if unlike.size else counts
        new = counts[counts > count].size
        if new and counts[new - 1] != count + 1:
            return None
        return [t_ns / 1e9 for t_ns in records["t_ns"][:new][::-1].tolist()]

    def _head(self) -> int:
        """Where the newest record begins, on a scale that falls without end."""
        return int.from_bytes(self._ring[_HEAD_AT : _HEAD_AT + 8], sys.byteorder)

    def close(self) -> None:
        """Takes the kernel a tenth of a second, as it waits for every CPU to have left the breakpoint."""
        self._ring.close()


class Uprobes:
    """Opens such events. Raises CallsUnavailable where the kernel has none."""

    def __init__(self) -> None:
        if call_events.numbers() is None:
            raise CallsUnavailable("this kernel has no uprobe events (Linux 4.17 or later, with CONFIG_UPROBE_EVENTS)")
        self._limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._raised = self._asked = False

    def open(self, tid: int, file: BinaryIO, offset: int) -> ThreadCalls | None:
        """Count the thread's calls of the function that begins that many bytes from the file's beginning, from now on.

        `None` where the thread has ended. Raises CallsUnavailable where the kernel refuses.
        """
        while True:
            try:
                return ThreadCalls(_event(tid, file.fileno(), offset))
            except OSError as error:
                if error.errno == errno.ESRCH:
                    return None
                if not self._more(error.errno):
                    raise refused(error.errno or 0) from error

    def close(self) -> None:
        """Put the limit of descriptors back."""
        if self._raised:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)
            self._raised = False

    def _more(self, number: int | None) -> bool:
        """Whether there is more now of what was short, by errno: descriptors, or under sudo memory of rings."""
        if number == errno.EPERM and (root := keeper()) is not None and not self._asked:
            self._asked = True
            with suppress(OSError):
                root.more_rings()
                return True
        return number == errno.EMFILE and self._more_descriptors()

    def _more_descriptors(self) -> bool:
        """Raise our own soft limit to the hard one, once."""
        soft, hard = self._limits
        if self._raised or soft == hard:
            return False
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._raised = True
        return True


def _event(tid: int, file: int, offset: int) -> int:
    """Opened by us, or under sudo by root. Raises OSError."""
    root = keeper()
    return call_events.open_event(tid, file, offset) if root is None else root.calls(tid, file, offset)


def refused(number: int) -> CallsUnavailable:
    """Why the kernel opens no event, by errno, and what would help."""
    said = os.strerror(number)
    if number in _FORBIDDEN:
        return CallsUnavailable(
            f"the kernel does not let autocap count calls ({said}); run it as root or with CAP_PERFMON (a container: "
            "--cap-add PERFMON, and a seccomp profile that allows perf_event_open)"
        )
    if number == errno.ENOSYS:
        return CallsUnavailable("perf_event_open is switched off here (Function not implemented); run autocap outside")
    if number in _FULL:
        return CallsUnavailable(f"a descriptor a thread of the job is needed ({said}); raise the limit: ulimit -n")
    if number in _NO_PROBE:
        return CallsUnavailable(f"the kernel cannot stop at that function's first instruction ({said}); choose another")
    return CallsUnavailable(f"the calls cannot be counted: perf_event_open: {said}")


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
