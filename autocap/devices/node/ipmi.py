"""`--node-power ipmi`: what the machine's management controller reads, asked for with ipmitool (DCMI).

DCMI 1.5, section 6.6.1: Get Power Reading gives the whole machine's power in whole watts.
"""

import os
import re
import shutil

from autocap.clock import Clock
from autocap.devices.node.asked import AskedMeter, useless
from autocap.job.invoking_user import privileged

COMMAND = ("ipmitool", "dcmi", "power", "reading")
_EVERY_S = 1.0  # between two questions; most controllers look no more often
_READING = re.compile(r"Instantaneous power reading:\s*(.*)")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class IpmiMeter(AskedMeter):
    """A PowerSource: the whole machine's power. command: that prints an answer. Raises DeviceUnavailable where the
    first answer is no power."""

    name = "ipmi"
    whole = True

    def __init__(self, clock: Clock, command: tuple[str, ...] = COMMAND) -> None:
        with privileged():  # where root, who asks, looks for it
            environ = _environment()
            path = (environ or os.environ).get("PATH")
        if shutil.which(command[0], path=path) is None:
            raise useless(self.name, "there is no ipmitool; install it")
        super().__init__(
            clock,
            command,
            reading=_READING,
            called="ipmitool",
            every_s=_EVERY_S,
            needs="it needs root and a controller with DCMI",
            environ=environ,
            rights=privileged,
        )


def _environment() -> dict[str, str] | None:
    """As root, nothing of the caller's: their PATH may lead to a program of theirs. `None` stands for our own."""
    return {"PATH": _SYSTEM_PATH} if os.geteuid() == 0 else None
