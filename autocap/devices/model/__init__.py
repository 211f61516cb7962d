"""What emulated and simulated cards share: published profiles and how sensors read. Without numpy, as the helper reads
which sensor a real card has."""

import json
from functools import cache
from importlib.resources import files

from autocap.errors import UsageError
from autocap.text import did_you_mean

# What a power reading averages over, on cards where that was measured, seconds: "Accurate and Convenient Energy
# Measurements for GPUs", SC24, arXiv 2312.02741, and its logs.
WINDOWS_S = {"v100": 0.010, "quadro-rtx": 0.020, "a100": 0.025, "rtx-3090": 0.100, "rtx-4090": 0.110, "h100": 0.025}
# What a card's name says about its sensor; the first that fits counts.
_BY_NAME = (
    ("V100", "v100"),
    ("Quadro RTX", "quadro-rtx"),
    ("A100", "a100"),
    ("RTX 3090", "rtx-3090"),
    ("RTX 4090", "rtx-4090"),
    ("H100", "h100"),
)
DATA = files(__name__).joinpath("krzywaniak2022.json")  # of `profiles`


@cache
def profile_names() -> tuple[str, ...]:
    """The names of all profiles, as `--device emulated:NAME` takes them."""
    curves = json.loads(DATA.read_text(encoding="utf-8"))["curves"]
    return tuple(f"{curve['card']}/{curve['network']}" for curve in curves)


def require_profile(name: str) -> None:
    """Raises UsageError with the names that there are."""
    known = profile_names()
    if name not in known:
        raise UsageError(f"unknown profile '{name}'{did_you_mean(name, known)}; choose one of {', '.join(known)}")


def sensor_of(gpu_name: str) -> str | None:
    """Which of the measured sensors a card of that name has; `None` where none was measured."""
    return next((sensor for part, sensor in _BY_NAME if part in gpu_name), None)
