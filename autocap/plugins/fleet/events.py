"""What is announced of a budget: how it began, who came and went, and who was given what."""

from autocap.events.base import PluginEvent, event
from autocap.records import GpuInfo


@event("budget_started", begins="budget")
class BudgetStarted(PluginEvent):
    """The first event of a budget's record. started_at: ISO 8601 with offset. gpus: those whose limits it sets;
    original_w: found there. node: the source of the machine's power, `None` where only the GPUs count. openadr: the
    URL of a VTN whose events lower it. resumed: an earlier manager of it was killed."""

    autocap_version: str
    started_at: str
    pid: int
    budget_w: float
    policy: str
    gpus: tuple[GpuInfo, ...]
    original_w: tuple[float | None, ...]
    emulated: bool = False
    driver: str | None = None
    node: str | None = None
    schedule: str | None = None
    openadr: str | None = None
    resumed: bool = False


@event("budget_changed")
class BudgetChanged(PluginEvent):
    """From now on there are so many watts, shared by that policy. why: who said so."""

    budget_w: float
    policy: str
    why: str


@event("budget_reserved")
class BudgetReserved(PluginEvent):
    """What is kept for what is no job, watts."""

    reserved_w: float


@event("job_joined")
class JobJoined(PluginEvent):
    """A job has come, or another one sets its caps from now on. uuids: its devices."""

    name: str
    uuids: tuple[str, ...]
    pid: int | None
    tuned: bool


@event("job_weighed")
class JobWeighed(PluginEvent):
    """A job counts so much from now on where the budget is shared. why: who said so."""

    name: str
    weight: float
    why: str


TUNER_CAME = "a tuner has come"  # why a job leaves that is tuned from now on, and comes anew


@event("job_left")
class JobLeft(PluginEvent):
    """It takes nothing of the budget any more."""

    name: str
    why: str


@event("cap_granted")
class CapGranted(PluginEvent):
    """Each device of a job, or one that nobody uses, may have so much, watts; its tuner may hold less."""

    name: str
    cap_w: float


@event("cap_held")
class CapHeld(PluginEvent):
    """The cap that is in force at a job's devices, watts, the lowest of them; and the slowdown that its curve has
    there,
    with its standard error."""

    name: str
    cap_w: float
    slowdown: float
    slowdown_stderr: float


@event("cap_lowered")
class CapLowered(PluginEvent):
    """The lower caps of an order were read back, and no more than they allow is drawn; seconds since it was given."""

    name: str
    cap_w: float
    after_s: float


@event("budget_short")
class BudgetShort(PluginEvent):
    """Even the lowest caps exceed the budget, by so many watts; 0 once they do not any more. pause: jobs that would
    have to be paused."""

    short_w: float
    pause: tuple[str, ...]
