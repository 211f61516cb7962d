"""The process that connected, watched for as long as it is served."""

import os

from autocap.job.processes import has_ended, identify
from autocap.limits.vital_signs import Look, VitalSigns

_MOST_THREADS = 256  # of a client that are looked at ten times a second, while it is silent


class PeerProcess:
    """The process that connected: whether it is still there, and what it does. To be closed.

    fd: a descriptor of it, readable once it has ended; `None` where the kernel gives none. It is taken over. Raises
    OSError where no descriptors are left.
    """

    def __init__(self, fd: int | None, pid: int) -> None:
        self.fd = fd
        self._signs: VitalSigns | None = None
        try:
            process = None if self.fd is None else identify(pid)
        except OSError:  # no descriptors are left
            self.close()
            raise
        if process is not None and not self.has_ended():  # so the number was still its own when it was looked at
            self._signs = VitalSigns(process, _MOST_THREADS)

    def has_ended(self) -> bool:
        return self.fd is not None and has_ended(self.fd)

    def look(self, *, threads: bool) -> Look | None:
        """As `VitalSigns.look`."""
        return None if self._signs is None else self._signs.look(threads=threads)

    def close(self) -> None:
        if self._signs is not None:
            self._signs.close()
        if self.fd is not None:
            os.close(self.fd)
