"""Carries out what a signal means for the job and its caps: for our child, and for a job that was attached to."""

import logging
import signal
from contextlib import suppress

from autocap.errors import AutocapError
from autocap.job.attached import AttachedJob
from autocap.job.child import ChildJob
from autocap.job.signals import Reaction, SignalPolicy, from_terminal
from autocap.session.recorder import Recorder
from autocap.session.runner import Actuator, Order

log = logging.getLogger(__name__)


class Inbox:
    """Passes signals on to the child, after the caps have been put back where the signal asks for an end.

    actuator: what holds the caps, `None` while nothing is set.
    """

    def __init__(self, job: ChildJob, recorder: Recorder, kill_after_s: float | None) -> None:
        self._policy = SignalPolicy(kill_after_s)
        self._job, self._recorder = job, recorder
        self.actuator: Actuator | None = None

    def receive(self, signum: int, t_s: float) -> Order:
        try:
            return self._react(self._policy.receive(signum, t_s), signum, t_s)
        except AutocapError as error:
            self._recorder.warn(t_s, str(error))
            return Order.STOP_TUNING

    def due(self, t_s: float) -> None:
        if self._policy.kill_is_due(t_s):
            self._policy.kill_at_s = None
            with suppress(AutocapError):
                self._job.kill()

    def _react(self, reaction: Reaction, signum: int, t_s: float) -> Order:
        match reaction:
            case Reaction.FORWARD:
                self._job.forward(signum, from_terminal=from_terminal(signum))
            case Reaction.RESTORE_AND_FORWARD:
                _restore(self.actuator)
                self._job.forward(signum, from_terminal=from_terminal(signum))
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


class AttachInbox:
    """Signals to `autocap attach` never reach the job: one that asks for an end makes us leave it, caps put back."""

    def __init__(self, job: AttachedJob, recorder: Recorder) -> None:
        self._policy = SignalPolicy()
        self._job, self._recorder = job, recorder
        self.actuator: Actuator | None = None

    def receive(self, signum: int, t_s: float) -> Order:
        match self._policy.receive(signum, t_s):
            case Reaction.RESTORE_AND_FORWARD | Reaction.KILL:
                _restore(self.actuator)
                self._job.leave(f"{signal.Signals(signum).name} ended autocap, the job goes on")
                return Order.STOP_TUNING
            case Reaction.SUSPEND:
                _restore(self.actuator)
                self._recorder.step_aside()
                self._job.suspend()
                return Order.RESUME
            case Reaction.RETUNE:
                return Order.RETUNE
            case Reaction.FORWARD | Reaction.CHECK_CHILDREN:
                pass
        return Order.NOTHING

    def due(self, t_s: float) -> None:
        return


def _restore(actuator: Actuator | None) -> None:
    if actuator is None:
        return
    try:
        actuator.restore()
    except Exception:  # the signal must have its effect; the guardian's own end tries again
        log.debug("limits not put back before a signal is obeyed", exc_info=True)
