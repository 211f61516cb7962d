"""Residual networks for ImageNet (He et al. 2016, "Deep Residual Learning for Image Recognition", table 1).

As published, and as the TensorFlow benchmarks of the power-capping papers train them: a bottleneck downsamples in its
first 1x1 convolution. (The variant often called v1.5 does so in the 3x3 one: the same parameters, 6 % more operations.)
"""

from torch import Tensor, nn


def resnet18(classes: int) -> nn.Module:
    """18 weighted layers, 11,689,512 parameters at 1000 classes."""
    return ResNet(_Basic, (2, 2, 2, 2), classes)


def resnet50(classes: int) -> nn.Module:
    """50 weighted layers, 25,557,032 parameters at 1000 classes."""
    return ResNet(_Bottleneck, (3, 4, 6, 3), classes)


class ResNet(nn.Module):
    """Stem, four stages of residual blocks, global average, linear head.

    Takes images, shape (n, 3, h, w), h and w at least 32; gives logits, shape (n, classes).
    """

    def __init__(self, block: "type[_Basic | _Bottleneck]", depths: tuple[int, int, int, int], classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *_conv_norm(3, 64, kernel=7, stride=2),
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
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.stem(images))
        logits: Tensor = self.head(features.mean(dim=(2, 3)))
        return logits


class _Basic(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_conv_norm(channels, width, kernel=3, stride=stride),
            nn.ReLU(inplace=True),
            *_conv_norm(width, width, kernel=3),
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
            *_conv_norm(channels, width, kernel=1, stride=stride),
            nn.ReLU(inplace=True),
            *_conv_norm(width, width, kernel=3),
            nn.ReLU(inplace=True),
            *_conv_norm(width, width * self.expansion, kernel=1),
        )
        self.shortcut = _shortcut(channels, width * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.residual(x) + self.shortcut(x)
        return total.relu_()


def _shortcut(channels: int, width: int, stride: int) -> nn.Module:
    """The identity where shapes agree, else a projection (option B of the paper)."""
    if stride == 1 and channels == width:
        return nn.Identity()
    return nn.Sequential(*_conv_norm(channels, width, kernel=1, stride=stride))


def _conv_norm(channels: int, width: int, *, kernel: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    conv = nn.Conv2d(channels, width, kernel, stride=stride, padding=kernel // 2, bias=False)
    return conv, nn.BatchNorm2d(width)
