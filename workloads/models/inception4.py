"""Inception v4 (Szegedy et al. 2017, "Inception-v4, Inception-ResNet and the Impact of Residual Connections on
Learning", figures 3 to 9), without an auxiliary head: 42,679,816 parameters at 1000 classes.
"""

from torch import Tensor, nn

from autocap.workloads.models.blocks import global_average, initialise_convolutions
from autocap.workloads.models.inception import Branches, chain, conv, crossed, pooled, shrink, shrink_pool


class Inception4(nn.Module):
    """Stem, 4 + 7 + 3 blocks of parallel branches with a reduction between, global average, linear head.

    Takes images, shape (n, 3, h, w), h and w at least 75; gives logits, shape (n, classes).
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = _stem()
        self.blocks = nn.Sequential(
            *(_grid_35() for _ in range(4)),
            _reduce_35(),
            *(_grid_17() for _ in range(7)),
            _reduce_17(),
            *(_grid_8() for _ in range(3)),
        )
        self.dropout = nn.Dropout(p=0.2)
        self.head = nn.Linear(1536, classes)
        initialise_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.blocks(self.stem(images))
        logits: Tensor = self.head(self.dropout(global_average(features)))
        return logits


def _stem() -> nn.Sequential:
    return nn.Sequential(
        shrink(3, 32),
        conv(32, 32, 3, padded=False),
        conv(32, 64, 3),
        Branches(shrink_pool(), shrink(64, 96)),
        Branches(
            nn.Sequential(conv(160, 64, 1), conv(64, 96, 3, padded=False)),
            chain((160, 64, 64, 64), (1, (1, 7), (7, 1))).append(conv(64, 96, 3, padded=False)),
        ),
        Branches(shrink(192, 192), shrink_pool()),
    )


def _grid_35() -> Branches:
    """Figure 4."""
    return Branches(
        conv(384, 96, 1),
        chain((384, 64, 96), (1, 3)),
        chain((384, 64, 96, 96), (1, 3, 3)),
        pooled(384, 96),
    )


def _reduce_35() -> Branches:
    """Figure 7 with the widths of table 1."""
    return Branches(
        shrink(384, 384),
        chain((384, 192, 224), (1, 3)).append(shrink(224, 256)),
        shrink_pool(),
    )


def _grid_17() -> Branches:
    """Figure 5."""
    return Branches(
        conv(1024, 384, 1),
        chain((1024, 192, 224, 256), (1, (1, 7), (7, 1))),
        chain((1024, 192, 192, 224, 224, 256), (1, (7, 1), (1, 7), (7, 1), (1, 7))),
        pooled(1024, 128),
    )


def _reduce_17() -> Branches:
    """Figure 8."""
    return Branches(
        nn.Sequential(conv(1024, 192, 1), shrink(192, 192)),
        chain((1024, 256, 256, 320), (1, (1, 7), (7, 1))).append(shrink(320, 320)),
        shrink_pool(),
    )


def _grid_8() -> Branches:
    """Figure 6."""
    return Branches(
        conv(1536, 256, 1),
        nn.Sequential(conv(1536, 384, 1), crossed(384, 256)),
        chain((1536, 384, 448, 512), (1, (3, 1), (1, 3))).append(crossed(512, 256)),
        pooled(1536, 256),
    )
