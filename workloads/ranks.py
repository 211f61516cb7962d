"""Data parallel training under torchrun: which of how many processes this is, and on which device."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed

from autocap.workloads import WorkloadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """rank: this process's number of `size`; local: its number on this machine. Alone: 0 of 1."""

    rank: int
    local: int
    size: int

    @property
    def leads(self) -> bool:
        """Whether this process speaks, and writes files, for all."""
        return self.rank == 0

    def agreed(self, mine: bool) -> bool:
        """What rank 0 says, in every process: clocks differ, and all must stop after the same iteration."""
        if self.size == 1:
            return mine
        said = torch.tensor([mine])  # on the CPU, whatever trains: waiting for a GPU would drain its queue
        distributed.broadcast(said, src=0)
        return bool(said.item())


def processes() -> int:
    """How many torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def joined(device_name: str) -> Iterator[tuple[Ranks, torch.device]]:
    """Join the other processes that torchrun started, if any, and leave them at the end; this process's device.

    Raises WorkloadError when there is no such device.
    """
    ranks = Ranks(
        rank=int(os.environ.get("RANK", "0")),
        local=int(os.environ.get("LOCAL_RANK", "0")),
        size=processes(),
    )
    device = _device(device_name, ranks.local)
    if ranks.size == 1:
        yield ranks, device
        return
    distributed.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield ranks, device
    finally:
        # The model's wrapper stands in a cycle; left to the end of the interpreter, its threads abort the process.
        gc.collect()
        distributed.destroy_process_group()


def _device(name: str, local: int) -> torch.device:
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name == "auto" and gpus == 0):
        return torch.device("cpu")
    if gpus == 0:
        raise WorkloadError("--device cuda: torch sees no GPU; pass --device cpu, or install a CUDA build of torch")
    if local >= gpus:
        raise WorkloadError(f"torchrun started more processes than the {gpus} GPUs here; pass --nproc-per-node {gpus}")
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    return device
