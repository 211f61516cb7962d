"""Trains on the CPU: on each line of the file named it takes that many steps, and tells how many backward passes it has
made by then. A file rather than a pipe: torchrun's ranks have none to themselves."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

threads, accumulated, workers = (int(word) for word in sys.argv[2:])
orders, rank = Path(sys.argv[1]), os.environ.get("RANK", "0")
torch.set_num_threads(threads)
net: torch.nn.Module = torch.nn.Linear(64, 64)
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(net)
optimiser = torch.optim.SGD(net.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.ones(100_000, 64))
batches = iter(torch.utils.data.DataLoader(data, batch_size=8, num_workers=workers))
passes = done = 0
while True:
    lines = (orders / "orders").read_text().splitlines(keepends=True)
    if len(lines) == done or not lines[done].endswith("\n"):
        time.sleep(0.01)
        continue
    for _ in range(int(lines[done])):
        for _ in range(accumulated):
            (batch,) = next(batches)
            net(batch).sum().backward()
            passes += 1
        optimiser.step()
        optimiser.zero_grad()
    done += 1
    made = orders / f"made-{done}-by-{rank}"
    made.with_suffix(".part").write_text(str(passes))
    made.with_suffix(".part").rename(made)
