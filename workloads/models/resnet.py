"""Residual networks for ImageNet (He et al. 2016, "Deep Residual Learning for Image Recognition", table 1).

As published, and as the TensorFlow benchmarks of the power-capping papers train them: a bottleneck downsamples in its
first 1x1 convolution. (The variant often called v1.5 does so in the 3x3 one: the same parameters, 6 % more operations.)
"""

from functools import partial

from torch import Tensor, nn

from autocap.workloads.models.blocks import conv_norm, global_average, initialise_convolutions


class _Basic(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv_norm(channels, width, 3, stride=stride),
            nn.ReLU(inplace=True),
            conv_norm(width, width, 3),
        )
        self.shortcut = _shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.residual(x) + self.shortcut(x)
        return total.relu_()


class _Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut; the last widens fourfold."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv_norm(channels, width, 1, stride=stride),
            nn.ReLU(inplace=True),
            conv_norm(width, width, 3),
            nn.ReLU(inplace=True),
            conv_norm(width, width * self.expansion, 1),
        )
        self.shortcut = _shortcut(channels, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.residual(x) + self.shortcut(x)
        return total.relu_()


def _shortcut(channels: int, width: int, stride: int) -> nn.Module:
    """The identity where shapes agree, else a projection (option B of the paper)."""
    if stride == 1 and channels == width:
        return nn.Identity()
    return conv_norm(channels, width, 1, stride=stride)


class ResNet(nn.Module):
    """Stem, four stages of residual blocks, global average, linear head.

    Takes images, shape (n, 3, h, w); gives logits, shape (n, classes). The size is halved five times, rounded up.
    """

    def __init__(self, block: type[_Basic | _Bottleneck], depths: tuple[int, int, int, int], classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, 64, 7, stride=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        channels = 64
        for stage, depth in enumerate(depths):
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(block(channels, 64 << stage, stride))
                channels = block.expansion * (64 << stage)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)
        initialise_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.stem(images))
        logits: Tensor = self.head(global_average(features))
        return logits


# With their parameters at 1000 classes.
resnet18 = partial(ResNet, _Basic, (2, 2, 2, 2))  # 11,689,512
resnet50 = partial(ResNet, _Bottleneck, (3, 4, 6, 3))  # 25,557,032
resnet152 = partial(ResNet, _Bottleneck, (3, 8, 36, 3))  # 60,192,808
