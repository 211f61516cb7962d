"""What every strategy and every device must do, as suites for pytest that anybody's own can be put through.

from autocap.testing import StrategyContract

class TestMine(StrategyContract):
    strategy = Mine
"""

try:
    import pytest
except ModuleNotFoundError as error:
    if error.name != "pytest":
        raise
    raise ImportError("autocap.testing needs the package pytest; install it with: pip install pytest") from None

pytest.register_assert_rewrite("autocap.testing.devices", "autocap.testing.strategies")  # so that a failure shows why

from autocap.testing.devices import DeviceContract, DeviceUnderTest  # noqa: E402 - once they are to be rewritten
from autocap.testing.strategies import StrategyContract  # noqa: E402

__all__ = ["DeviceContract", "DeviceUnderTest", "StrategyContract"]
