"""`--node-power ipmi`: what the machine's management controller reads, asked for with ipmitool (DCMI).

DCMI 1.5, section 6.6.1: Get Power Reading gives the whole machine's power in whole watts.
"""

import os
import re
import subprocess
from contextlib import suppress

from autocap.clock import Clock
from autocap.devices.node.held import HeldPower, watts
from autocap.errors import DeviceUnavailable
from autocap.job.invoking_user import privileged
from autocap.records import NodeReading

COMMAND = ("ipmitool", "dcmi", "power", "reading")
_EVERY_S = 1.0  # between two questions; most controllers look no more often
_ANSWER_S = 10.0  # the longest that an answer may take
_READING = re.compile(r"Instantaneous power reading:\s*(.*)")
_SHOWN = 80
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class IpmiMeter(HeldPower):
    """A PowerSource: the whole machine's power, one question at a time, each by a process of its own beside us.

    command: that prints an answer. Raises DeviceUnavailable where the first answer, which is waited for, is no power.
    """

    name = "ipmi"
    whole = True

    def __init__(self, clock: Clock, command: tuple[str, ...] = COMMAND) -> None:
        super().__init__("ipmitool", _EVERY_S)
        self._clock, self._command = clock, command
        self._question: subprocess.Popen[bytes] | None = None
        self._asked_s = clock.now()
        self.put(self._asked_s, self._first())

    def read(self) -> NodeReading:
        now_s = self._clock.now()
        if self._question is not None:
            self._listen(self._question, now_s)
        elif now_s - self._asked_s >= _EVERY_S:
            self._ask(now_s)
        return self.at(now_s)

    def close(self) -> None:
        if self._question is not None:
            self._drop(self._question)

    def _first(self) -> float:
        try:
            with privileged():
                done = subprocess.run(
                    self._command,
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=_ANSWER_S,
                    check=False,
                )
        except FileNotFoundError:
            raise _useless("there is no ipmitool; install it") from None
        except OSError as error:
            raise _useless(f"{self._command[0]} cannot be started: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            raise _useless(f"ipmitool gave no answer within {_ANSWER_S:g} s; look at it by hand") from None
        text, said = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace").strip()
        power_w = _reading(text)
        if power_w is None:
            why = f"{' '.join(self._command)} ended with status {done.returncode} and told no power"
            raise _useless(f"{why}{f' ({said[:_SHOWN]})' if said else ''}; it needs root and a controller with DCMI")
        return power_w

    def _ask(self, now_s: float) -> None:
        self._asked_s = now_s
        try:
            with privileged():
                self._question = subprocess.Popen(
                    self._command,
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
        except OSError as error:
            self.refuse(now_s, f"it cannot be started: {error.strerror}")

    def _listen(self, question: subprocess.Popen[bytes], now_s: float) -> None:
        if question.poll() is None:
            if now_s - self._asked_s > _ANSWER_S:
                self._drop(question)
                self.refuse(now_s, f"nothing within {_ANSWER_S:g} s")
            return
        text = question.communicate()[0].decode(errors="replace")  # it has ended: nothing is waited for
        self._question = None
        power_w = _reading(text)
        if power_w is None:
            self.refuse(now_s, text or f"nothing, with status {question.returncode}")
        else:
            self.put(now_s, power_w)

    def _drop(self, question: subprocess.Popen[bytes]) -> None:
        """SIGKILL, as a child of ours has most signals blocked."""
        self._question = None
        with suppress(ProcessLookupError), privileged():
            question.kill()
        question.communicate()


def _environment() -> dict[str, str] | None:
    """As root, nothing of the caller's: their PATH may lead to a program of theirs. `None` stands for our own."""
    return {"PATH": _SYSTEM_PATH} if os.geteuid() == 0 else None


def _reading(text: str) -> float | None:
    """The power in an answer, watts; `None` where there is none above 0."""
    match = _READING.search(text)
    return watts(match[1]) if match else None


def _useless(why: str) -> DeviceUnavailable:
    return DeviceUnavailable(f"--node-power ipmi: {why}, or choose another source of the node's power")
