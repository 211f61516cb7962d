"""Carries out what a signal means for the job and its caps."""

import logging
from contextlib import suppress
from typing import Protocol

from autocap.errors import AutocapError
from autocap.job.signals import Reaction, SignalPolicy, from_terminal
from autocap.session.recorder import Recorder
from autocap.session.roles import Actuator, Order

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

    actuator: what holds the caps, `None` while nothing is set.
    """

    def __init__(self, job: SignalledJob, recorder: Recorder, kill_after_s: float | None = None) -> None:
        self._policy = SignalPolicy(kill_after_s)
        self._job, self._recorder = job, recorder
        self.actuator: Actuator | None = None

    def receive(self, signum: int, t_s: float) -> Order:
        try:
            return self._react(self._policy.receive(signum, t_s), signum)
        except AutocapError as error:
            self._recorder.warn(t_s, str(error))
            return Order.STOP_TUNING

    def due(self, t_s: float) -> None:
        if self._policy.kill_is_due(t_s):
            self._policy.kill_at_s = None
            with suppress(AutocapError):
                self._job.kill()

    def _react(self, reaction: Reaction, signum: int) -> Order:
        match reaction:
            case Reaction.FORWARD:
                self._job.forward(signum, from_terminal=from_terminal(signum))
            case Reaction.RESTORE_AND_FORWARD:
                _restore(self.actuator)
                self._job.end(signum, from_terminal=from_terminal(signum))
                return Order.STOP_TUNING
            case Reaction.KILL:
                self._job.kill()
                return Order.STOP_TUNING
            case Reaction.SUSPEND:
                _restore(self.actuator)
                self._recorder.step_aside()
                self._job.suspend(from_terminal=from_terminal(signum))
                return Order.RESUME
            case Reaction.RETUNE:
                return Order.RETUNE
            case Reaction.CHECK_CHILDREN:
                pass
        return Order.NOTHING


def _restore(actuator: Actuator | None) -> None:
    if actuator is None:
        return
    try:
        actuator.restore()
    except Exception:  # the signal must have its effect; the guardian's own end tries again
        log.debug("limits not put back before a signal is obeyed", exc_info=True)
