"""VGG networks (Simonyan and Zisserman 2015, "Very Deep Convolutional Networks for Large-Scale Image Recognition").

Configurations D (16 weighted layers) and E (19) of table 1, each also with batch normalisation behind every
convolution, which the paper predates and Caspart et al. 2022 train.
"""

from functools import partial

from torch import Tensor, nn

from autocap.workloads.models.blocks import classifier, initialise_convolutions

_WIDTHS = (64, 128, 256, 512, 512)
VGG16 = (2, 2, 3, 3, 3)  # convolutions of each width
VGG19 = (2, 2, 4, 4, 4)
_HEAD_SIZE = 7  # pixels per side in front of the head, at 224 pixels in
_HIDDEN = 4096  # units in each hidden layer of the head


class VGG(nn.Module):
    """Five stages of 3x3 convolutions, each halving the size, and a head of three linear layers.

    Takes images, shape (n, 3, h, w), h and w at least 32; gives logits, shape (n, classes).
    """

    def __init__(self, depths: tuple[int, ...], classes: int, *, normalised: bool, hidden: int = _HIDDEN) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width, depth in zip(_WIDTHS, depths, strict=True):
            for _ in range(depth):
                layers.append(nn.Conv2d(channels, width, kernel_size=3, padding=1))
                if normalised:
                    layers.append(nn.BatchNorm2d(width))
                layers.append(nn.ReLU(inplace=True))
                channels = width
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        self.features = nn.Sequential(*layers)
        self.resize = nn.AdaptiveAvgPool2d(_HEAD_SIZE)
        self.head = classifier(channels * _HEAD_SIZE**2, hidden=hidden, classes=classes)
        initialise_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.resize(self.features(images))
        logits: Tensor = self.head(features.flatten(1))
        return logits


# With their parameters at 1000 classes.
vgg16 = partial(VGG, VGG16, normalised=False)  # 138,357,544
vgg16_bn = partial(VGG, VGG16, normalised=True)  # 138,365,992
vgg19 = partial(VGG, VGG19, normalised=False)  # 143,667,240
vgg19_bn = partial(VGG, VGG19, normalised=True)  # 143,678,248
