"""perf's event of a function's calls: the kernel counts how often one thread makes them, and when it last did.

perf_event_open(2). Closing the event's descriptor ends it, also when the kernel does so because we died. None is opened
for a whole CPU, and none is inherited: the kernel would look the file's path up again for each thread that the job
starts, in the job's own memory, where there is none, and the thread would not start.
"""

import ctypes
import errno
import os
import platform
import struct
from functools import cache
from pathlib import Path

_TYPE = Path("/sys/bus/event_source/devices/uprobe/type")
_CALL_NUMBERS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQQQQIiQIHH")  # struct perf_event_attr, PERF_ATTR_SIZE_VER5
_EXCLUDE_KERNEL, _EXCLUDE_HV, _USE_CLOCKID, _WRITE_BACKWARD = 1 << 5, 1 << 6, 1 << 25, 1 << 27
_SAMPLE_TID, _SAMPLE_TIME, _SAMPLE_READ = 1 << 1, 1 << 2, 1 << 4
_CLOCK_MONOTONIC = 1
_CLOEXEC = 8  # PERF_FLAG_FD_CLOEXEC


@cache
def numbers() -> tuple[int, int] | None:
    """Those of the system call and of the kind of event; `None` where the kernel has none."""
    number = _CALL_NUMBERS.get(platform.machine())
    try:
        return None if number is None else (number, int(_TYPE.read_text()))
    except (OSError, ValueError):
        return None


def open_event(tid: int, file: int, offset: int) -> int:
    """Count a thread's calls of the function that begins that many bytes from an open file's beginning, from now on.

    Each call is a sample with the thread, the time and the count, in a ring that is overwritten. Raises OSError as the
    kernel refuses, ENOSYS where it has no such events.
    """
    known = numbers()
    if known is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    # The path is looked up at once, in our own namespace: through the descriptor it is the very file.
    path = ctypes.create_string_buffer(f"/proc/self/fd/{file}".encode())
    made = _attributes(known[1], ctypes.addressof(path), offset)
    fd: int = ctypes.CDLL(None, use_errno=True).syscall(known[0], made, tid, -1, -1, _CLOEXEC)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return fd


def _attributes(kind: int, path: int, offset: int) -> ctypes.Array[ctypes.c_char]:
    flags = _EXCLUDE_KERNEL | _EXCLUDE_HV | _USE_CLOCKID | _WRITE_BACKWARD
    packed = _ATTRIBUTES.pack(
        *(kind, _ATTRIBUTES.size, 0, 1, _SAMPLE_TID | _SAMPLE_TIME | _SAMPLE_READ, 0, flags),  # a sample each 1 call
        *(0, 0, path, offset, 0, 0, 0, _CLOCK_MONOTONIC, 0, 0, 0, 0),
    )
    return ctypes.create_string_buffer(packed, len(packed))
