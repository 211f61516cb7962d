"""A small real training: a network learns to tell digits of dots apart, until its accuracy on others is good enough.

The digits are the ten of a seven-segment display on 16 x 16 dots, shifted and noisy, made anew by every seed; the
network is a small convolutional one, trained by plain SGD. It prints its accuracy after every epoch and ends where that
is enough: small batches take long for an epoch, large ones need many epochs.
"""

import argparse
import sys
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

_SEGMENTS = (
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
)
_SIDE, _TRAINED_ON, _LOOKED_AT = 16, 4096, 1024
_NOISE = 0.5


def digits(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of shape (count, 1, 16, 16), and which digit each is."""
    shapes = torch.stack([_drawn(segments) for segments in _SEGMENTS])
    which = torch.randint(10, (count,), generator=generator)
    across, down = (torch.randint(-2, 3, (count,), generator=generator) for _ in range(2))
    pictures = torch.stack(
        [shapes[one].roll((int(x), int(y)), (0, 1)) for one, x, y in zip(which, across, down, strict=True)]
    )
    return (pictures + _NOISE * torch.randn(pictures.shape, generator=generator)).unsqueeze(1), which


def _drawn(segments: str) -> torch.Tensor:
    """top, two upper, middle, two lower, bottom."""
    dots = torch.zeros(_SIDE, _SIDE)
    places = (
        (slice(2, 4), slice(5, 11)),
        (slice(3, 8), slice(4, 6)),
        (slice(3, 8), slice(10, 12)),
        (slice(7, 9), slice(5, 11)),
        (slice(8, 13), slice(4, 6)),
        (slice(8, 13), slice(10, 12)),
        (slice(12, 14), slice(5, 11)),
    )
    for segment, (rows, columns) in zip(segments, places, strict=True):
        if segment == "1":
            dots[rows, columns] = 1.0
    return dots


def main(argv: Sequence[str]) -> int:
    """Train until the accuracy is enough; 0, or 1 where it never was."""
    parser = argparse.ArgumentParser(prog="python -m bench.recurrences.training", description=__doc__)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--accuracy", type=float, default=0.9, help="at which it is good enough (default: 0.9)")
    parser.add_argument("--epochs", type=int, default=60, help="at most (default: 60)")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument(
        "--seed", type=int, default=None, help="of the digits and the network (default: another each time)"
    )
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    generator = torch.Generator()
    torch.manual_seed(generator.seed() % 2**32 if args.seed is None else args.seed)
    generator.manual_seed(torch.initial_seed())
    pictures, which = digits(_TRAINED_ON, generator)
    others, of_others = digits(_LOOKED_AT, generator)
    network = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256, 10)),
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=args.learning_rate)
    for epoch in range(args.epochs):
        for batch in torch.randperm(len(pictures), generator=generator).split(args.batch_size):  # type: ignore[no-untyped-call]  # torch has it so
            optimizer.zero_grad()
            functional.cross_entropy(network(pictures[batch]), which[batch]).backward()  # type: ignore[no-untyped-call]  # likewise
            optimizer.step()
        with torch.no_grad():
            accuracy = (network(others).argmax(1) == of_others).double().mean().item()
        print(f"epoch {epoch} accuracy {accuracy:.4f}", flush=True)
        if accuracy >= args.accuracy:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
