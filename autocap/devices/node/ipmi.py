"""`--node-power ipmi`: what the machine's management controller reads, asked for with ipmitool (DCMI).

DCMI 1.5, section 6.6.1: Get Power Reading gives the whole machine's power in whole watts.
"""

import os
import re
import shutil

from autocap.clock import Clock
from autocap.devices.node.asked import AskedMeter, Shell, shell, useless
from autocap.errors import DeviceUnavailable
from autocap.job.keeper import Keeper, keeper
from autocap.job.supervised import available

COMMAND = ("ipmitool", "dcmi", "power", "reading")
_EVERY_S = 1.0  # between two questions; most controllers look no more often
_READING = re.compile(r"Instantaneous power reading:\s*(.*)")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class IpmiMeter(AskedMeter):
    """A PowerSource: the whole machine's power. command: that prints an answer. Raises DeviceUnavailable where the
    first answer is no power."""

    name = "ipmi"
    whole = True

    def __init__(self, clock: Clock, command: tuple[str, ...] = COMMAND) -> None:
        root = keeper()
        if root is None:
            environ = _environment()
            if shutil.which(command[0], path=(environ or os.environ).get("PATH")) is None:
                raise _missing()
        super().__init__(
            clock,
            command,
            reading=_READING,
            called="ipmitool",
            every_s=_EVERY_S,
            needs="it needs root and a controller with DCMI",
            start=_started if root is None else lambda command: _RootsShell(root),
        )


class _RootsShell:
    """That of the keeper's, which ends with its input. Raises OSError, DeviceUnavailable."""

    def __init__(self, root: Keeper) -> None:
        try:
            self._in, self._out, self._err = root.meter()
        except FileNotFoundError:
            raise _missing() from None
        self._status: int | None = None
        for fd in (self._in, self._out, self._err):
            os.set_blocking(fd, False)

    def poll(self) -> int | None:
        """1 once it has ended, whatever it ended with."""
        return self._status

    def tell(self, data: bytes) -> None:
        os.write(self._in, data)

    def output(self) -> bytes:
        data = available(self._out)
        if data == b"":
            self._status = 1
        return data or b""

    def errors(self) -> bytes:
        return available(self._err) or b""

    def close(self) -> None:
        for fd in (self._in, self._out, self._err):
            os.close(fd)


def _missing() -> DeviceUnavailable:
    return useless(IpmiMeter.name, "there is no ipmitool; install it")


def _started(command: tuple[str, ...]) -> Shell:
    return shell(command, _environment())


def _environment() -> dict[str, str] | None:
    """As root, nothing of the caller's: their PATH may lead to a program of theirs. `None` stands for our own."""
    return {"PATH": SYSTEM_PATH} if os.geteuid() == 0 else None
