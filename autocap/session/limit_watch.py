"""Has somebody else changed a limit that we hold? Found in the readings themselves, between our own sets."""

from collections.abc import Sequence

from autocap.records import GpuInfo, Reading, same_limit

# Our own watchdog puts limits back when we were stopped; we hear of it before the second sample that shows it.
_SAMPLES = 2


class LimitWatch:
    """Compares the requested limits of each sample with those that should hold."""

    def __init__(self, gpus: Sequence[GpuInfo]) -> None:
        self._gpus = gpus
        self._seen = 0

    @property
    def suspects(self) -> bool:
        """Whether the latest sample showed another limit than should hold."""
        return self._seen > 0

    def change(self, readings: Sequence[Reading], caps_w: Sequence[float]) -> str | None:
        """Who was changed to what, once two samples in a row show it; `None` while all is as it should be.

        caps_w: the limits that should hold, watts, one per device.
        """
        changed = [
            f"the limit of {gpu.where} is {reading.requested_w:g} W, where {cap_w:g} W should be"
            for gpu, reading, cap_w in zip(self._gpus, readings, caps_w, strict=True)
            if reading.requested_w is not None and not same_limit(reading.requested_w, cap_w)
        ]
        self._seen = self._seen + 1 if changed else 0
        if self._seen < _SAMPLES:
            return None
        return f"{'; '.join(changed)}: somebody else has changed it, and it stays"
