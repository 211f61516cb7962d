"""Carries out what a signal means for the job and its caps."""

import logging
import signal
from contextlib import suppress
from typing import Protocol

from autocap.errors import AutocapError
from autocap.job.signals import Reaction, ReceivedSignal, SignalPolicy, from_terminal
from autocap.limits.guard import LimitSetter
from autocap.session.recorder import Recorder
from autocap.session.roles import Follower, Order

log = logging.getLogger(__name__)


class SignalledJob(Protocol):
    """Our child, to which signals are passed on, or a job that was attached to, which is only left at the end."""

    def forward(self, signum: int, *, from_terminal: bool) -> None: ...

    def end(self, signum: int, *, from_terminal: bool) -> None:
        """A signal asks for the end."""

    def kill(self) -> None: ...

    def suspend(self, *, from_terminal: bool) -> None:
        """Stop, ourselves too, and return when somebody continues us."""


class SignalInbox:
    """Passes signals on to the job, after the caps have been put back where the signal asks for an end.

    setter: what holds the caps, `None` while nothing is set. signalled: whether a signal has asked for the end.
    """

    def __init__(
        self,
        job: SignalledJob,
        recorder: Recorder,
        kill_after_s: float | None = None,
        follower: Follower | None = None,
    ) -> None:
        """follower: whoever else may ask for the job's end."""
        self._policy = SignalPolicy(kill_after_s)
        self._job, self._recorder, self._follower = job, recorder, follower
        self.setter: LimitSetter | None = None
        self.signalled = False

    def receive(self, signum: int, t_s: float) -> Order:
        reaction = self._policy.receive(signum, t_s)
        self.signalled = self.signalled or reaction in (Reaction.RESTORE_AND_FORWARD, Reaction.KILL)
        return self._obey(reaction, signum, t_s)

    def due(self, t_s: float) -> Order:
        if self._policy.kill_is_due(t_s):
            self._policy.kill_at_s = None
            with suppress(AutocapError):
                self._job.kill()
        if self._follower is not None and self._follower.wants_end(t_s):
            end = ReceivedSignal(signal.SIGTERM, from_terminal=True)  # to the whole job: a shell passes nothing on
            return self._obey(self._policy.receive(end, t_s), end, t_s)
        return Order.NOTHING

    def _obey(self, reaction: Reaction, signum: int, t_s: float) -> Order:
        try:
            return self._react(reaction, signum)
        except AutocapError as error:
            self._recorder.warn(t_s, str(error))
            return Order.STOP_TUNING

    def _react(self, reaction: Reaction, signum: int) -> Order:
        match reaction:
            case Reaction.FORWARD:
                self._job.forward(signum, from_terminal=from_terminal(signum))
            case Reaction.RESTORE_AND_FORWARD:
                _restore(self.setter)
                self._job.end(signum, from_terminal=from_terminal(signum))
                return Order.STOP_TUNING
            case Reaction.KILL:
                self._job.kill()
                return Order.STOP_TUNING
            case Reaction.SUSPEND:
                _restore(self.setter)
                self._recorder.step_aside()
                self._job.suspend(from_terminal=from_terminal(signum))
                return Order.RESUME
            case Reaction.RETUNE:
                return Order.RETUNE
            case Reaction.CHECK_CHILDREN:
                pass
        return Order.NOTHING


def _restore(setter: LimitSetter | None) -> None:
    if setter is None:
        return
    try:
        setter.restore()
    except Exception:  # the signal must have its effect; the guardian's own end tries again
        log.debug("limits not put back before a signal is obeyed", exc_info=True)
