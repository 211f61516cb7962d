"""The networks: sizes as published, shapes at ImageNet's sizes, and that each of them learns."""

from functools import cache

import pytest

from autocap.workloads.models import NETWORKS, Network, find, sample_shape, summarise


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Not above: it costs every process that collects the tests more than a second."""
    global torch, nn, source, TrainConfig, CPU, step
    import torch
    from torch import nn

    from autocap.workloads.config import TrainConfig
    from autocap.workloads.data import source
    from tests.doubles.workload_jobs import CPU, step


PARAMETERS = {
    "alexnet": 62_378_344,
    "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992,
    "vgg19": 143_667_240,
    "vgg19_bn": 143_678_248,
    "inception3": 27_161_264,
    "inception4": 42_679_816,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "xception": 22_855_952,
    "lstm": 9_841,
}
# One of each family and way to build it: the sizes of the others show in their parameters and operations.
IMAGE_NETWORKS = ["alexnet", "vgg16", "vgg16_bn", "inception3", "inception4", "resnet18", "resnet50", "xception"]


# Multiply-adds an image as others count them, in thousand millions.
OPERATIONS = {"vgg16": 15.470, "vgg19": 19.632, "inception3": 5.713, "resnet18": 1.814, "resnet50": 3.858}


@cache
def on_meta(network: Network) -> "nn.Module":
    with torch.device("meta"):
        return network.build()


def outputs(model: "nn.Module", *shape: int) -> "tuple[torch.Size, ...]":
    given = model(torch.empty(*shape, device="meta"))
    return tuple(each.shape for each in given) if isinstance(given, tuple) else (given.shape,)


def test_the_load_forecast_gives_a_load_per_hour_and_counts_every_hour_of_its_window() -> None:
    assert outputs(on_meta(find("lstm")), 2, 12) == ((2, 12),)
    an_hour = 2 * (4 * 48 * (1 + 48) + 48)
    assert summarise(find("lstm")).flops_per_image == 168 * an_hour


@pytest.mark.slow
@pytest.mark.parametrize("name", IMAGE_NETWORKS)
def test_a_network_gives_a_logit_per_class_at_imagenet_sizes(name: str) -> None:
    model = on_meta(find(name))
    heads = 2 if name == "inception3" else 1  # the auxiliary one, in training only
    assert outputs(model.eval(), 2, 3, 224, 224) == ((2, 1000),)
    assert outputs(model.train(), 2, 3, 299, 299) == ((2, 1000),) * heads


def takes(model: "nn.Module", shape: tuple[int, ...]) -> bool:
    try:
        model(torch.empty(shape, device="meta"))
    except (RuntimeError, ValueError):
        return False
    return True


@pytest.mark.parametrize("name", NETWORKS)
def test_the_smallest_sizes_are_the_smallest_that_train(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whether there are enough values for it was asked before; its arithmetic without numbers takes most of a test.
    monkeypatch.setattr(torch, "batch_norm", lambda values, *_: values)
    network = find(name)
    model = on_meta(network)

    def trains_at(batch: int, size: int) -> bool:
        return takes(model, (batch, *sample_shape(network, size)))

    assert trains_at(2, network.smallest_image)
    assert network.smallest_image == 1 or not trains_at(2, network.smallest_image - 1)
    if network.smallest_single is None:
        assert not trains_at(1, 331)
    else:
        assert trains_at(1, network.smallest_single)
        assert network.smallest_single == 1 or not trains_at(1, network.smallest_single - 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps", "faster"),
    [
        # Without batch normalisation a set of four moves the weights slowly at the published rate.
        # One of each kind of block: the deeper networks of a family are more of the same.
        *(("alexnet", 4, 4), ("vgg16_bn", 3, 1), ("inception3", 4, 4)),
        *(("resnet18", 4, 1), ("resnet50", 3, 1), ("xception", 6, 4), ("lstm", 6, 1)),
    ],
)
def test_the_loss_falls_on_a_small_fixed_set(name: str, steps: int, faster: float, one_thread: None) -> None:
    network = find(name)
    size = max(network.smallest_image, 32)
    config = TrainConfig(network=network, batch_size=4, image_size=size, samples=4, seed=0)
    batch = source(config, CPU).batch(0)
    trained = step(network, image_size=size, faster=faster)
    losses = [trained(*batch).item() for _ in range(steps)]
    if network.classes is not None:
        assert 6 < losses[0] < 14  # ln 1000 = 6.9 before anything is learnt, and 1.4 times that with two heads
    assert losses[-1] < 0.97 * losses[0]


@pytest.fixture
def one_thread(threads_put_back: None) -> None:
    torch.set_num_threads(1)
