"""Training jobs small enough for a test, in this process."""

from dataclasses import replace

import torch
from torch import nn

from autocap.workloads.config import TrainConfig
from autocap.workloads.models import Network
from autocap.workloads.models.alexnet import AlexNet
from autocap.workloads.models.vgg import VGG, VGG16, VGG19
from autocap.workloads.ranks import Ranks
from autocap.workloads.step import Step

CPU = torch.device("cpu")
ALONE = Ranks(rank=0, local=0, size=1)
_SLIM_HEAD = 256  # a sixteenth of the published width: the heads hold most of the weights, and take most of a test
SLIM = {
    "alexnet": lambda: AlexNet(1000, hidden=_SLIM_HEAD),
    "vgg16": lambda: VGG(VGG16, 1000, normalised=False, hidden=_SLIM_HEAD),
    "vgg16_bn": lambda: VGG(VGG16, 1000, normalised=True, hidden=_SLIM_HEAD),
    "vgg19": lambda: VGG(VGG19, 1000, normalised=False, hidden=_SLIM_HEAD),
    "vgg19_bn": lambda: VGG(VGG19, 1000, normalised=True, hidden=_SLIM_HEAD),
}


def step(network: Network, *, image_size: int, batch_size: int = 4, faster: float = 1) -> Step:
    """A network to train on the CPU, with a slim head and without dropout, at a raised learning rate."""
    network = replace(network, learning_rate=network.learning_rate * faster)
    config = TrainConfig(network=network, batch_size=batch_size, image_size=image_size, samples=batch_size)
    torch.manual_seed(0)
    model: nn.Module = SLIM.get(network.name, network.build)()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return Step(model, config, ALONE, CPU)
