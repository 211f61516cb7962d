"""Who refuses limits now may lend them later: a neighbour has the device, or computes on it for a moment."""

from autocap.errors import ActuatorDenied, DeviceLocked, DeviceShared, LeaseEnded, LimitWithheld

PASSING = (ActuatorDenied, DeviceLocked, DeviceShared, LeaseEnded, LimitWithheld)  # refusals that may be over soon
_FIRST_S, _LONGEST_S = 30.0, 600.0  # between askings; each time twice as long as before


class Asking:
    """When to ask next, seconds on the run's clock. now_s: of the first refusal."""

    def __init__(self, now_s: float) -> None:
        self._wait_s = _FIRST_S
        self.again_s = now_s + self._wait_s

    def refused(self, now_s: float) -> None:
        """It was asked, and refused again."""
        self._wait_s = min(2 * self._wait_s, _LONGEST_S)
        self.again_s = now_s + self._wait_s


def untuned_for_now(why: str) -> str:
    """What a user is told, once."""
    return f"the job runs untuned for now: {why}; it is asked again in {_FIRST_S:g} s, and then ever less often"


TUNED_AFTER_ALL = "the limits may be set now, so the job is tuned after all"
LENT_AGAIN = "the limits are lent again; tuning goes on"
