"""What tells the power of the machine around the devices, for `--node-power`, to the rest of autocap."""

from typing import Protocol

from autocap.records import NodeReading


class PowerSource(Protocol):
    """Read with every sample. A slow meter runs at its own rate beside us: reading never waits for it.

    name: as given on the command line. whole: what it reads holds the GPUs' power already. refresh_s: seconds between
    two fresh readings; `None` while they have not shown it.
    """

    @property
    def name(self) -> str: ...

    @property
    def whole(self) -> bool: ...

    @property
    def refresh_s(self) -> float | None: ...

    def read(self) -> NodeReading:
        """The latest reading, held from the moment it came; `power_w=None` once it is too old to stand for now."""

    def notes(self) -> tuple[str, ...]:
        """What the user should know of it and was not told yet: sentences for the run log, each given once."""

    def close(self) -> None:
        """End what runs for it."""
