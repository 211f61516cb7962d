"""What a power reading averages over, on cards where that was measured; apart from the models of these sensors, as the
helper reads it without numpy.

Numbers: "Accurate and Convenient Energy Measurements for GPUs", SC24, arXiv 2312.02741, and its logs.
"""

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


def sensor_of(gpu_name: str) -> str | None:
    """Which of the measured sensors a card of that name has; `None` where none was measured."""
    return next((sensor for part, sensor in _BY_NAME if part in gpu_name), None)
