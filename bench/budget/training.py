"""A small training on an emulated GPU: `python -m bench.budget.training --gpu 0 --profile quadro-rtx-6000/resnet50`.

The network, its data and its optimiser steps are real; how long a step takes is the card's business. Each ends with an
iteration of the card's simulated job, under the limit that is in force, so that steps and power agree. Nothing of
autocap is in it: `autocap run` counts the steps of the optimiser by itself.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from autocap.testing.nvml import STATE_VARIABLE, FileBoard
from autocap.testing.nvml.board import PlayedJob
from autocap.testing.nvml.install import shared_clock
from autocap.testing.nvml.player import iterations

_AFTER_S = 0.5  # until the card's first iteration begins
_CLASSES, _FEATURES, _BATCH = 10, 32, 64


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.budget.training", description=__doc__)
    parser.add_argument("--gpu", type=int, required=True, metavar="N", help="which card of the machine")
    parser.add_argument("--profile", required=True, metavar="NAME", help="what a limit does to it there")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long it trains (default: 60)")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    steps, first, last = train(args.gpu, args.profile, args.seconds)
    print(f"{args.profile}: {steps} steps, loss {first:.2f} at first, {last:.2f} at last", flush=True)
    return 0


def train(gpu: int, profile: str, seconds: float) -> tuple[int, float, float]:
    """The steps done, and the loss of the first and of the last of them."""
    torch.manual_seed(gpu)
    centres = torch.randn(_CLASSES, _FEATURES)
    network = torch.nn.Sequential(torch.nn.Linear(_FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, _CLASSES))
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05)
    board = FileBoard(Path(os.environ[STATE_VARIABLE]))
    clock = shared_clock(board)
    job = PlayedJob(gpus=(gpu,), pid=os.getpid(), start_s=clock.now() + _AFTER_S, profile=profile)
    board.update(lambda state: state.with_job(job))
    steps, done, losses = iterations(board, gpu), 0, []
    while clock.now() < job.start_s + seconds:
        labels = torch.randint(_CLASSES, (_BATCH,))
        loss = torch.nn.functional.cross_entropy(network(centres[labels] + torch.randn(_BATCH, _FEATURES)), labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        done = next(steps)
        optimiser.step()
        losses.append(float(loss.detach()))
    return done, losses[0], losses[-1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
