"""What a training job small enough for a test is to do. Importing this needs no torch."""

from autocap.workloads.config import TrainConfig
from autocap.workloads.models import find


def tiny(network: str = "resnet18") -> TrainConfig:
    """Eight iterations on eight samples of 32 pixels, again and again; change it with `replace`."""
    return TrainConfig(
        network=find(network),
        device="cpu",
        batch_size=8,
        image_size=32,
        iterations=8,
        samples=8,
        log_every=3,
        threads=1,
    )
