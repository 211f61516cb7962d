"""The networks by name, with the batch and image sizes of the papers. Importing this needs no torch.

Batch sizes: Krzywaniak et al. 2022, section 4 (128, or 64 where their GPU held no more), Caspart et al. 2022, section 3
(64 for the LSTM and for VGG with batch normalisation). No paper gives one for ResNet-18 and VGG-16, which take those
of their families, nor for Xception (Koszczał et al. 2023): 64. Image sizes: those of ImageNet that each was published
with. Learning rates: 0.1 for networks with batch normalisation and a small head (He et al. 2016), a tenth of that for
VGG (Simonyan and Zisserman 2015), and what AlexNet's 0.01 at 128 images comes to at 256.
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

    builder: `module:name` of what makes it, of this package, called with the number of classes. classes: `None`
    for the load forecast, which is a regression. batch_size: samples per step. image_size: pixels per side, or hours of
    load. smallest_image: the network can be trained from here on; smallest_single: with a batch of one, which batch
    normalisation takes only while a channel keeps more than one value, `None` for never. learning_rate: of SGD
    with momentum at 256 images, in proportion to the batch (Goyal et al. 2017); of Adam for the load forecast.
    """

    name: str
    builder: str
    classes: int | None = IMAGENET_CLASSES
    batch_size: int
    image_size: int
    smallest_image: int
    smallest_single: int | None
    learning_rate: float

    def build(self) -> "nn.Module":
        """The network with fresh weights, on torch's default device."""
        module, _, function = self.builder.partition(":")
        build = getattr(import_module(f"{__name__}.{module}"), function)
        return cast("nn.Module", build() if self.classes is None else build(self.classes))


def _network(
    name: str, builder: str, batch_size: int, image_size: int, *, smallest: tuple[int, int | None], rate: float
) -> Network:
    return Network(
        name=name,
        builder=builder,
        classes=None if name == "lstm" else IMAGENET_CLASSES,
        batch_size=batch_size,
        image_size=image_size,
        smallest_image=smallest[0],
        smallest_single=smallest[1],
        learning_rate=rate,
    )


NETWORKS = {
    network.name: network
    for network in (
        _network("alexnet", "alexnet:AlexNet", 128, 224, smallest=(63, 63), rate=0.02),
        _network("vgg16", "vgg:vgg16", 128, 224, smallest=(32, 32), rate=0.01),
        _network("vgg16_bn", "vgg:vgg16_bn", 64, 224, smallest=(32, 32), rate=0.01),
        _network("vgg19", "vgg:vgg19", 128, 224, smallest=(32, 32), rate=0.01),
        _network("vgg19_bn", "vgg:vgg19_bn", 64, 224, smallest=(32, 32), rate=0.01),
        _network("inception3", "inception3:Inception3", 128, 299, smallest=(75, None), rate=0.1),
        _network("inception4", "inception4:Inception4", 64, 299, smallest=(75, 107), rate=0.1),
        _network("resnet18", "resnet:resnet18", 128, 224, smallest=(1, 33), rate=0.1),
        _network("resnet50", "resnet:resnet50", 128, 224, smallest=(1, 33), rate=0.1),
        _network("resnet152", "resnet:resnet152", 64, 224, smallest=(1, 33), rate=0.1),
        _network("xception", "xception:Xception", 64, 299, smallest=(7, 39), rate=0.1),
        _network("lstm", "lstm:LoadForecast", 64, 168, smallest=(1, 1), rate=1e-3),
    )
}


def find(name: str) -> Network:
    """The network of that name. Raises WorkloadUsageError with the names that there are."""
    if name not in NETWORKS:
        raise WorkloadUsageError(f"unknown network '{name}'; choose one of {', '.join(NETWORKS)}")
    return NETWORKS[name]


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
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    hours = network.image_size if network.classes is None else 1  # of which each takes as many operations
    with torch.device("meta"):
        model = network.build().eval()
        sample = torch.empty(sample_shape(network, network.image_size // hours))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    for module in list(model.modules()):  # no operations are counted of these, and on this device they take the longest
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, nn.Identity())
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(sample.unsqueeze(0))
    return Summary(
        name=network.name,
        parameters=parameters,
        flops_per_image=hours * counter.get_total_flops(),
        batch_size=network.batch_size,
        image_size=network.image_size,
    )


def sample_shape(network: Network, size: int) -> tuple[int, ...]:
    """Of one input: (3, size, size) for images, (size,) for the load forecast."""
    return (size,) if network.classes is None else (3, size, size)
