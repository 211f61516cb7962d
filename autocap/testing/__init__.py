"""What packages beside autocap are tested with: suites for pytest, of what every strategy and every device must do, an
emulated NVML library (`autocap.testing.nvml`), and a job, its cards and its meter in virtual time
(`autocap.testing.simulated`).

from autocap.testing import StrategyContract

class TestMine(StrategyContract):
    strategy = Mine
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autocap.testing.devices import DeviceContract, DeviceUnderTest
    from autocap.testing.strategies import StrategyContract

__all__ = ["DeviceContract", "DeviceUnderTest", "StrategyContract"]


def __getattr__(name: str) -> object:
    """The suites, which need pytest; the emulated library does not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import pytest
    except ModuleNotFoundError as error:
        if error.name != "pytest":
            raise
        raise ImportError("autocap.testing needs the package pytest; install it with: pip install pytest") from None
    suites = ("autocap.testing.devices", "autocap.testing.strategies")
    pytest.register_assert_rewrite(*(name for name in suites if name not in sys.modules))  # a failure shows why
    from autocap.testing import devices, strategies

    return getattr(strategies if name == "StrategyContract" else devices, name)
