"""What a keeper answers its session: what it opens for it, and why it opens no more than that. The session is its
user's, who can have it ask anything."""

import errno
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from autocap.devices.node.asked import asking
from autocap.devices.node.meters import COMMAND, SYSTEM_PATH
from autocap.devices.nvml.job_gpus import uses
from autocap.devices.permission import denial, own_privileges
from autocap.devices.powercap import Sysfs, energy_files
from autocap.errors import DeviceError, GuardError
from autocap.job.call_events import open_event
from autocap.job.keeper import Answer, Question
from autocap.job.processes import environment, identify, tree
from autocap.job.signals import IGNORED
from autocap.limits.keeper.charge import BudgetFiles, Charge
from autocap.limits.recovery import settled_news
from autocap.limits.state_dir import StateDir, default_path
from autocap.wire import listening
from autocap.wire.listening import NotListening

_RINGS_BYTES = 1 << 28  # 36 KiB each
_ADDRESSES = re.compile(r"[0-9a-f]{1,16}-[0-9a-f]{1,16}")


class Openings:
    """charge: whose, and of what. guard: makes a connection on which limits are lent to a process, told a descriptor of
    it and its PID; its other end. To be closed."""

    def __init__(self, charge: Charge, guard: Callable[[int, int], int]) -> None:
        self._charge = charge
        self._socket = ExitStack()  # removes a budget's
        self._meter: subprocess.Popen[bytes] | None = None
        self._answers: dict[str, Callable[[Mapping[str, object], list[int]], Answer]] = {
            Question.GUARD: lambda said, fds: Answer(fds=(guard(fds[0], _number(said["pid"])),)),
            Question.SETTLE: lambda said, fds: Answer(texts=self._settled()),
            Question.DENIAL: lambda said, fds: Answer(text=denial(own_privileges())),
            Question.ENERGY: lambda said, fds: Answer(fds=(self._energy(said["path"]),)),
            Question.CALLS: self._calls,
            Question.MORE_RINGS: lambda said, fds: self._more_rings(),
            Question.MAPPED: lambda said, fds: Answer(
                fds=(self._mapped(_number(said["pid"]), str(said["addresses"])),)
            ),
            Question.GPU_USE: lambda said, fds: Answer(text=json.dumps(self._gpu_use(_number(said["pid"])))),
            Question.LISTEN: lambda said, fds: Answer(fds=(self._listening(),)),
            Question.KEEP: lambda said, fds: self._keep(str(said["text"])),
            Question.KEPT: lambda said, fds: Answer(text=self._kept()),
            Question.FORGET: lambda said, fds: self._forget(),
            Question.IS_WORKER: lambda said, fds: self._is_worker(_number(said["pid"])),
            Question.NAMESPACE: lambda said, fds: self._namespace(_number(said["pid"])),
            Question.METER: lambda said, fds: Answer(fds=self._metered()),
        }

    def answer(self, said: Mapping[str, object], fds: list[int]) -> Answer:
        """Raises OSError for what cannot be, or may not be."""
        answer = self._answers.get(str(said.get("question")))
        if answer is None:
            raise OSError(errno.EINVAL, "no such question")
        try:
            return answer(said, fds)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise OSError(errno.EINVAL, "not understood") from error
        except (GuardError, NotListening) as error:
            raise OSError(errno.EIO, str(error)) from error

    def close(self) -> None:
        """End the meter, and listen no more."""
        self._socket.close()
        self._end_meter()

    def _end_meter(self) -> None:
        if self._meter is not None:
            self._meter.kill()
            self._meter.wait()
            self._meter = None

    def _settled(self) -> tuple[str, ...]:
        if self._charge.observe:
            raise OSError(errno.EPERM, "nothing is set under --observe")
        return tuple(settled_news())

    def _energy(self, path: object) -> int:
        """An energy counter of a CPU package, and no other file."""
        self._require("rapl" in (self._charge.kind, self._charge.node_power), "no energy of CPU packages")
        try:
            known = {str(one): one for one in energy_files(Sysfs())}
        except DeviceError as error:
            raise OSError(errno.ENOENT, str(error)) from error
        self._require(path in known, "no such counter")
        return os.open(known[str(path)], os.O_RDONLY)

    def _require(self, asked_for: bool, what: str) -> None:
        """Raises PermissionError for what the command line does not ask for."""
        if not asked_for:
            raise PermissionError(errno.EPERM, f"the command line asks for {what}")

    def _calls(self, said: Mapping[str, object], fds: list[int]) -> Answer:
        (file,) = fds
        tid, offset = _number(said["tid"]), _number(said["offset"])
        with _own_process(tid, self._charge.uid):
            return Answer(fds=(open_event(tid, file, offset),))

    def _more_rings(self) -> Answer:
        session = self._charge.session
        _, hard = resource.prlimit(session, resource.RLIMIT_MEMLOCK)
        if hard != resource.RLIM_INFINITY:
            most = max(hard, _RINGS_BYTES)
            resource.prlimit(session, resource.RLIMIT_MEMLOCK, (most, most))
        return Answer()

    def _mapped(self, pid: int, addresses: str) -> int:
        if not _ADDRESSES.fullmatch(addresses):
            raise OSError(errno.EINVAL, "no addresses")
        with _own_process(pid, self._charge.uid) as folder:
            fd = os.open(f"map_files/{addresses}", os.O_RDONLY | os.O_NONBLOCK, dir_fd=folder)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise OSError(errno.EINVAL, "no regular file")
            return fd

    @property
    def _budget(self) -> BudgetFiles:
        if self._charge.budget is None:
            raise PermissionError(errno.EPERM, "this is no budget")
        return self._charge.budget

    def _listening(self) -> int:
        """The manager's alone, so that nobody waits at it for one that was killed."""
        files, place = self._budget, default_path()
        StateDir(place).close()
        place.chmod(0o711)  # its files stay our own
        self._socket.close()
        return self._socket.enter_context(listening.own(place / files.socket, files.group, self._charge.uid)).detach()

    def _keep(self, text: str) -> Answer:
        name = self._budget.state
        with StateDir(default_path()) as place:
            place.write(name, text.encode())
        return Answer()

    def _kept(self) -> str | None:
        name = self._budget.state
        with StateDir(default_path()) as place:
            data = place.read(name)
        return None if data is None else data.decode(errors="replace")

    def _forget(self) -> Answer:
        name = self._budget.state
        with StateDir(default_path()) as place:
            place.unlink(name)
        return Answer()

    def _is_worker(self, pid: int) -> Answer:
        names = {name.encode() for name in self._budget.worker_variables}
        return Answer(text="yes" if names & environment(pid).keys() else None)

    def _namespace(self, pid: int) -> Answer:
        assert self._budget is not None
        return Answer(text=os.readlink(f"/proc/{pid}/ns/pid"))

    def _gpu_use(self, pid: int) -> tuple[object, ...]:
        job = None if self._charge.job is None else identify(self._charge.job)
        if job is None or pid not in {one.pid for one in tree(job)}:
            raise PermissionError(errno.EPERM, "it is not of the job")
        return uses(pid)

    def _metered(self) -> tuple[int, int, int]:
        self._require(self._charge.node_power == "ipmi", "no ipmitool")
        self._end_meter()
        variables = {"PATH": SYSTEM_PATH}
        if shutil.which(COMMAND[0], path=SYSTEM_PATH) is None:
            raise FileNotFoundError(errno.ENOENT, "there is no ipmitool")
        self._meter = subprocess.Popen(
            asking(COMMAND),
            env=variables,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_signals_as_usual,
        )
        streams = (self._meter.stdin, self._meter.stdout, self._meter.stderr)
        fds = tuple(os.dup(stream.fileno()) for stream in streams if stream is not None)
        for stream in streams:
            assert stream is not None  # a pipe, as asked for
            stream.close()
        return fds[0], fds[1], fds[2]


def _number(value: object) -> int:
    """Raises TypeError."""
    if type(value) is not int:
        raise TypeError("no whole number")
    return value


def _signals_as_usual() -> None:
    for signum in IGNORED:
        signal.signal(signum, signal.SIG_DFL)


@contextmanager
def _own_process(pid: int, uid: int) -> Iterator[int]:
    """A process, or a thread, that is the user's in every way; its folder in /proc. Inside, what is opened of it is
    theirs as well: they could look at it by themselves, and it is still the same afterwards. Raises OSError."""
    folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
    try:
        _require_own(folder, uid)
        yield folder
        _require_own(folder, uid)
    finally:
        os.close(folder)


def _require_own(folder: int, uid: int) -> None:
    """The folder is root's where the kernel keeps a process from its user, as one that runs what they may not read."""
    fd = os.open("status", os.O_RDONLY, dir_fd=folder)
    with os.fdopen(fd) as file:
        uids = next((line.split()[1:] for line in file if line.startswith("Uid:")), [])
    if os.fstat(folder).st_uid != uid or set(uids) != {str(uid)}:
        raise PermissionError(errno.EPERM, "it is not the user's own")
