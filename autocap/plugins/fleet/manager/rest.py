"""What a machine draws beside the GPUs of a budget: reserved, with the errors of the GPUs' own sensors."""

import math
from collections import deque
from collections.abc import Sequence

from autocap.devices.base import PowerSource
from autocap.plugins.fleet.manager.tenant import upper
from autocap.records import NodeReading, Reading

_OVER_S = 60.0
_SENSOR_W = 1.0  # one reading step of a sensor, of as many as there are
_STEP = 0.02  # of what is reserved; less is no news


class Rest:
    """node: of the machine's power, `None` where the budget is of the GPUs alone. gpus: how many. reading: the latest;
    drawn_w: in it, beside the GPUs, watts. reserved_w: its upper quantile over the last minute, and the guard band."""

    def __init__(self, node: PowerSource | None, gpus: int) -> None:
        self._node, self._band_w = node, _SENSOR_W * math.sqrt(gpus)
        self._seen: deque[tuple[float, float]] = deque()
        self.reading: NodeReading | None = None
        self.drawn_w, self.reserved_w = 0.0, self._band_w

    def see(self, t_s: float, readings: Sequence[Reading]) -> bool:
        """Read the machine's power beside that of the GPUs; whether another reserve came of it."""
        self.reading = node = None if self._node is None else self._node.read()
        gpus_w = [reading.power_w for reading in readings if reading.power_w is not None]
        if node is None or node.power_w is None or (node.whole and len(gpus_w) < len(readings)):
            return False
        self.drawn_w = max(0.0, node.power_w - sum(gpus_w) if node.whole else node.power_w)
        self._seen.append((t_s, self.drawn_w))
        while self._seen[0][0] < t_s - _OVER_S:
            self._seen.popleft()
        reserved_w = upper(self._seen) + self._band_w
        if abs(reserved_w - self.reserved_w) <= _STEP * self.reserved_w:
            return False
        self.reserved_w = reserved_w
        return True
