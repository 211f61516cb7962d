"""The meters of the machine's power. command:CMD is one of the user's, which prints watts, a line a reading, as
yokotool does. rapl: the CPU packages and their memory, beside the GPUs.

ipmi: what the machine's management controller reads, asked for with ipmitool (DCMI 1.5, section 6.6.1: Get Power
Reading gives the whole machine's power in whole watts). slurm: what Slurm reads of the node's power for its own books,
from `scontrol show node`; its plugins (AcctGatherEnergyType in slurm.conf) read whole nodes (ipmi, xcc, pm_counters),
CPU packages and memory (rapl), or the GPUs, which are counted here anyway.
"""

import os
import re
import shutil
import time
from collections.abc import Mapping
from functools import partial

from autocap.clock import Clock
from autocap.devices.base import PowerSource
from autocap.devices.node.asked import AskedMeter, HeldPower, Shell, shell, useless, watts
from autocap.devices.powercap import EnergyCounter, Sysfs, find_packages
from autocap.errors import DeviceError, DeviceUnavailable, EngineUnavailable
from autocap.job import slurm
from autocap.job.keeper import Keeper, keeper
from autocap.job.supervised import Supervised, available
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


COMMAND = ("ipmitool", "dcmi", "power", "reading")
_ASKED_EVERY_S = 1.0  # between two questions; most controllers look no more often
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
            every_s=_ASKED_EVERY_S,
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


_LEAST_EVERY_S = 5.0  # between two questions: Slurm's controller answers those of all nodes
_WATTS = re.compile(r"CurrentWatts=(\S+)")


class SlurmMeter(AskedMeter):
    """A PowerSource: the node's power as Slurm has read it last.

    Raises DeviceUnavailable where Slurm reads none, or we run in no job of it that has this node for itself: whoever
    else computes there draws power, too.
    """

    name = "slurm"

    def __init__(self, clock: Clock, environ: Mapping[str, str] = os.environ) -> None:
        job, node = environ.get("SLURM_JOB_ID"), environ.get("SLURMD_NODENAME")
        if not job or not node:
            raise useless(
                self.name,
                "this is not on a node of a Slurm job (SLURM_JOB_ID and SLURMD_NODENAME tell); start it in the job, "
                "as srun --jobid=ID --overlap does",
            )
        self.whole = is_whole(environ)
        try:
            why = slurm.why_not_alone(environ, job, node)
            _, every_s = slurm.energy_plugins(environ)
        except EngineUnavailable as error:
            raise useless(self.name, str(error)) from error
        if why is not None:
            raise useless(self.name, why)
        if not every_s:
            raise useless(
                self.name,
                "Slurm reads power here only for its books, not between (AcctGatherNodeFreq=0); compare afterwards, "
                f"with `autocap report --slurm {job}`",
            )
        super().__init__(
            clock,
            ("scontrol", "--oneliner", "show", "node", node),
            reading=_WATTS,
            called="scontrol",
            every_s=max(every_s / 2, _LEAST_EVERY_S),
            needs=f"Slurm knows no power of {node}",
            start=partial(shell, env=dict(environ)),
        )


def is_whole(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether what Slurm reads holds the GPUs' power already. Raises DeviceUnavailable where it reads nothing that can
    be counted."""
    try:
        plugins, _ = slurm.energy_plugins(environ)
    except EngineUnavailable as error:
        raise useless(SlurmMeter.name, str(error)) from error
    if not plugins:
        raise useless(SlurmMeter.name, "Slurm counts no energy here (AcctGatherEnergyType is none)")
    if len(plugins) == 1 and plugins[0] in slurm.NODE_METERS:
        return True
    if plugins == ("rapl",):
        return False
    raise useless(SlurmMeter.name, _not_usable(plugins))


def _not_usable(plugins: tuple[str, ...]) -> str:
    if plugins == ("gpu",):
        return "Slurm counts only the GPUs' energy here (acct_gather_energy/gpu), and that is counted anyway"
    known = ", ".join(plugins)[:80]
    return f"what Slurm reads by {known} is no whole node and not its CPUs alone, so it cannot be added up"


_SHORTEST_S = 0.05  # counters move about every millisecond: over less than this their power is mostly noise


class RaplPower(PowerSource):
    """A PowerSource from the energy counters of all packages and DRAM zones; fans, disks and losses are not in it.

    sysfs: this machine's unless another is given. Raises DeviceUnavailable where it shows none, or we may not read it.
    """

    name = "rapl"
    whole = False
    refresh_s = 0.001

    def __init__(self, clock: Clock, sysfs: Sysfs | None = None) -> None:
        self._clock = clock
        self._notes: list[str] = []
        try:
            zones = [zone for package in find_packages(sysfs) for zone in package.energy_zones]
            self._counters = [EnergyCounter(zone, clock.now()) for zone in zones]
        except DeviceError as error:
            raise DeviceUnavailable(f"--node-power rapl: {error}") from error
        self._last_s, self._last_j = clock.now(), 0.0
        self._power_w: float | None = None
        self._in_gap = False

    def read(self) -> NodeReading:
        now_s = self._clock.now()
        energy_j = self._energy_j(now_s)
        if energy_j is None:
            self._power_w, self._last_s = None, now_s
        elif self._in_gap:
            self._last_s, self._last_j = now_s, energy_j
        elif now_s - self._last_s >= _SHORTEST_S:
            self._power_w = max(0.0, energy_j - self._last_j) / (now_s - self._last_s)
            self._last_s, self._last_j = now_s, energy_j
        self._in_gap = energy_j is None
        known_j = None if self._power_w is None else energy_j
        return NodeReading(t_s=now_s, power_w=self._power_w, whole=False, energy_j=known_j)

    def notes(self) -> tuple[str, ...]:
        notes, self._notes = tuple(self._notes), []
        return notes

    def close(self) -> None:
        for counter in self._counters:
            counter.zone.sysfs.close()

    def _energy_j(self, now_s: float) -> float | None:
        """Of all zones since the start; `None` where one cannot be read, or has lost count. Each is read all the same,
        before it wraps."""
        known: list[float] = []
        trouble = None
        for counter in self._counters:
            try:
                energy_j = counter.read(now_s)
            except DeviceError as error:
                trouble = str(error)
                continue
            if energy_j is None:
                trouble = f"the energy counter of {counter.zone.id} ({counter.zone.name}) {counter.trouble}"
            else:
                known.append(energy_j)
        if trouble is None:
            return sum(known)
        if not self._in_gap:
            self._notes.append(f"the node's power is not known: {trouble}")
        return None
