"""Which GPUs a job uses, and who else computes on them, decided from what was read of the driver and /proc. Linux only.

Best evidence first: the driver lists a process of the job as computing; a process of the job that runs CUDA has the
GPU's device file open. CUDA_VISIBLE_DEVICES alone shows no use, it only narrows down what is open: CUDA opens every
GPU that it may see.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autocap.devices.inventory import begins, in_order
from autocap.devices.nvml.library import NvmlGpu
from autocap.errors import DeviceError, DeviceShared
from autocap.job.keeper import keeper
from autocap.job.processes import Roots, environment, status, tree

_NVML_ORDER = "PCI_BUS_ID"  # the value of CUDA_DEVICE_ORDER under which CUDA counts as the driver does


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One GPU, and the PIDs that the driver lists as computing on it: ours, the host's or a container's numbers. told:
    whether it lets us know which they are."""

    gpu: NvmlGpu
    pids: tuple[int, ...]
    told: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """What /proc shows of one process.

    ns_pids: its number in each PID namespace, the one we see first. uid: its real user. readable: whether its
    descriptors and environment could be read; the rest is empty where not. cuda: it has a device file open that only
    CUDA uses. minors: the N of every /dev/nvidiaN it has open. visible, order: CUDA_VISIBLE_DEVICES and
    CUDA_DEVICE_ORDER as it was started with, `None` where unset.
    """

    ns_pids: tuple[int, ...]
    uid: int
    readable: bool
    cuda: bool = False
    minors: frozenset[int] = frozenset()
    visible: str | None = None
    order: str | None = None

    @property
    def pid(self) -> int:
        return self.ns_pids[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGpus:
    """The GPUs of a job, in the driver's order. computing: the driver says so; else device files or the load do."""

    uuids: tuple[str, ...]
    computing: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A process outside the job that computes on one of its GPUs. seen: whether our /proc has such a process."""

    gpu_index: int
    pid: int
    seen: bool


def used(listings: Sequence[Listing], job: Sequence[ProcessFacts], others: Sequence[ProcessFacts]) -> JobGpus | None:
    """The GPUs that the job's processes use; `None` while they use none.

    others: of the processes listed by the driver those that are not the job's, as far as /proc shows them. Raises
    DeviceError where the job uses a GPU and it cannot be told which, or where its processes hide what they use.
    """
    gpus = [listing.gpu for listing in listings]
    computing = {x.gpu.uuid for x in listings if any(_is_jobs(pid, job, others) for pid in x.pids)}
    if computing:
        return JobGpus(uuids=in_order(gpus, computing), computing=True)
    opened: set[str] = set()
    for process in job:
        if process.cuda:
            opened |= _opened(gpus, process)
    if opened:
        return JobGpus(uuids=in_order(gpus, opened), computing=False)
    hidden = next((process for process in job if not process.readable), None)
    if hidden is not None:
        raise DeviceError(
            f"which GPU process {hidden.pid} uses cannot be seen: it belongs to user {hidden.uid}, whose descriptors "
            "are hidden; run autocap as that user or with sudo, or pass --gpus"
        )
    return None


def reachable(listings: Sequence[Listing], job: Sequence[ProcessFacts]) -> frozenset[str]:
    """The UUIDs of all GPUs that some process of the job may see."""
    gpus = [listing.gpu for listing in listings]
    every = frozenset(gpu.uuid for gpu in gpus)
    seen = [visible(gpus, process.visible, process.order) for process in job]
    return frozenset().union(*(every if one is None else one for one in seen))


def by_load(
    listings: Sequence[Listing], job: Sequence[ProcessFacts], before: Mapping[str, bool], now: Mapping[str, bool]
) -> JobGpus:
    """The GPU that the job is taken to use where the driver does not tell who computes: the only one that it may see,
    or the only one whose load began with the job.

    before, now: whether something was computed there before the job began, and is, by UUID; nothing of what is not
    known. Raises DeviceError where it cannot be told which GPU it is.
    """
    seen = reachable(listings, job)
    came = [uuid for uuid in sorted(seen) if now.get(uuid) and (len(seen) == 1 or before.get(uuid) is False)]
    if len(came) == 1:
        return JobGpus(uuids=tuple(came), computing=False)
    found = f"{len(came)} have come" if came else "none has come"
    since = f", and of the {len(seen)} that the job may see {found} into use since it began" if before else ""
    raise DeviceError(
        f"the driver does not tell who computes on the GPUs here, as in some containers{since}; pass --gpus"
    )


def strangers(
    listings: Sequence[Listing], uuids: Sequence[str], job: Sequence[ProcessFacts], others: Sequence[ProcessFacts]
) -> tuple[Stranger, ...]:
    """The processes that compute on those GPUs and are not the job's."""
    seen = {process.pid for process in others}
    return tuple(
        Stranger(gpu_index=listing.gpu.index, pid=pid, seen=pid in seen)
        for listing in listings
        if listing.gpu.uuid in uuids
        for pid in listing.pids
        if not _is_jobs(pid, job, others)
    )


def refuse_strangers(found: Sequence[Stranger]) -> None:
    """Raises DeviceShared that names the processes with which the job shares its GPUs, where there are any."""
    if not found:
        return
    indices = ", ".join(str(index) for index in sorted({one.gpu_index for one in found}))
    pids = ", ".join(f"PID {pid}" for pid in sorted({one.pid for one in found}))
    unseen = "" if all(one.seen for one in found) else " (not all of them can be seen from here: another container's?)"
    raise DeviceShared(
        f"GPU {indices} is shared: {pids}{unseen} computes on it as well, so its cap is not this job's alone; wait "
        "until the job has it to itself, or pass --shared-gpu"
    )


def visible(gpus: Sequence[NvmlGpu], text: str | None, order: str | None) -> frozenset[str] | None:
    """The UUIDs that CUDA_VISIBLE_DEVICES leaves; `None` where it does not say (unset, or numbers in an order that
    is not the driver's). As CUDA does, everything from the first entry that fits no GPU on is ignored."""
    if text is None:
        return None
    found: list[str] = []
    numbered = False
    for entry in (entry.strip() for entry in text.split(",")):
        if entry.startswith("MIG-") and not entry.startswith("MIG-GPU-"):
            return None  # an instance's own UUID does not tell its GPU
        if entry.isdigit():
            numbered = True
            fitting = [gpu.uuid for gpu in gpus if gpu.index == int(entry)]
        else:
            prefix = entry.removeprefix("MIG-").partition("/")[0]
            fitting = [gpu.uuid for gpu in gpus if prefix and begins(gpu, prefix)]
        if len(fitting) != 1:
            break
        found += fitting
    # Without CUDA_DEVICE_ORDER the fastest GPU comes first. The numbers still are the driver's where all GPUs are of
    # one model, and say the same in any order where they name every GPU.
    alike = len({gpu.name for gpu in gpus}) == 1 or len(set(found)) == len(gpus)
    if numbered and order != _NVML_ORDER and not alike:
        return None
    return frozenset(found)


def _is_jobs(pid: int, job: Sequence[ProcessFacts], others: Sequence[ProcessFacts]) -> bool:
    """Whether a PID that the driver lists is one of the job's processes, by our number for it or its container's."""
    if any(process.pid == pid for process in job):
        return True
    # A container's number may by chance be that of another process here; the one that could be computing is meant.
    if any(process.pid == pid and (process.cuda or not process.readable) for process in others):
        return False
    return any(pid in process.ns_pids for process in job)


def _opened(gpus: Sequence[NvmlGpu], process: ProcessFacts) -> frozenset[str]:
    """The GPUs that a CUDA process has open. Raises DeviceError where that does not say which it uses."""
    opened = frozenset(gpu.uuid for gpu in gpus if gpu.minor_number in process.minors)
    allowed = visible(gpus, process.visible, process.order)
    if opened:
        # Numbers in a container or control group may not be the machine's; what is open cannot be mistaken.
        return (opened & allowed if allowed else None) or opened
    if allowed:
        return allowed
    if len(gpus) == 1:
        return frozenset({gpus[0].uuid})
    raise DeviceError(
        f"process {process.pid} runs CUDA, but on which of the {len(gpus)} GPUs cannot be seen; pass --gpus"
    )


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
