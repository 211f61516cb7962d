"""What stands where a file is expected, and is none to read: devices, pipes, sockets, bombs, files without an end."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

from bench.fuzz.specimens import Specimens

_LINKS = (
    *("/dev/zero", "/dev/urandom", "/dev/full", "/dev/null", "/dev/tty", "/dev/stdin", "/proc/kmsg", "/proc/self/mem"),
    *("/proc/self/environ", "/proc/self/maps", "/proc/self/fd/0", "/proc/sys/kernel/random/uuid", "/sys", "nowhere"),
    *("/proc/self/cwd", "/proc/self/root/dev/zero", "/dev/ptmx", "/dev/fd/1"),
)


def put(random: Random, path: Path, specimens: Specimens) -> None:
    """Put one there, instead of whatever is there."""
    path.unlink(missing_ok=True)
    made: tuple[Callable[[], object], ...] = (
        lambda: path.symlink_to(random.choice(_LINKS)),
        lambda: path.symlink_to(random.choice(_LINKS)),
        lambda: os.mkfifo(path),
        path.mkdir,
        lambda: _socket(path),
        lambda: path.symlink_to(path.name),
        lambda: path.symlink_to(random.choice(specimens.endless)),
        lambda: path.write_bytes(random.choice((b"", b"\n", b"\0", b"\x1f\x8b", b"\x1f", b"PK\3\4", b"\xff" * 4096))),
        lambda: path.write_bytes(b"a" * 40_000_000),
        lambda: path.write_bytes(b"\n" * 20_000_000),
        lambda: path.write_bytes(b"{}\n" * 10_000_000),
        lambda: path.write_bytes(b"[" * 20_000_000),
        lambda: path.write_bytes(b"," * 20_000_000),
        lambda: path.write_bytes(b"t_s,power_w\n" + b"1,2\n" * 5_000_000),
    )
    random.choice(made)()


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # its name may not be long
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)
