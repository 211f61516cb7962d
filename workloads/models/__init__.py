"""The networks by name, with the batch and image sizes of the papers. Importing this needs no torch.

Sizes: Krzywaniak et al. 2022, section 4 (batch 128 or 64, ImageNet's 224 or 299 pixels).
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from autocap.workloads import WorkloadUsageError

if TYPE_CHECKING:  # torch costs a second to import, and may be missing
    from torch import nn

IMAGENET_CLASSES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One network that can be trained.

    builder: `module:function` that returns it, called with the number of classes. batch_size: images per step.
    image_size: pixels per side. stride: total downsampling; an image is at least this large.
    """

    name: str
    builder: str
    batch_size: int
    image_size: int
    stride: int

    def build(self, classes: int = IMAGENET_CLASSES) -> "nn.Module":
        """The network with fresh weights, on torch's default device."""
        module, _, function = self.builder.partition(":")
        return cast("nn.Module", getattr(import_module(module), function)(classes))


_RESNET = "autocap.workloads.models.resnet"
NETWORKS = {
    network.name: network
    for network in (
        Network(name="resnet18", builder=f"{_RESNET}:resnet18", batch_size=128, image_size=224, stride=32),
        Network(name="resnet50", builder=f"{_RESNET}:resnet50", batch_size=128, image_size=224, stride=32),
    )
}
PLANNED = (
    *("alexnet", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "inception3", "inception4"),
    *("resnet152", "xception", "lstm"),
)


def find(name: str) -> Network:
    """The network of that name. Raises WorkloadUsageError with the names that there are."""
    if name in NETWORKS:
        return NETWORKS[name]
    known = ", ".join(NETWORKS)
    if name in PLANNED:
        raise WorkloadUsageError(f"network {name} is not available yet; choose one of {known}")
    raise WorkloadUsageError(f"unknown network '{name}'; choose one of {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A network's size. flops_per_image: one forward pass at image_size; a multiply-add counts as two."""

    name: str
    parameters: int
    flops_per_image: int
    batch_size: int
    image_size: int


def summarise(network: Network) -> Summary:
    """Count a network's parameters and operations on the meta device: nothing is allocated or computed."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        model = network.build().eval()
        image = torch.empty(1, 3, network.image_size, network.image_size)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(image)
    return Summary(
        name=network.name,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        flops_per_image=counter.get_total_flops(),
        batch_size=network.batch_size,
        image_size=network.image_size,
    )
