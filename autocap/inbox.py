"""What a signal means for the job and for its caps, carried out."""

import logging
import signal
from contextlib import suppress

from autocap.config import RunConfig
from autocap.errors import AutocapError
from autocap.recorder import Recorder
from autocap.runner import Actuator, Order
from autocap.signals import Reaction, SignalPolicy, from_terminal
from autocap.target import Target

log = logging.getLogger(__name__)


class Inbox:
    """Passes signals on to the child, after the caps have been put back where the signal asks for an end."""

    def __init__(self, config: RunConfig, job: Target, recorder: Recorder, actuator: Actuator | None = None) -> None:
        self._policy = SignalPolicy(config.kill_after_s)
        self._job, self._recorder, self._actuator = job, recorder, actuator

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
                self._restore()
                self._job.forward(signum, from_terminal=from_terminal(signum))
                return Order.STOP_TUNING
            case Reaction.KILL:
                self._job.kill()
                return Order.STOP_TUNING
            case Reaction.SUSPEND:
                self._restore()
                self._job.suspend(from_terminal=from_terminal(signum))
                return Order.RESUME
            case Reaction.RETUNE:
                name = signal.Signals(signum).name
                self._recorder.warn(t_s, f"{name} asks to tune anew, which is not available yet; the cap is kept")
            case Reaction.LOOK:
                pass
        return Order.NOTHING

    def _restore(self) -> None:
        if self._actuator is None:
            return
        try:
            self._actuator.restore()
        except Exception:  # the signal must reach the job; the guardian's own end tries again
            log.debug("limits not put back before a signal is passed on", exc_info=True)
