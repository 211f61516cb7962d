"""A job's iterations before the job, to find its batch size: forward and backward passes on a model of their own.

Without the optimiser's step nobody who counts steps sees them, and the training that follows is the very one of the
same batch size passed by hand.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from autocap.workloads import WorkloadUsageError
from autocap.workloads.config import TrainConfig
from autocap.workloads.data import source
from autocap.workloads.ranks import Ranks, joined, processes
from autocap.workloads.sizing import Sizing, fitting, quickest_s
from autocap.workloads.step import Step
from autocap.workloads.trouble import explained


def sized(config: TrainConfig, iteration_s: float) -> Sizing:
    """The batch size for which forward and backward passes, and the host phase, take about iteration_s seconds of wall
    time on this machine, as it is loaded now. That of `config` is not looked at.

    Raises WorkloadUsageError in one of several processes, WorkloadError as `train` does.
    """
    if processes() > 1:
        raise WorkloadUsageError("--iteration-seconds is for one process; under torchrun pass --batch-size")
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    with joined(config.device) as (ranks, device):

        def took_s(batch_size: int) -> float:
            trial = replace(config, batch_size=batch_size)
            with explained(trial, device):
                passes_s = quickest_s(_passes(trial, ranks, device), time.perf_counter)
            return passes_s / (1 - config.host_share)

        return fitting(took_s, iteration_s, most=config.samples)


def _passes(config: TrainConfig, ranks: Ranks, device: torch.device) -> Callable[[], None]:
    """All of an iteration but the optimiser's step."""
    step = Step(config.network.build(), config, ranks, device)
    batches = source(config, device)

    def run() -> None:
        step.gradients(*batches.batch(0)).item()  # waits for the GPU

    return run
