"""Xception (Chollet 2017, "Xception: Deep Learning with Depthwise Separable Convolutions", figure 5):
22,855,952 parameters at 1000 classes."""

from torch import Tensor, nn

from autocap.workloads.models.blocks import conv_norm, global_average, initialise_convolutions

_EPS = 1e-3  # of batch normalisation, as in the author's code
_MIDDLE_BLOCKS = 8


class Xception(nn.Module):
    """Two convolutions, twelve residual blocks of separable ones, two more separable ones, average, linear head.

    Takes images, shape (n, 3, h, w), h and w at least 7; gives logits, shape (n, classes).
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, 32, 3, stride=2, padded=False, eps=_EPS),
            nn.ReLU(inplace=True),
            conv_norm(32, 64, 3, padded=False, eps=_EPS),
        )
        self.blocks = nn.Sequential(
            nn.ReLU(),  # figure 5 begins its first block without one: this is the stem's
            _Block(64, 128, 128, rectified=False),
            _Block(128, 256, 256),
            _Block(256, 728, 728),
            *(_MiddleBlock(728) for _ in range(_MIDDLE_BLOCKS)),
            _Block(728, 728, 1024),
        )
        self.exit = nn.Sequential(
            _separable(1024, 1536), nn.ReLU(inplace=True), _separable(1536, 2048), nn.ReLU(inplace=True)
        )
        self.head = nn.Linear(2048, classes)
        initialise_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.exit(self.blocks(self.stem(images)))
        logits: Tensor = self.head(global_average(features))
        return logits


class _Block(nn.Module):
    """Two separable convolutions and a pool that halves the size, beside a projection."""

    def __init__(self, channels: int, middle: int, width: int, *, rectified: bool = True) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.ReLU() if rectified else nn.Identity(),  # not in place: the shortcut takes the input as it came
            _separable(channels, middle),
            nn.ReLU(inplace=True),
            _separable(middle, width),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        )
        self.shortcut = conv_norm(channels, width, 1, stride=2, eps=_EPS)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.residual(x) + self.shortcut(x)
        return total


class _MiddleBlock(nn.Module):
    """Three separable convolutions beside the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *(layer for _ in range(3) for layer in (nn.ReLU(), _separable(channels, channels)))
        )

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.residual(x) + x
        return total


def _separable(channels: int, width: int) -> nn.Sequential:
    """A 3x3 convolution within each channel, a 1x1 one across them, and batch normalisation."""
    within = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels, bias=False)
    return nn.Sequential(within, conv_norm(channels, width, 1, eps=_EPS))
