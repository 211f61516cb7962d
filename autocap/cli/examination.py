"""What `autocap doctor` looks at. Nothing here sets, starts or writes anything.

Each question has a thread of its own, because a driver or a service may not answer: whatever has not done so in its
time is said to be silent.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from autocap.cli import findings
from autocap.cli.device_report import Budget, Setter, Setters, best, budget_here
from autocap.cli.findings import KERNEL_LOG, Finding, note, ok, parted, trouble
from autocap.cli.options import observing
from autocap.clock import Clock, MonotonicClock
from autocap.config import OBSERVE_VARIABLE
from autocap.devices.inventory import DescribedDevice
from autocap.devices.nvml.checkup import GpuFacts, Watch, facts
from autocap.devices.nvml.library import Library, open_library
from autocap.devices.permission import Settable, denial, own_privileges, settable
from autocap.errors import AutocapError, GuardError
from autocap.job import registry
from autocap.job.own_command import helper_advice, sudo_advice, sudo_command
from autocap.job.processes import likely_setters
from autocap.limits.recovery import Fate, Settled, settle

T = TypeVar("T")
WATCH_S = 10.0  # of the sensors
_OPENED_S, _FACTS_S, _WITHIN_S = 4.0, 6.0, 11.3  # by when there is to be: the driver; what is only asked for; all
_SPARE_S = 0.5  # for a reading that has begun when the watch ends
_CONTAINER = (Path("/.dockerenv"), Path("/run/.containerenv"))
_FIRST_NAMESPACE = 0xEFFFFFFC  # the inode of the machine's own PID namespace: PROC_PID_INIT_INO of the kernel
_EMULATED = "`autocap run --device emulated -- CMD` plays a GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """driver: its version. tunes: whether `autocap run` would tune anything, started as we were. conclusion: that, and
    how."""

    findings: tuple[Finding, ...]
    driver: str | None
    tunes: bool
    conclusion: str


class Begin(Protocol):
    """Begins some work: `in_a_thread`, or `at_once`."""

    def __call__(self, work: Callable[[], T], /) -> "Future[T]": ...


def in_a_thread(work: Callable[[], T]) -> "Future[T]":
    """Nobody waits for the thread, so it may hang for good. Where no thread is to be had, at once."""
    found = Future[T]()
    try:
        threading.Thread(target=_do, args=(work, found), daemon=True).start()
    except RuntimeError:
        _do(work, found)
    return found


def at_once(work: Callable[[], T]) -> "Future[T]":
    """For what lives in virtual time."""
    found = Future[T]()
    _do(work, found)
    return found


def _do(work: Callable[[], T], found: "Future[T]") -> None:
    try:
        found.set_result(work())
    except Exception as error:  # noqa: BLE001 - whoever asks for the result meets it
        found.set_exception(error)


@dataclass(slots=True, kw_only=True)
class _Device:
    """What is known of one in the end. setter: who sets its limit, or why nobody. gpu: `None` of a CPU package. silent:
    nothing can be measured there. taken: by another run. said: of its sensors."""

    area: str
    one: DescribedDevice
    setter: Setter
    gpu: GpuFacts | None = None
    silent: bool = False
    taken: bool = False
    said: list[Finding] = field(default_factory=list)


def examine(
    begin: Begin = in_a_thread,
    open_nvml: Callable[[], Library] = open_library,
    clock: Clock | None = None,
    watch_s: float = WATCH_S,
) -> Examination:
    """Look at everything; it takes a little longer than watch_s, and less than 15 s whatever hangs.

    begin, open_nvml, clock: tests have others. clock: of the readings.
    """
    begun_s = time.monotonic()
    facts_by_s, by_s = begun_s + _FACTS_S, begun_s + _WITHIN_S
    clock = MonotonicClock() if clock is None else clock
    setters, budget, left = begin(Setters), begin(budget_here), begin(partial(settle, observe=True))
    others, calls = begin(_others), begin(_calls)
    kinds = [kind for kind in registry.names("inventories") if kind != "nvml"]
    packages = [begin(partial(_described, kind)) for kind in kinds]
    opened = begin(partial(_opened, open_nvml))
    found = _rights()
    driver, looks = None, list[tuple[Future[GpuFacts], Watch, Future[None]]]()
    try:
        library, driver, count = opened.result(_left_s(begun_s + _OPENED_S))
    except Exception as error:  # noqa: BLE001 - a driver may fail in any way
        found.append(_no_driver(error))
    else:
        found.append(_driver(driver, count))
        for index in range(count):
            asked, watch = begin(partial(facts, library, index, driver)), Watch()
            run = partial(_watch, watch, library, asked, clock, watch_s, by_s - _SPARE_S)
            looks.append((asked, watch, begin(run)))
    devices, of_devices, watched = list[_Device](), list[Finding](), list[tuple[_Device, Watch, Future[None]]]()
    for index, (asked, watch, look) in enumerate(looks):
        try:
            devices.append(_gpu(index, asked.result(_left_s(facts_by_s))))
            watched.append((devices[-1], watch, look))
        except Exception as error:  # noqa: BLE001 - as above
            of_devices.append(_no_gpu(f"GPU {index}", error))
    for kind, several in zip(kinds, packages, strict=True):
        try:
            there, missing = several.result(_left_s(facts_by_s))
        except Exception as error:  # noqa: BLE001 - somebody else's code as well
            there, missing = [], (_silence(f"what there is for --device {kind}", error),)
        devices += [_Device(area=area, one=one, setter=_direct(one)) for area, one in there]
        follows = f"nothing is tuned there with --device {kind}"
        of_devices += [note(kind, text, follows, remedy) for text, remedy in map(parted, missing)]
    services = begin(partial(_setters_of, setters, budget, devices))
    for device, watch, look in watched:
        _sensors(device, watch, look, by_s)
    said = _answer("helper", services, by_s) + _left_behind(left, devices, by_s)
    for device in devices:
        if not device.silent:
            of_devices += findings.of_limit(device.area, device.one, device.setter, device.gpu)
            of_devices += [] if device.gpu is None else findings.of_state(device.area, device.gpu)
        of_devices += device.said
    order = [f"GPU {index}" for index in range(len(looks))]
    found += sorted(of_devices, key=lambda one: order.index(one.area) if one.area in order else len(order))
    found += [*said, *_answer("others", others, by_s), *_answer("calls", calls, by_s)]
    if driver is not None and all(look.done() for *_, look in looks):
        library.close()
    tunes, conclusion = _conclusion(devices)
    names = {device.one.device.uuid: device.area for device in devices}
    return Examination(
        findings=tuple(_called(one, names) for one in found), driver=driver, tunes=tunes, conclusion=conclusion
    )


def _called(one: Finding, names: Mapping[str, str]) -> Finding:
    """With devices by their numbers in place of their UUIDs."""
    text = one.text
    for uuid, name in names.items():
        text = text.replace(uuid, name)
    return replace(one, text=text)


def _left_s(by_s: float) -> float:
    return max(0.0, by_s - time.monotonic())


def _silence(what: str, error: Exception) -> str:
    """Why something is not known."""
    if isinstance(error, TimeoutError):
        return f"{what} is not known, as nothing has answered in time"
    return str(error) if isinstance(error, AutocapError) else f"{what} is not known: {type(error).__name__}: {error}"


def _answer(area: str, asked: "Future[list[Finding]]", by_s: float) -> list[Finding]:
    try:
        return asked.result(_left_s(by_s))
    except Exception as error:  # noqa: BLE001 - the other areas are to be shown all the same
        return [note(area, _silence("this", error))]


# Rights.


def in_container() -> bool:
    """Whether this is one, as far as that shows."""
    return _in_other_namespace() or any(path.exists() for path in _CONTAINER)


def _in_other_namespace() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino != _FIRST_NAMESPACE
    except OSError:
        return False


def _rights() -> list[Finding]:
    who = ("root" if os.geteuid() == 0 else "not root") + (" in a container" if in_container() else "")
    try:
        why = denial(own_privileges())
    except (OSError, ValueError):
        found = [note("rights", f"we are {who}, and /proc does not tell which rights we have")]
    else:
        if why is None:
            found = [ok("rights", f"we are {who}, with CAP_SYS_ADMIN, which the driver asks for where a limit is set")]
        else:
            follows = "limits of GPUs are set by the helper, by zeusd or under a budget, or not at all"
            found = [note("rights", f"we are {who}, and {why}", follows, _more_rights())]
    if observing():
        text = f"{OBSERVE_VARIABLE} forbids every command to set anything"
        found.append(trouble("rights", text, "`autocap run` only measures", f"`unset {OBSERVE_VARIABLE}`"))
    return found


def _more_rights() -> str:
    if in_container():
        as_root = " as root" if os.geteuid() else ""
        return f"start the container{as_root} with --cap-add SYS_ADMIN, or {helper_advice()}"
    return f"{sudo_advice()}, or {helper_advice()}" if os.geteuid() else helper_advice()


# The driver and its GPUs.


def _opened(open_nvml: Callable[[], Library]) -> tuple[Library, str, int]:
    library = open_nvml()
    return library, library.driver(), library.count()


def _no_driver(error: Exception) -> Finding:
    if isinstance(error, TimeoutError):
        text = f"the NVIDIA driver has not told within {_OPENED_S:g} s which GPUs there are"
        return trouble("driver", text, "no GPU is tuned while it is so slow", KERNEL_LOG)
    text, remedy = parted(error)
    return trouble("driver", text, f"no GPU can be tuned here; {_EMULATED}", remedy)


def _driver(version: str, count: int) -> Finding:
    text = f"NVIDIA driver {version} shows {count or 'no'} GPU{'s' * (count > 1)} here"
    if count:
        return ok("driver", text)
    remedy = "give the container its GPUs (`--gpus all`)" if in_container() else "`nvidia-smi -L`, and `lspci`"
    return trouble("driver", text, f"no GPU can be tuned here; {_EMULATED}", remedy)


def _gpu(index: int, found: GpuFacts) -> _Device:
    try:
        direct = settable(found.gpu.obstacle, own_privileges())
    except (OSError, ValueError):
        direct = Settable(answer="unknown", why="/proc does not tell which rights we have; `autocap run` will tell")
    one = DescribedDevice(device=found.gpu, direct=direct)
    return _Device(area=f"GPU {index}", one=one, setter=_direct(one), gpu=found)


def _no_gpu(area: str, error: Exception) -> Finding:
    if isinstance(error, TimeoutError):
        text = f"the driver has not told within {_FACTS_S:g} s what {area} is"
        return trouble(area, text, "it is not tuned while the driver is so slow", KERNEL_LOG)
    text, remedy = parted(error)
    return trouble(area, text, "it cannot be tuned", remedy)


def _watch(
    watch: Watch, library: Library, asked: "Future[GpuFacts]", clock: Clock, watch_s: float, until_s: float
) -> None:
    gpu = asked.result().gpu
    watch.run(library, gpu, clock, min(watch_s, _left_s(until_s)))


def _sensors(device: _Device, watch: Watch, look: "Future[None]", by_s: float) -> None:
    """What they have shown, also where the watch has not ended."""
    failure = None
    try:
        look.result(_left_s(by_s))
    except TimeoutError:
        pass
    except Exception as error:  # noqa: BLE001 - a driver may fail in any way
        failure = parted(error)
    seen = watch.so_far()
    probe = seen.probe()
    if failure is None and (probe is None or all(poll.power_w is None for poll in seen.polls)):
        failure = "no power reading came while it was watched", KERNEL_LOG
    if failure is not None or probe is None:
        device.silent = True
        text, remedy = failure or ("", None)
        device.said = [trouble(device.area, text, "nothing can be measured there", remedy)]
    else:
        device.said = [*findings.of_sensors(device.area, device.one.device.name, seen, probe)]


# CPU packages, and devices of other kinds.


def _described(kind: str) -> tuple[list[tuple[str, DescribedDevice]], tuple[str, ...]]:
    with registry.load("inventories", kind)() as inventory:
        found = [(f"{one.device.noun} {one.device.index}", one) for one in inventory.described()]
        return found, tuple(inventory.unreadable)


# Who sets limits.


def _direct(one: DescribedDevice) -> Setter:
    return Setter(name="direct", settable=one.direct.answer, why=one.direct.why)


def _setters_of(
    setters: "Future[Setters]", budget: "Future[Budget | None]", devices: Sequence[_Device]
) -> list[Finding]:
    """What is to be said of a budget, the helper and zeusd; notes in each device who sets its limit."""
    said, services, held = list[Finding](), setters.result(), budget.result()
    offers = {device.area: services.offers.get(device.one.device.uuid) for device in devices}
    of_each = []
    for device in devices:
        who, offer = services.of(device.one, held), offers[device.area]
        of_each.append(who)
        device.setter = best(who)
        device.taken |= device.setter.name != "budget" and offer is not None and offer.lent_to is not None
    if held is not None:
        said.append(findings.of_budget(held))
    return [*said, findings.of_helper(str(services.path), services.no_helper, offers), *findings.of_zeusd(of_each)]


def _others() -> list[Finding]:
    hidden = in_container() or not os.access("/proc/1/stat", os.R_OK)  # hidepid
    return [*findings.of_others(likely_setters(), hidden=hidden)]


def _left_behind(asked: "Future[list[Settled]]", devices: Sequence[_Device], by_s: float) -> list[Finding]:
    """By earlier and other runs, as far as our own state directory has them; notes which devices others have."""
    try:
        settled = asked.result(_left_s(by_s))
    except GuardError as error:
        text, remedy = parted(error)
        follows = "nothing is tuned where it cannot be noted what is to be put back"
        return [trouble("state", text, follows, remedy)]
    except Exception as error:  # noqa: BLE001 - the other areas are to be shown all the same
        return [note("state", _silence("what earlier runs have left", error))]
    used = {one.uuid for one in settled if one.outcome is Fate.IN_USE}
    for device in devices:
        device.taken |= device.one.device.uuid in used
    return [
        note("state", one.sentence, "nobody else tunes it until that run ends")
        if one.uuid in used
        else note("state", one.sentence, "an earlier run that was killed has left it", "`autocap restore`")
        for one in settled
    ]


# The kernel.


def _calls() -> list[Finding]:
    from autocap.progress.calls.target import CallsUnavailable
    from autocap.progress.calls.uprobe import Uprobes, call_cost_s

    try:
        call_cost_s(Uprobes(), b"")
    except CallsUnavailable as error:
        text, remedy = parted(error)
        follows = "`attach` counts no backward passes: it takes autocap.step(), or finds iterations in the power"
        return [note("calls", text, follows, remedy)]
    text = "the kernel counts calls of functions, as a try with one of our own has shown"
    return [ok("calls", text, "`attach` can count the backward passes of PyTorch")]


# What follows from all of it.


def _conclusion(devices: Sequence[_Device]) -> tuple[bool, str]:
    """Whether `autocap run` tunes anything, and a sentence."""
    measured = [one for one in devices if not one.silent and one.one.facts.get("trouble") is None]
    if observing():
        return False, f"nothing is tuned here while {OBSERVE_VARIABLE} is set"
    for tunes, answer in ((True, True), (False, "unknown")):
        some = [one for one in measured if one.setter.settable == answer and not one.taken]
        if some:
            said = "; ".join(_tuned(kind, some) for kind in dict.fromkeys(one.one.device.kind for one in some))
            return tunes, f"{said} here" if tunes else f"whether {said} here, only trying tells"
    taken = [one for one in measured if one.taken]
    if taken:
        return False, f"nothing is tuned here until what has {_listed(taken)} now has ended"
    barred = [one for one in measured if one.gpu is not None and one.one.device.obstacle is None]
    if barred and os.geteuid() and not in_container():
        return False, f"nothing is tuned here without root; `{sudo_command('run -- CMD')}` may tune {_listed(barred)}"
    gpus = [one for one in measured if one.gpu is not None]
    if gpus:
        return False, f"nothing can be tuned here; `autocap run --observe -- CMD` measures {_listed(gpus)}"
    return False, f"nothing can be tuned here; {_EMULATED}"


def _tuned(kind: str, devices: Sequence[_Device]) -> str:
    words = f"run{'' if kind == 'nvml' else f' --device {kind}'} -- CMD"
    as_root = os.geteuid() == 0 and "SUDO_UID" in os.environ
    own = [one for one in devices if one.one.device.kind == kind]
    return f"`{sudo_command(words) if as_root else f'autocap {words}'}` tunes {_listed(own)}"


def _listed(devices: Sequence[_Device]) -> str:
    return ", ".join(one.area for one in devices)
