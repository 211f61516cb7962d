"""Signals as wake-ups of the run's clock, and what each of them means for the job; and those to a controller that its
watchdog, the supervisor of its job and the relay of its output do not obey.

Nothing happens in a handler: the signals are blocked, and the clock's wait is also the wait for them, so a signal
can interrupt neither a set of a limit nor the write of a file. Only while a session prepares they have their default
effect.
"""

import os
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from types import FrameType

from autocap.clock import MonotonicClock

IGNORED = (
    *(signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE, signal.SIGALRM),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGUSR1, signal.SIGUSR2),
)


def ignore_signals() -> None:
    """What is sent to the controller, its terminal or its group is not for us."""
    for signum in IGNORED:
        signal.signal(signum, signal.SIG_IGN)


_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
_OF_THE_PROCESS = _ENDING | {signal.SIGTSTP}  # what ends or stops any process, while there is no job yet
_WAITED = _ENDING | {signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCHLD}
_FROM_KERNEL = 0x80  # SI_KERNEL: how the terminal's ^C, ^\, ^Z and hang-up arrive
_LONGEST_WAIT_S = 1.0  # a signal that another thread caught does not end the wait, so look for it now and then
_INTERRUPTS_THAT_KILL = 3


class ReceivedSignal(int):
    """The number of a signal that arrived, and whether the terminal sent it to a whole process group, ours."""

    from_terminal: bool

    def __new__(cls, signum: int, from_terminal: bool = False) -> "ReceivedSignal":
        arrival = super().__new__(cls, signum)
        arrival.from_terminal = from_terminal
        return arrival


def from_terminal(signum: int) -> bool:
    """Whether the terminal sent a signal that a clock reported, as far as that clock knows."""
    return isinstance(signum, ReceivedSignal) and signum.from_terminal


