"""Under sudo a session has its user's rights and no others; what needs root it asks of the keeper, a process of root's.

They share one socket of packets. A question is JSON, perhaps with a descriptor; the answer has the descriptors that
were opened. What the keeper may not do, or cannot, comes back as the OSError that the kernel would have raised.
"""

import errno
import json
import os
import random
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path

from autocap.job.invoking_user import InvokingUser, invoking_user, this_user

MOST_BYTES = 1 << 16  # of a packet
MOST_FDS = 3
_ANSWER_S = 10.0
_SETTLED_S = 60.0  # limits that a dead run has left are put back meanwhile


class Question(StrEnum):
    """What can be asked."""

    GUARD = auto()  # a connection on which limits are lent and set
    SETTLE = auto()  # put back what dead runs have left
    DENIAL = auto()  # why root may not set a limit here
    ENERGY = auto()  # an energy counter of a CPU package
    CALLS = auto()  # a counter of the calls that one thread of the user makes
    MORE_RINGS = auto()  # memory for more such counters
    MAPPED = auto()  # a file that a process of the user has loaded
    # Of a budget's manager alone.
    LISTEN = auto()  # the socket that its tuners connect to
    KEEP = auto()  # what the next manager has to know, of the state directory
    KEPT = auto()
    FORGET = auto()
    IS_WORKER = auto()  # whether a process says in its variables that a launcher has started it
    NAMESPACE = auto()  # of a process's PIDs
    # Of whoever asks.
    GPU_USE = auto()  # which GPUs a process of the job uses, where it is another user's
    METER = auto()  # ipmitool


@dataclass(frozen=True, slots=True)
class Answer:
    """text, texts: as the question has them. fds: its receiver's to close."""

    text: str | None = None
    texts: tuple[str, ...] = ()
    fds: tuple[int, ...] = ()


class Keeper:
    """The session's end. channel: to the process with root's rights. All methods raise OSError; from any thread."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._asked = random.getrandbits(62)  # of a process that was killed, an answer may wait here for nobody

    def guard(self) -> socket.socket:
        """A new connection, which speaks the helper's protocol. Its end, or ours, puts back what was set by it."""
        own = os.pidfd_open(os.getpid())
        try:
            return socket.socket(fileno=self._opened(Question.GUARD, (own,), pid=os.getpid()))
        finally:
            os.close(own)

    def settle(self) -> tuple[str, ...]:
        """Put back what dead runs left on this machine's devices; sentences on it."""
        return self._ask(Question.SETTLE, within_s=_SETTLED_S).texts

    def denial(self) -> str | None:
        """Why the keeper may not set a GPU's limit, or may turn out not to, a clause; `None` where it may."""
        return self._ask(Question.DENIAL).text

    def energy(self, path: Path) -> int:
        """An energy counter of a CPU package, open for reading."""
        return self._opened(Question.ENERGY, path=str(path))

    def calls(self, tid: int, file: int, offset: int) -> int:
        """A perf event that counts how often a thread calls the function at that place in an open file."""
        return self._opened(Question.CALLS, (file,), tid=tid, offset=offset)

    def more_rings(self) -> None:
        """Let this process have the memory of more such counters."""
        self._ask(Question.MORE_RINGS)

    def mapped(self, pid: int, addresses: str) -> int:
        """The file that a process has mapped at addresses, as /proc/PID/map_files has them, open for reading."""
        return self._opened(Question.MAPPED, pid=pid, addresses=addresses)

    def listen(self) -> socket.socket:
        """The socket of a budget, made anew for each manager."""
        return socket.socket(fileno=self._opened(Question.LISTEN))

    def keep(self, text: str) -> None:
        """Have a budget's state kept."""
        self._ask(Question.KEEP, words={"text": text})

    def kept(self) -> str | None:
        """The state that was kept; `None` for none."""
        return self._ask(Question.KEPT).text

    def forget(self) -> None:
        """Have no state kept any more."""
        self._ask(Question.FORGET)

    def is_worker(self, pid: int) -> bool:
        """Whether a process has one of the variables by which launchers number their workers."""
        return self._ask(Question.IS_WORKER, words={"pid": pid}).text is not None

    def namespace(self, pid: int) -> str:
        """As /proc/PID/ns/pid has it."""
        return self._ask(Question.NAMESPACE, words={"pid": pid}).text or ""

    def gpu_use(self, pid: int) -> tuple[tuple[str, ...], str | None, str | None]:
        """As `devices.nvml.job_gpus.uses` has it, of a process of the job that was named on the command line."""
        found = self._ask(Question.GPU_USE, words={"pid": pid}).text
        files, visible, order = json.loads(found or "")
        return tuple(files), visible, order

    def meter(self) -> tuple[int, int, int]:
        """The standard streams of a shell of root's that asks ipmitool for the node's power once for each line."""
        found = self._ask(Question.METER).fds
        return found[0], found[1], found[2]

    def _opened(self, question: Question, fds: Sequence[int] = (), **words: object) -> int:
        return self._ask(question, fds, words).fds[0]

    def _ask(
        self,
        question: Question,
        fds: Sequence[int] = (),
        words: Mapping[str, object] | None = None,
        within_s: float = _ANSWER_S,
    ) -> Answer:
        with self._lock:
            self._asked += 1
            packet = json.dumps({"id": self._asked, "question": question, **(words or {})}).encode()
            self._channel.settimeout(within_s)
            try:
                socket.send_fds(self._channel, [packet], fds)
                while (answer := self._answer()) is None:
                    pass
            except TimeoutError:
                raise OSError(errno.ETIMEDOUT, "the process with root's rights does not answer") from None
            return answer

    def _answer(self) -> Answer | None:
        """The next answer; `None` for one to a question that nobody waits for any more."""
        said, fds, _, _ = socket.recv_fds(self._channel, MOST_BYTES, MOST_FDS, socket.MSG_CMSG_CLOEXEC)
        if not said:
            raise OSError(errno.EPIPE, "the process with root's rights has ended")
        answer = json.loads(said)
        if answer["id"] != self._asked or "errno" in answer:
            for fd in fds:
                os.close(fd)
            if answer["id"] != self._asked:
                return None
            raise OSError(answer["errno"], answer["text"])
        return Answer(answer["text"], tuple(answer["texts"]), tuple(fds))


_keeper: Keeper | None = None


def keeper() -> Keeper | None:
    """That of this session; `None` without sudo."""
    return _keeper


def user_behind_sudo() -> InvokingUser | None:
    """Who typed `sudo autocap …`, whether this process is theirs by now or not; `None` without sudo."""
    return invoking_user() if _keeper is None else this_user()


def adopt(fd: int) -> None:
    """Be a session that has a keeper from now on. fd: its channel, which no child of ours inherits."""
    global _keeper
    os.set_inheritable(fd, False)
    _keeper = Keeper(socket.socket(fileno=fd))
