"""`--node-power command:CMD`: a meter of the user's, which prints watts, a line a reading, as yokotool does."""

import time

from autocap.clock import Clock
from autocap.devices.node.asked import HeldPower, watts
from autocap.errors import DeviceUnavailable
from autocap.job.supervised import Supervised
from autocap.records import NodeReading
from autocap.wire.lines import Lines

_SHELL = "/bin/sh"
_FIRST_WITHIN_S = 10.0
_EVERY_S = 1.0  # between lines, until they have come
_MOST_BYTES = 1 << 16  # of a line
_END_S = 1.0  # for a meter that is asked to end
_LOOK_EVERY_S = 0.01  # while it begins; then it is looked at with every sample
_SHOWN = 80


class CommandMeter(HeldPower):
    """A PowerSource: the whole machine's power, as lines of a process that runs beside us, in a session of its own.

    It is given its first line before the job starts, and is ended with us, also when we are killed. Raises
    DeviceUnavailable where the first line does not come, or is no power.
    """

    whole = True

    def __init__(self, command: str, clock: Clock) -> None:
        super().__init__(f"the meter `{command}`", _EVERY_S)
        self.name = f"command:{command}"
        self._clock = clock
        self._lines = Lines(_MOST_BYTES)
        self._last_words = ""  # of its standard error
        try:
            self._child = Supervised((_SHELL, "-c", command), grace_s=_END_S)
        except OSError as error:
            raise self._useless(f"it cannot be started: {error.strerror}") from error
        try:
            self._await_first_line()
        except BaseException:
            self.close()
            raise

    def read(self) -> NodeReading:
        now_s = self._clock.now()
        self._take(now_s)
        if self._child.returncode is None and self._child.poll() is not None:
            self._take(now_s)  # its last lines
            self.lose(f"has ended{self._ending()}")
        return self.at(now_s)

    def close(self) -> None:
        """End the meter with all that it started."""
        self._child.close()

    def _await_first_line(self) -> None:
        deadline_s = time.monotonic() + _FIRST_WITHIN_S
        while not self.known:
            ended = self._child.poll() is not None
            self._take(self._clock.now())
            if self.known:
                break
            if ended:
                raise self._useless(f"it ended{self._ending()} before its first reading")
            if time.monotonic() > deadline_s:
                raise self._useless(f"no line with a power in watts came within {_FIRST_WITHIN_S:g} s")
            time.sleep(_LOOK_EVERY_S)
        self.notes()  # what came before it, such as a heading, is no loss

    def _take(self, now_s: float) -> None:
        """What has come since the last look. Of several lines the mean is what the machine drew meanwhile."""
        self._last_words = _last_line(self._child.errors()) or self._last_words
        lines = self._lines.feed(self._child.output())
        texts = [line.decode(errors="replace") for line in lines if line.strip()]
        values = [watts(text) for text in texts]
        known = [value for value in values if value is not None]
        if not texts:
            return
        if values[-1] is None:
            self.refuse(now_s, texts[-1])
        else:
            self.put(now_s, sum(known) / len(known))

    def _ending(self) -> str:
        said = f": {self._last_words[:_SHOWN]}" if self._last_words else ""
        return f" with status {self._child.returncode}{said}"

    def _useless(self, why: str) -> DeviceUnavailable:
        notes = "".join(f" ({note.partition(';')[0]})" for note in self.notes()[:1])
        return DeviceUnavailable(
            f"--node-power {self.name}: {why}{notes}; try it by hand: it must print watts, a line a reading, and not "
            "keep them in a buffer (stdbuf -oL helps)"
        )


def _last_line(data: bytes) -> str:
    lines = data.decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
