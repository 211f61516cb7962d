"""The parts that the convolutional networks share."""

from torch import Tensor, nn

Kernel = int | tuple[int, int]


def conv_norm(
    channels: int, width: int, kernel: Kernel, *, stride: int = 1, padded: bool = True, eps: float = 1e-5
) -> nn.Sequential:
    """A convolution without bias, and batch normalisation.

    padded: with as many zeros at each side as keep the size at stride 1; else none ("valid").
    """
    return nn.Sequential(
        nn.Conv2d(channels, width, kernel, stride=stride, padding=_padding(kernel, padded), bias=False),
        nn.BatchNorm2d(width, eps=eps),
    )


def classifier(features: int, hidden: int, classes: int) -> nn.Sequential:
    """The head of AlexNet and VGG: two hidden layers, each with half of its values dropped in training.

    It holds most of these networks' weights. Without normalisation in front of it, torch's own initial weights would
    let the signal fade: those of He et al. 2015 keep it.
    """
    head = nn.Sequential(
        nn.Linear(features, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(hidden, classes),
    )
    for layer in head:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear" if layer is head[-1] else "relu")
            nn.init.zeros_(layer.bias)
    return head


def initialise_convolutions(model: nn.Module) -> None:
    """He et al. 2015: weights as large as keep the gradients' variance through the rectifiers; biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def global_average(features: Tensor) -> Tensor:
    """The mean over all pixels: shape (n, channels, h, w) to (n, channels)."""
    return features.mean(dim=(2, 3))


def _padding(kernel: Kernel, padded: bool) -> tuple[int, int]:
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    return (height // 2, width // 2) if padded else (0, 0)
