"""What /proc shows of processes that may use a GPU: their numbers, device files and CUDA's variables. Linux only."""

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from autocap.devices.nvml.job_gpus import ProcessFacts
from autocap.job.keeper import keeper
from autocap.job.processes import Roots, environment, status, tree

_PROC = Path("/proc")
_GPU_FILE = re.compile(r"/dev/nvidia(\d+)")
_CUDA_FILES = frozenset({"/dev/nvidia-uvm", "/dev/dxg"})  # the second one under WSL; monitors open neither


def of_tree(job: Roots) -> tuple[ProcessFacts, ...]:
    """The facts of every process of a job."""
    return of_pids(process.pid for process in tree(job))


def of_pids(pids: Iterable[int], proc: Path = _PROC) -> tuple[ProcessFacts, ...]:
    """The facts of those processes that are there."""
    found = [_facts(pid, proc) for pid in pids]
    return tuple(facts for facts in found if facts is not None)


def keep_from_children() -> None:
    """Mark the GPU files that a library of ours has opened: a child that inherited them would seem to use them."""
    for link in (_PROC / "self/fd").iterdir():
        with suppress(OSError):  # the listing's own descriptor
            if os.readlink(link).startswith("/dev/nvidia"):
                os.set_inheritable(int(link.name), False)


def _facts(pid: int, proc: Path) -> ProcessFacts | None:
    try:
        said = status(pid, proc)
    except OSError:  # it has ended
        return None
    # Kernels before 4.1 have no NSpid line.
    ns_pids = tuple(map(int, said.get("NSpid", said["Pid"]).split()))
    uid = int(said["Uid"].split()[0])
    try:
        files, visible, order = _uses(pid, proc)
    except PermissionError:
        return ProcessFacts(ns_pids=ns_pids, uid=uid, readable=False)
    except OSError:
        return None
    return ProcessFacts(
        ns_pids=ns_pids,
        uid=uid,
        readable=True,
        cuda=not _CUDA_FILES.isdisjoint(files),
        minors=frozenset(int(match[1]) for match in map(_GPU_FILE.fullmatch, files) if match),
        visible=visible,
        order=order,
    )


def _uses(pid: int, proc: Path) -> tuple[Collection[str], str | None, str | None]:
    """As `uses`; under sudo root looks at what is hidden from its user. Raises OSError."""
    try:
        return uses(pid, proc)
    except PermissionError:
        root = keeper()
        if root is None:
            raise
        return root.gpu_use(pid)


def uses(pid: int, proc: Path = _PROC) -> tuple[tuple[str, ...], str | None, str | None]:
    """The files of GPUs that a process has open, and CUDA's two variables as it was started with. Raises OSError."""
    opened = {file for file in _open_files(proc / str(pid) / "fd") if file in _CUDA_FILES or _GPU_FILE.fullmatch(file)}
    variables = environment(pid, proc)
    visible, order = (variables.get(name) for name in (b"CUDA_VISIBLE_DEVICES", b"CUDA_DEVICE_ORDER"))
    return tuple(sorted(opened)), _text(visible), _text(order)


def _open_files(folder: Path) -> set[str]:
    files = set()
    for link in folder.iterdir():
        with suppress(FileNotFoundError):  # closed since the folder was listed
            files.add(os.readlink(link))
    return files


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")