class EndedBySignal(BaseException):
    """A signal asked for the end before there was a job; no Exception, as nothing is to be made of it on the way out.

    signum: the signal. `die` once everything is closed.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    def die(self) -> None:
        """End this process by that signal, as whoever waits for it is to see."""
        signal.signal(self.signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {self.signum})
        os.kill(os.getpid(), self.signum)


@contextmanager
def deaf() -> Iterator[None]:
    """No signal reaches a thread that is started inside, which inherits the mask."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class SignalClock(MonotonicClock):
    """The monotonic clock; inside `with`, a signal to this process ends a wait early and does nothing else.

    SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP and, when a child has ended, SIGCHLD. One that was
    ignored on our arrival (nohup, a background job of a plain shell) stays ignored, by us and by the child.

    Enter it in the main thread and before any other thread starts, so before numpy is imported: only threads that
    start later inherit the mask. An earlier thread may catch a signal that arrives between two waits; it is reported
    all the same, by the next wait or a second later, but without its origin.
    """

    def __init__(self) -> None:
        super().__init__()
        self._arrived: deque[ReceivedSignal] = deque()
        self._previous: dict[signal.Signals, object] = {}
        self._mask: set[signal.Signals | int] = set()

    def __enter__(self) -> "SignalClock":
        # Blocked before the handlers are there, so that no signal meets a half-made state.
        waited = [signum for signum in _WAITED if signum is signal.SIGCHLD or _is_ours(signum)]
        self._mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, waited))
        # A handler also undoes an inherited "ignore SIGCHLD", under which the child's status would be lost.
        self._previous = {signum: signal.signal(signum, self._note) for signum in waited}
        return self

    def __exit__(self, *error: object) -> None:
        # Unblocked first: what is still pending goes to our handler, not to a default action that ends us.
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]  # what signal.signal itself returned
        self._previous = {}

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Signals that end or stop a process do so at once, as there is no job yet, nothing is set, and whatever is
        done here (opening devices, settling what dead runs left) may take long and may end at any moment.

        It is the kernel that ends us, so it needs no turn of ours. Start threads inside `deaf`.
        """
        ours = [signum for signum in self._previous if signum in _OF_THE_PROCESS]
        for signum in ours:
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, ours)
            for signum in ours:
                signal.signal(signum, self._note)

    def end_if_asked(self) -> None:
        """Raises EndedBySignal where a signal has asked for the end since `preparing`, before the job is started."""
        self._drain()
        ending = [arrival for arrival in self._arrived if _ENDING & {arrival}]
        if ending:
            raise EndedBySignal(ending[0])

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """The mask found on arrival, for starting a child, which inherits it; signals are noted meanwhile.

        Chosen over a preexec_fn, which forks the whole process where vfork would do and is unsafe beside threads.
        """
        self._drain()
        before = signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait_until(self, t_s: float) -> ReceivedSignal | None:
        """Return at `t_s` with `None`, or earlier with the signal that arrived; one that is pending comes at once."""
        while not self._arrived:
            left_s = max(0.0, t_s - self.now())
            info = signal.sigtimedwait(self._previous, min(left_s, _LONGEST_WAIT_S))
            if info is not None:
                self._keep(info)
            elif self.now() >= t_s and not self._arrived:
                return None
        return self._arrived.popleft()

    def _drain(self) -> None:
        while (info := signal.sigtimedwait(self._previous, 0)) is not None:
            self._keep(info)

    def _keep(self, info: signal.struct_siginfo) -> None:
        # The emulated device stops and continues the child all the time. Such a SIGCHLD can hide the one of the
        # child's end, as the kernel keeps one at most, so look at the children and not at the signal's own word.
        if info.si_signo != signal.SIGCHLD or _a_child_has_ended():
            self._arrived.append(ReceivedSignal(info.si_signo, from_terminal=info.si_code == _FROM_KERNEL))

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if signum != signal.SIGCHLD or _a_child_has_ended():
            self._arrived.append(ReceivedSignal(signum))


def _is_ours(signum: signal.Signals) -> bool:
    return signal.getsignal(signum) not in (signal.SIG_IGN, None)


def _a_child_has_ended() -> bool:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


class Reaction(Enum):
    """What to do about a signal."""

    FORWARD = auto()  # pass it on; tuning goes on
    RESTORE_AND_FORWARD = auto()  # put the caps back, pass it on, wait for the child
    KILL = auto()  # the user has run out of patience
    SUSPEND = auto()  # put the caps back, then stop with the job
    RETUNE = auto()  # a request to us
    CHECK_CHILDREN = auto()  # a child has ended; perhaps the job


class SignalPolicy:
    """What each signal means, and when patience ends.

    kill_after_s: how long the child may outlive the first signal that asks it to end; `None` is without limit.
    SIGUSR2 asks for no such thing: trainers use it to request a checkpoint.
    """

    def __init__(self, kill_after_s: float | None = None) -> None:
        self._kill_after_s = kill_after_s
        self._interrupts = 0
        self.kill_at_s: float | None = None

    def receive(self, signum: int, t_s: float) -> Reaction:
        """What to do about a signal that arrived at `t_s`."""
        if signum == signal.SIGCHLD:
            return Reaction.CHECK_CHILDREN
        if signum == signal.SIGUSR1:
            return Reaction.RETUNE
        if signum == signal.SIGTSTP:
            return Reaction.SUSPEND
        if signum not in _ENDING:
            return Reaction.FORWARD
        self._interrupts += signum == signal.SIGINT
        if self._interrupts >= _INTERRUPTS_THAT_KILL and signum == signal.SIGINT:
            return Reaction.KILL
        if self._kill_after_s is not None and self.kill_at_s is None:
            self.kill_at_s = t_s + self._kill_after_s
        return Reaction.RESTORE_AND_FORWARD

    def kill_is_due(self, t_s: float) -> bool:
        """Whether the child has outlived a signal for longer than it may; wait with `wait_until(kill_at_s)`."""
        return self.kill_at_s is not None and t_s >= self.kill_at_s
