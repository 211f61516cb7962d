"""`--node-power ipmi`: what the machine's management controller reads, asked for with ipmitool (DCMI).

DCMI 1.5, section 6.6.1: Get Power Reading gives the whole machine's power in whole watts.
"""

import os
import re
import shutil
import time

from autocap.clock import Clock
from autocap.devices.node.held import HeldPower, watts
from autocap.errors import DeviceUnavailable
from autocap.job.invoking_user import privileged
from autocap.job.supervised import Supervised
from autocap.records import NodeReading

COMMAND = ("ipmitool", "dcmi", "power", "reading")
_EVERY_S = 1.0  # between two questions; most controllers look no more often
_ANSWER_S = 10.0  # the longest that an answer may take
_LOOK_EVERY_S = 0.01  # for the first one; then it is looked for with every sample
_READING = re.compile(r"Instantaneous power reading:\s*(.*)")
_END = re.compile(r"\0(\d{1,3})\n\Z")
_MOST_BYTES = 1 << 16  # of an answer
_SHOWN = 80
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# For each line that it is told it asks once, and ends the answer with a zero byte and the status on a line. One shell
# for all questions: starting each costs little, and needs nothing new of us while a cap is set.
_ASKING = """while read -r _; do "$@" </dev/null; printf '\\000%d\\n' "$?"; done"""


class IpmiMeter(HeldPower):
    """A PowerSource: the whole machine's power, one question at a time, each by a process of its own beside us.

    command: that prints an answer. Raises DeviceUnavailable where the first answer, which is waited for, is no power.
    """

    name = "ipmi"
    whole = True

    def __init__(self, clock: Clock, command: tuple[str, ...] = COMMAND) -> None:
        super().__init__("ipmitool", _EVERY_S)
        self._clock, self._command = clock, command
        self._shell: Supervised | None = None
        self._asked_s = clock.now()
        self._waiting = False
        self._heard = b""  # of an answer that has not ended yet
        self._said = b""  # beside it
        try:
            self.put(self._asked_s, self._first())
        except BaseException:
            self.close()
            raise

    def read(self) -> NodeReading:
        now_s = self._clock.now()
        if self._waiting:
            self._listen(now_s)
        elif now_s - self._asked_s >= _EVERY_S:
            self._asked_s = now_s
            try:
                self._ask()
            except OSError as error:
                self._drop()
                self.refuse(now_s, f"it cannot be started: {error.strerror}")
        return self.at(now_s)

    def close(self) -> None:
        self._drop()

    def _first(self) -> float:
        name = self._command[0]
        with privileged():  # where root, who asks, looks for it
            path = (_environment() or os.environ).get("PATH")
        if shutil.which(name, path=path) is None:
            raise _useless("there is no ipmitool; install it")
        deadline_s = time.monotonic() + _ANSWER_S
        try:
            self._ask()
        except OSError as error:
            raise _useless(f"{name} cannot be started: {error.strerror}") from error
        while (answer := self._answer()) is None:
            if time.monotonic() > deadline_s:
                raise _useless(f"ipmitool gave no answer within {_ANSWER_S:g} s; look at it by hand")
            time.sleep(_LOOK_EVERY_S)
        text, status = answer
        power_w = _reading(text)
        if power_w is None:
            said = self._said.decode(errors="replace").strip()[:_SHOWN]
            why = f"{' '.join(self._command)} ended with status {status} and told no power"
            raise _useless(f"{why}{f' ({said})' if said else ''}; it needs root and a controller with DCMI")
        return power_w

    def _ask(self) -> None:
        """Ask, without waiting. Raises OSError."""
        if self._shell is None:
            with privileged():
                words = ("/bin/sh", "-c", _ASKING, "sh", *self._command)
                self._shell = Supervised(words, grace_s=0.0, talks=True, env=_environment())
        self._shell.tell(b"\n")
        self._waiting = True

    def _listen(self, now_s: float) -> None:
        answer = self._answer()
        if answer is None:
            if now_s - self._asked_s > _ANSWER_S:
                self._drop()
                self.refuse(now_s, f"nothing within {_ANSWER_S:g} s")
            return
        text, status = answer
        power_w = _reading(text)
        if power_w is None:
            self.refuse(now_s, text or f"nothing, with status {status}")
        else:
            self.put(now_s, power_w)

    def _answer(self) -> tuple[str, int] | None:
        """The answer and its status; `None` while there is none, and nothing is waited for."""
        assert self._shell is not None  # asked
        ended = self._shell.poll()
        self._said = (self._said + self._shell.errors())[-_MOST_BYTES:]
        self._heard = (self._heard + self._shell.output())[-_MOST_BYTES:]
        text = self._heard.decode(errors="replace")
        if (end := _END.search(text)) is not None:
            self._waiting, self._heard = False, b""
            return text[: end.start()], int(end[1])
        if ended is None:
            return None
        self._drop()
        return text, ended

    def _drop(self) -> None:
        """End it; the next question starts another."""
        shell, self._shell = self._shell, None
        self._waiting, self._heard = False, b""
        if shell is not None:
            shell.close()


def _environment() -> dict[str, str] | None:
    """As root, nothing of the caller's: their PATH may lead to a program of theirs. `None` stands for our own."""
    return {"PATH": _SYSTEM_PATH} if os.geteuid() == 0 else None


def _reading(text: str) -> float | None:
    """The power in an answer, watts; `None` where there is none above 0."""
    match = _READING.search(text)
    return watts(match[1]) if match else None


def _useless(why: str) -> DeviceUnavailable:
    return DeviceUnavailable(f"--node-power ipmi: {why}, or choose another source of the node's power")
