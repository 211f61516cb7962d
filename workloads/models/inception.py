"""What both Inception networks are made of: convolutions with batch normalisation, alone, in chains and in branches."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from autocap.workloads.models.blocks import Kernel, conv_norm


class Branches(nn.Module):
    """Several branches beside each other on one input; their channels are put together in order."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def conv(channels: int, width: int, kernel: Kernel, *, stride: int = 1, padded: bool = True) -> nn.Sequential:
    """A convolution, batch normalisation and a rectifier. padded: the size is kept at stride 1."""
    return conv_norm(channels, width, kernel, stride=stride, padded=padded, eps=1e-3).append(nn.ReLU(inplace=True))


def shrink(channels: int, width: int) -> nn.Sequential:
    """A 3x3 convolution that halves the size."""
    return conv(channels, width, 3, stride=2, padded=False)


def shrink_pool() -> nn.MaxPool2d:
    """The largest of each 3x3 pixels, at half the size."""
    return nn.MaxPool2d(kernel_size=3, stride=2)


def chain(widths: Sequence[int], kernels: Sequence[Kernel]) -> nn.Sequential:
    """One convolution after the other, from widths[0] channels to widths[-1]."""
    layers = zip(widths[:-1], widths[1:], kernels, strict=True)
    return nn.Sequential(*(conv(channels, width, kernel) for channels, width, kernel in layers))


def pooled(channels: int, width: int) -> nn.Sequential:
    """The mean of 3x3 pixels, then a 1x1 convolution."""
    pool = nn.AvgPool2d(kernel_size=3, stride=1, padding=1, count_include_pad=False)
    return nn.Sequential(pool, conv(channels, width, 1))


def crossed(channels: int, width: int) -> Branches:
    """1x3 and 3x1 convolutions side by side, `width` channels each."""
    return Branches(conv(channels, width, (1, 3)), conv(channels, width, (3, 1)))
