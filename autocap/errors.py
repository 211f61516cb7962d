"""Everything autocap raises on purpose.

A message says what failed, the value with its unit, what is allowed, and what to do.
"""


class AutocapError(Exception):
    """The root: catching it catches every error that is ours, and no other."""

    exit_status = 1


class UsageError(AutocapError):
    """What the command line alone shows to be wrong; nothing was touched."""

    exit_status = 2


class DeviceError(AutocapError):
    """A device failed while in use; the job goes on untuned."""


class DeviceShared(DeviceError):
    """Others compute on a device of the job; the message names them."""


class DeviceUnavailable(DeviceError):
    """The device that was asked for cannot be opened."""


class LimitRefused(DeviceError):
    """The device refused, clamped or ignored a power limit."""


class LimitOutside(LimitRefused):
    """The device refuses a power limit that lies inside the range that its driver states. cap_w: that one, watts."""

    def __init__(self, message: str, cap_w: float) -> None:
        super().__init__(message)
        self.cap_w = cap_w


class OtherLimit(LimitRefused):
    """Another limit stands there than the one that was requested. found_w: that one, watts."""

    def __init__(self, message: str, found_w: float) -> None:
        super().__init__(message)
        self.found_w = found_w


class LimitIgnored(OtherLimit):
    """The device took a limit without an error, and stays at the one before: asked again, it may take it. found_w: the
    one before, watts."""


class LimitClamped(OtherLimit):
    """The device made another limit of the one that was requested. found_w: that one, watts."""


class LimitNotPermitted(LimitRefused):
    """The device takes limits, but none from us."""


class SetterUnavailable(DeviceError):
    """What --via names, or whatever else could set a limit for us, is not there or would not do it."""


class SetterAbsent(SetterUnavailable):
    """It is not there at all."""


class SetterDenied(SetterUnavailable):
    """It is there, and whoever administers it, or somebody else's work on the device, says no."""


class LimitWithheld(LimitNotPermitted):
    """Whoever could set it for us does not now, and may later: somebody else has the device, or computes on it."""


class LimitNotEnforced(OtherLimit):
    """The device took a limit, but something outside autocap holds it lower. found_w: at how much, watts."""


class LimitOvertaken(OtherLimit):
    """The device took a limit, and before it was enforced somebody else requested another: that one is theirs.

    found_w: theirs, watts.
    """


class EngineUnavailable(AutocapError):
    """What joins the nodes of a job, Slurm or Ray, is not there, or does not know the job, or not as ours."""


class GuardError(AutocapError):
    """A limit could not be journalled or watched, so it was not set."""


class DeviceLocked(GuardError):
    """Another live autocap controls the device; the message names its PID."""


class LeaseEnded(GuardError):
    """Limits that were lent are lent no more, and are back; why is in the message. They may be lent again later."""


class PeerLost(GuardError):
    """Who lends us limits has ended the connection, or says nothing any more; it puts them back, or its watchdog does.
    The message is a clause."""


class TargetError(AutocapError):
    """The training command could not be started."""


class CommandNotFound(TargetError):
    """No such command."""

    exit_status = 127


class CommandNotExecutable(TargetError):
    """The command is there but cannot be executed."""

    exit_status = 126


class WarmStartRefused(AutocapError):
    """An earlier run was of another command, GPU model or driver branch, or measured nothing."""


class MemoryUnavailable(AutocapError):
    """What earlier runs have shown cannot be read, or kept; the run goes on without."""


class RecurrenceUnavailable(AutocapError):
    """What is kept of a recurring job cannot be read or written, or there is none of that name."""


class SweepStopped(AutocapError):
    """A sweep was interrupted, or its command failed again and again; what was measured is recorded."""


class ResultUnavailable(AutocapError):
    """What came of a tuned block was asked for before the block has ended."""


class RunDirectoryError(AutocapError):
    """A run directory cannot be created, written or read."""


class ExporterError(AutocapError):
    """The Prometheus exporter lacks its package, or cannot listen where it was told to."""


class TrackerUnavailable(AutocapError):
    """What --log-to names lacks its package, cannot be started, or has failed; of a run that goes on, only its logging
    has ended."""


class StrategyError(AutocapError):
    """A strategy asked for a cap off its grid, or recommended one it never measured."""
