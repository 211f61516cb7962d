"""One of several ranks that train a model in plain PyTorch, with gloo; or with accelerate.

torchrun … -m tests.frameworks.ranks_play plain         train as the script of the stage says
torchrun … -m tests.frameworks.ranks_play fails         the same, and then the last rank fails at a cap on trial
torchrun … -m tests.frameworks.ranks_play untuned       train where there is nothing to tune
torchrun … -m tests.frameworks.ranks_play block         the same as plain, in a block of autocap.tune
accelerate launch … -m tests.frameworks.ranks_play accelerate
"""

import sys

import torch
from torch import distributed

import autocap
from tests.frameworks.net import Net
from tests.frameworks.stage import Failure, Script, Stage

_UNTUNED_STEPS = 50


def prepare(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """As a script for one rank becomes one for several."""
    if sys.argv[1] == "accelerate":
        from accelerate import Accelerator

        prepared: tuple[torch.nn.Module, torch.optim.Optimizer] = Accelerator(cpu=True).prepare(model, optimizer)
        return prepared
    distributed.init_process_group("gloo")
    return torch.nn.parallel.DistributedDataParallel(model), optimizer


def agree(decision: bool) -> bool:
    """What the first rank has decided."""
    flag = torch.tensor(float(decision))
    distributed.broadcast(flag, 0)
    return bool(flag)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, script: Script) -> int:
    """How many steps it took."""
    steps = 0
    while True:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).backward()
        optimizer.step()
        steps += 1
        if distributed.get_rank() == 0:
            script.begin()
            script.validate()  # the other ranks wait in the next line
        if agree(script.has_ended):
            return steps


def fail_together(model: torch.nn.Module, optimizer: torch.optim.Optimizer, stage: Stage) -> None:
    """The last rank fails at a cap on trial while the others train."""
    last = distributed.get_rank() == distributed.get_world_size() - 1
    script = Script(stage, fails=last)
    while True:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).backward()
        optimizer.step()
        script.begin()


def main() -> None:
    net = Net()
    model, optimizer = prepare(net, torch.optim.SGD(net.parameters(), lr=0.01))
    stage, done = Stage("run"), [0]
    first = distributed.get_rank() == 0

    def enough() -> bool:
        done[0] += 1
        return done[0] == _UNTUNED_STEPS

    script = Script(stage, seen_all=enough) if sys.argv[1] == "untuned" else Script(stage)
    facts: dict[str, object] = {"rank": distributed.get_rank(), "ranks": distributed.get_world_size()}
    if sys.argv[1] == "block":
        with autocap.tune(**stage.options) as run:
            facts["steps"] = train(model, optimizer, script)
            if first:
                facts["counted"] = stage.counted()
            distributed.barrier()
        stage.tell(run.result, **facts)
    else:
        facts["steps"] = train(model, optimizer, script)
        distributed.barrier()
        if stage.is_counted:
            facts["counted"] = stage.counted()
        stage.tell(**facts)
        distributed.barrier()
    if sys.argv[1] == "fails":
        fail_together(model, optimizer, stage)
    del model  # else its destructor is the last to let go of the group, which was seen to wait for ever there
    distributed.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except Failure:
        print("the last rank has failed", file=sys.stderr)
        raise
