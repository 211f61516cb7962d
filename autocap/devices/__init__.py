"""The kinds of devices that autocap knows, and where each of them is found.

A kind is a module that offers

    open_source(config, clock, check, owner_uid) -> DeviceSource    the devices of a job that is to be tuned
    limits_from_outside(job) -> LimitPort                           the way to their limits from another process
    knob_from_outside(name, job) -> KnobPort                        the same to another knob, where they offer any
    check_argument(text)                                            optional: what may stand behind `--device KIND:`

The watchdog and `autocap restore` use the second and the third: they meet a device whose controller is gone.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, cast

from autocap.devices.base import CheckCaps, DeviceSource, KnobPort, LimitPort
from autocap.devices.plugged import PluggedSource, as_limits, as_port
from autocap.errors import DeviceUnavailable, UsageError
from autocap.job import registry
from autocap.job.processes import ProcessId
from autocap.knobs import POWER_LIMIT
from autocap.text import did_you_mean

if TYPE_CHECKING:  # the watchdog has no use for them
    from autocap.clock import Clock
    from autocap.config import RunConfig
    from autocap.devices.inventory import Inventory

_GROUP = "devices"
_AUTO = "auto"  # NVML, where it is there


def check_name(name: str) -> None:
    """Raises UsageError where --device NAME is no kind that there is, or has an argument that its kind does not take,
    and DeviceUnavailable where the kind's module fails."""
    kind, colon, argument = name.partition(":")
    ours = registry.ours(_GROUP)
    if name in (_AUTO, *ours):
        return
    plugged = registry.plugged_in(_GROUP)
    if name in plugged:
        return
    if colon and kind in (ours | plugged):
        check = getattr(_module(kind), "check_argument", None)
        if check is not None:
            check(argument)
            return
    kinds = ", ".join([_AUTO, "nvml", "rapl", "emulated[:PROFILE]", *sorted(plugged)])
    meant = did_you_mean(kind, [_AUTO, *ours, *plugged])
    raise UsageError(f"unknown device '{name}'{meant}; choose one of {kinds}")


def open_source(config: "RunConfig", clock: "Clock", check: CheckCaps, owner_uid: int | None = None) -> DeviceSource:
    """The source of the devices that --device names. check: refuses caps that they do not take.

    owner_uid: whose every process must be that a device acts on, as for a job that is not our child; `None` for our
    child. Raises DeviceUnavailable where there is no device of the kind, and DeviceError for caps that it does not
    take.
    """
    kind = kind_of(config.device)
    module = _module(kind)
    if not hasattr(module, "open_source"):
        raise DeviceUnavailable(f"devices of kind '{kind}' cannot be tuned: {module.__name__} has no open_source")
    source: DeviceSource = module.open_source(config, clock, check, owner_uid)
    return source if kind in registry.ours(_GROUP) else PluggedSource(source)


def kind_of(name: str) -> str:
    """Of the devices that --device names."""
    kind = name.partition(":")[0]
    return "nvml" if kind == _AUTO else kind


def lendable() -> "dict[str, Inventory]":
    """All devices of this machine whose limits a helper may lend, by kind: none that another package has added."""
    return {kind: registry.load("inventories", kind)() for kind in registry.ours("inventories")}


def inventory_of(kind: str) -> "Inventory | None":
    """All devices of a kind; `None` where it lists none, as those that another package has added need not."""
    if kind not in registry.ours("inventories") and kind not in registry.plugged_in("inventories"):
        return None
    made: Inventory = registry.load("inventories", kind)()
    return made


def outside_limits(kind: str, job: ProcessId | None, knob: str = POWER_LIMIT.name) -> LimitPort:
    """The limits of a device of that kind, as seen from a process that does not run it. Raises DeviceUnavailable.

    kind: as a journal entry has it, where a GPU whose limit zeusd sets is `zeusd:ADDRESS`. knob: another one, whose
    values the limits are.
    """
    if knob != POWER_LIMIT.name:
        return as_limits(_knob_from_outside(kind, job, knob))
    service, colon, address = kind.partition(":")
    if colon and service == "zeusd":
        return cast(LimitPort, import_module("autocap.devices.nvml.zeusd").limits_at(address))
    return as_port(_module(kind).limits_from_outside(job))


def _knob_from_outside(kind: str, job: ProcessId | None, knob: str) -> KnobPort:
    module = _module(kind)
    if not hasattr(module, "knob_from_outside"):
        raise DeviceUnavailable(
            f"nobody could put back {knob} of devices of kind '{kind}' after a kill: {module.__name__} has no "
            "knob_from_outside"
        )
    port: KnobPort = module.knob_from_outside(knob, job)
    return port


def prepare(kind: str) -> None:
    """Import what `outside_limits` needs for devices of a kind, and touch none. Raises DeviceUnavailable."""
    _module(kind)


def _module(kind: str) -> ModuleType:
    try:
        name = registry.where(_GROUP, kind)
    except KeyError:
        raise DeviceUnavailable(f"devices of kind '{kind}' are not known to this version of autocap") from None
    try:
        return import_module(name)
    except Exception as error:  # a plug-in's module may raise anything while it is imported
        raise DeviceUnavailable(f"devices of kind '{kind}' cannot be used: {type(error).__name__}: {error}") from error
