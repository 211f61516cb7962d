"""AlexNet (Krizhevsky et al. 2012, "ImageNet Classification with Deep Convolutional Neural Networks").

The published layer widths with the two columns, which shared the work between two small GPUs, joined to one:
62,378,344 parameters at 1000 classes. Of the sizes in use that is the one next to the 63e6 that Krzywaniak et al. 2022
quote. The others: 60,965,224 with the columns apart; 61,100,840 with the narrower first layers of Krizhevsky 2014.
Without local response normalisation, as the TensorFlow benchmarks that the paper ran; it has no parameters.
"""

from torch import Tensor, nn

from autocap.workloads.models.blocks import classifier, initialise_convolutions

_HEAD_SIZE = 6  # pixels per side in front of the head, at 224 pixels in
_HIDDEN = 4096  # units in each hidden layer of the head


class AlexNet(nn.Module):
    """Five convolutions and a head of three linear layers: 8 weighted layers.

    Takes images, shape (n, 3, h, w), h and w at least 63; gives logits, shape (n, classes).
    """

    def __init__(self, classes: int, *, hidden: int = _HIDDEN) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 96, kernel_size=11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(96, 256, kernel_size=5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(256, 384, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 384, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.resize = nn.AdaptiveAvgPool2d(_HEAD_SIZE)
        self.head = classifier(256 * _HEAD_SIZE**2, hidden=hidden, classes=classes)
        initialise_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.resize(self.features(images))
        logits: Tensor = self.head(features.flatten(1))
        return logits
