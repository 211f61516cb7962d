"""Inception v3 (Szegedy et al. 2016, "Rethinking the Inception Architecture for Computer Vision", table 1).

With the auxiliary classifier on the 17x17 grid, which has 3,326,696 parameters, 27,161,264 at 1000 classes.
"""

from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, avg_pool2d

from autocap.workloads.models.blocks import global_average, initialise_convolutions
from autocap.workloads.models.inception import Branches, chain, conv, crossed, pooled, shrink, shrink_pool

_AUXILIARY_POOL = 5  # pixels per side, every third, and the kernel that follows


class Inception3(nn.Module):
    """Stem, eleven blocks of parallel branches, global average, linear head; an auxiliary head for training.

    Takes images, shape (n, 3, h, w), h and w at least 75; gives logits, shape (n, classes), and in training a pair of
    them, the second from the auxiliary head.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            shrink(3, 32),
            conv(32, 32, 3, padded=False),
            conv(32, 64, 3),
            shrink_pool(),
            conv(64, 80, 1),
            conv(80, 192, 3, padded=False),
            shrink_pool(),
        )
        self.to_17x17 = nn.Sequential(
            _grid_35(192, width=32),
            _grid_35(256, width=64),
            _grid_35(288, width=64),
            _reduce_35(288),
            _grid_17(width=128),
            _grid_17(width=160),
            _grid_17(width=160),
            _grid_17(width=192),
        )
        self.auxiliary = _AuxiliaryHead(classes)
        self.to_8x8 = nn.Sequential(_reduce_17(768), _grid_8(1280), _grid_8(2048))
        self.dropout = nn.Dropout()
        self.head = nn.Linear(2048, classes)
        initialise_convolutions(self)

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        grid: Tensor = self.to_17x17(self.stem(images))
        logits: Tensor = self.head(self.dropout(global_average(self.to_8x8(grid))))
        return (logits, self.auxiliary(grid)) if self.training else logits


class _AuxiliaryHead(nn.Module):
    """A classifier on the 17x17 grid, whose gradient helps the lower layers."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(conv(768, 128, 1), conv(128, 768, _AUXILIARY_POOL, padded=False))
        self.head = nn.Linear(768, classes)

    def forward(self, grid: Tensor) -> Tensor:
        # As published from 299 pixels on, where the grid is 17x17; a smaller grid does not hold five windows a side.
        holds_all = min(grid.shape[-2:]) >= 17
        windows = (
            avg_pool2d(grid, _AUXILIARY_POOL, stride=3) if holds_all else adaptive_avg_pool2d(grid, _AUXILIARY_POOL)
        )
        logits: Tensor = self.head(global_average(self.features(windows)))
        return logits


def _grid_35(channels: int, *, width: int) -> Branches:
    """Figure 5: the 5x5 convolution of earlier versions beside two of 3x3. width: channels of the pooled branch."""
    return Branches(
        conv(channels, 64, 1),
        nn.Sequential(conv(channels, 48, 1), conv(48, 64, 5)),
        nn.Sequential(conv(channels, 64, 1), conv(64, 96, 3), conv(96, 96, 3)),
        pooled(channels, width),
    )


def _reduce_35(channels: int) -> Branches:
    return Branches(
        shrink(channels, 384),
        nn.Sequential(conv(channels, 64, 1), conv(64, 96, 3), shrink(96, 96)),
        shrink_pool(),
    )


def _grid_17(*, width: int) -> Branches:
    """Figure 6: 7x7 convolutions as pairs of 1x7 and 7x1."""
    return Branches(
        conv(768, 192, 1),
        chain((768, width, width, 192), (1, (1, 7), (7, 1))),
        chain((768, width, width, width, width, 192), (1, (7, 1), (1, 7), (7, 1), (1, 7))),
        pooled(768, 192),
    )


def _reduce_17(channels: int) -> Branches:
    return Branches(
        nn.Sequential(conv(channels, 192, 1), shrink(192, 320)),
        chain((channels, 192, 192, 192), (1, (1, 7), (7, 1))).append(shrink(192, 192)),
        shrink_pool(),
    )


def _grid_8(channels: int) -> Branches:
    """Figure 7: 1x3 and 3x1 side by side, for more features on the coarsest grid."""
    return Branches(
        conv(channels, 320, 1),
        nn.Sequential(conv(channels, 384, 1), crossed(384, 384)),
        nn.Sequential(conv(channels, 448, 1), conv(448, 384, 3), crossed(384, 384)),
        pooled(channels, 192),
    )
