"""The sentences of `autocap doctor`, from what was seen of devices and services. What is not known is never called
good."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from autocap.cli.device_report import Setter
from autocap.devices.inventory import DescribedDevice
from autocap.devices.model import WINDOWS_S, sensor_of
from autocap.devices.nvml.card import PowerQuery
from autocap.devices.nvml.checkup import GpuFacts, Watch
from autocap.devices.nvml.probe import SensorProbe
from autocap.devices.nvml.state import WITHOUT_ROOT
from autocap.errors import AutocapError
from autocap.limits.helper.protocol import Offer

Verdict = Literal["ok", "note", "trouble"]
_SLOW_S = 0.5  # between two readings
_POLLS_AN_UPDATE = 2.5  # at least, where the time between fresh readings is seen
_HELD_W = 0.5  # less than is requested
_READINGS = {  # whether the counter shows them to be means
    True: "by the energy counter these are means over about a second",
    False: "by the energy counter these are no means over a second",
    None: "what these average over did not show, as happens while power hardly changes",
}
_USAGE = {  # against other readings
    True: "shows the mean of these over about a second",
    False: "moves as these do",
    None: "did not show whether it lags, as happens while power hardly changes",
}
KERNEL_LOG = "look at the kernel log (`dmesg`, Xid)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """area: what it is about. follows: what it means for tuning. remedy: what to do, or to type."""

    area: str
    verdict: Verdict
    text: str
    follows: str | None = None
    remedy: str | None = None


def ok(area: str, text: str, follows: str | None = None) -> Finding:
    """What is as it should be."""
    return Finding(area=area, verdict="ok", text=text, follows=follows)


def note(area: str, text: str, follows: str | None = None, remedy: str | None = None) -> Finding:
    """What is worth knowing, or not known."""
    return Finding(area=area, verdict="note", text=text, follows=follows, remedy=remedy)


def trouble(area: str, text: str, follows: str | None = None, remedy: str | None = None) -> Finding:
    """What keeps a device from being tuned."""
    return Finding(area=area, verdict="trouble", text=text, follows=follows, remedy=remedy)


def parted(error: Exception | str) -> tuple[str, str | None]:
    """What a message says, and, behind its semicolon, what to do."""
    said = str(error) if isinstance(error, AutocapError | str) else f"{type(error).__name__}: {error}"
    text, _, remedy = said.partition("; ")
    return text, remedy or None


def of_limit(area: str, one: DescribedDevice, setter: Setter, gpu: GpuFacts | None) -> Iterator[Finding]:
    """Whether the limit of a device can be set, and whether it holds. gpu: `None` of a CPU package, which is seldom
    what is to be tuned."""
    device, cap_range = one.device, one.device.cap_range
    held = "no limit to be read" if device.requested_w is None else f"a limit of {device.requested_w:g} W"
    if cap_range is not None:
        default = "" if device.default_w is None else f" (default {device.default_w:g} W)"
        held += f" out of {cap_range.min_w:g} to {cap_range.max_w:g} W{default}"
    text = f"{device.name} has {held}"
    if setter.settable is True:
        yield ok(area, f"{text}, which, as far as that shows untried, can be set; {setter.why}")
    elif setter.settable == "unknown":
        yield note(area, f"{text}, of which it is not known whether it can be set: {setter.why}")
    else:
        why, remedy = parted(setter.why)
        if remedy is None and why.endswith(f": {WITHOUT_ROOT}"):
            why, remedy = why.removesuffix(f": {WITHOUT_ROOT}"), WITHOUT_ROOT
        if gpu is not None and gpu.gpu.mig:
            remedy = f"`sudo nvidia-smi -i {device.index} -mig 0` while nobody uses it, or pass --observe"
        text = why if setter.why == device.obstacle else f"{text}, which cannot be set: {why}"
        if gpu is None:
            yield note(area, text, f"`--device {device.kind}` can only observe it", remedy)
        else:
            yield trouble(area, text, "`autocap run` can only observe it", remedy)
    requested_w, enforced_w = device.requested_w, device.enforced_w
    if requested_w is not None and enforced_w is not None and enforced_w < requested_w - _HELD_W:
        text = f"{enforced_w:g} W is enforced, although {requested_w:g} W is requested"
        yield note(area, text, "something else limits it, and caps above that change nothing")


def of_state(area: str, gpu: GpuFacts) -> Iterator[Finding]:
    """Persistence, MIG, and who computes on a GPU."""
    mig = {True: "MIG splits it", False: "MIG does not split it", None: "it does not tell whether MIG splits it"}[
        gpu.gpu.mig
    ]
    lost = "a limit is lost when nobody uses the GPU"
    match gpu.gpu.persistence:
        case True:
            yield (ok if gpu.gpu.mig is False else note)(area, f"persistence mode is on; {mig}")
        case False:
            yield note(area, f"persistence mode is off; {mig}", lost, f"`sudo nvidia-smi -i {gpu.gpu.index} -pm 1`")
        case None:
            yield note(
                area,
                f"it does not tell whether persistence mode is on; {mig}",
                f"where persistence mode is off, {lost}",
            )
    if gpu.computing is None:
        follows = "whether a job has it to itself is not known, nor perhaps which GPUs a job uses"
        yield note(area, "the driver does not tell who computes on it", follows, "name a job's GPUs with --gpus")
    elif not gpu.computing:
        yield ok(area, "the driver lists nobody who computes on it now")
    else:
        computing = "1 process that computes" if gpu.computing == 1 else f"{gpu.computing} processes that compute"
        yield ok(area, f"the driver lists {computing} on it now", "a job is tuned where all of them are its own")


def of_sensors(area: str, name: str, watch: Watch, probe: SensorProbe) -> Iterator[Finding]:
    """What a GPU's sensors did while they were watched. name: the card's."""
    yield from _power(area, name, watch, probe)
    yield _counter(area, probe)


def _power(area: str, name: str, watch: Watch, probe: SensorProbe) -> Iterator[Finding]:
    powers = [poll.power_w for poll in watch.polls if poll.power_w is not None]
    update_s, source, seen_s = probe.update_s, probe.source, watch.polls[-1].t_s - watch.begun_s
    is_known = update_s is not None and update_s > _POLLS_AN_UPDATE * watch.usual_s
    if is_known and update_s is not None:
        every = f"fresh every {1000 * update_s:.0f} ms"
    elif min(powers) == max(powers):
        every = f"which stayed at {powers[0]:.0f} W for {seen_s:.0f} s, so how often it is fresh did not show"
    else:
        every = f"of which {len(powers)} readings within {seen_s:.0f} s do not show how often it is fresh"
    is_average, follows, sensor = watch.is_average(), None, sensor_of(name)
    if source is PowerQuery.MODULE:
        follows = "that is the power of the whole module, CPU included"
    elif source is PowerQuery.USAGE:
        follows = (
            "it is taken for a mean over a second: what is read within two seconds of a change of the cap is left out"
        )
    elif is_average:
        follows = "a period that they cannot show is looked for in the energy counter"
    published = "" if sensor is None else f" (published of such cards: {1000 * WINDOWS_S[sensor]:.0f} ms)"
    published = "" if source is PowerQuery.USAGE or is_average else published
    article = "" if source is PowerQuery.USAGE else "the "
    counts = probe.has_counter and probe.counter_trouble is None
    averages = _READINGS[is_average] if counts else "without an energy counter what these average over does not show"
    text = f"power is read from {article}{source.value}, {every}; {averages}{published}"
    yield (ok if is_known and follows is None else note)(area, text, follows)
    if watch.slowest_s > _SLOW_S:
        text = f"up to {watch.slowest_s:.1f} s passed between two readings: the driver is slow to answer, or we were"
        yield note(area, text, "with fewer readings measurements take longer")
    if source is not PowerQuery.USAGE and any(one is not None for one in watch.usage_w):
        lags = watch.usage_is_average()
        text = f"{PowerQuery.USAGE.value}, beside these, {_USAGE[lags]}"
        yield (note if lags is None else ok)(area, text, "it is not needed")


def _counter(area: str, probe: SensorProbe) -> Finding:
    added = "energy is added up from power readings"
    if not probe.has_counter:
        return note(area, "no energy counter can be read", added)
    if probe.counter_trouble is not None:
        return note(area, f"the energy counter {probe.counter_trouble}", f"it is not used: {added}")
    if probe.counter_j is None or probe.integrated_j is None:
        text = "the energy counter moved too little to be compared with the power readings"
        return note(area, text, "whether it counts everything is not known")
    readings = f"{probe.counter_j:.0f} J, where they add up to {probe.integrated_j:.0f} J"
    return ok(area, f"the energy counter agrees with the power readings: {readings}")


def of_helper(path: str, absent: Setter | None, offers: Mapping[str, Offer | None]) -> Finding:
    """offers: by what the devices here are called. absent: why there are none at all."""
    if absent is not None:
        text, remedy = parted(absent.why)
        follows = None if absent.there else "without it only who has the rights sets limits here"
        return note("helper", text, follows, remedy)
    lent = [area for area, offer in offers.items() if offer is not None and offer.allowed]
    whys = dict.fromkeys(offer.why for offer in offers.values() if offer is not None and not offer.allowed)
    if lent:
        return ok("helper", "; ".join([f"the helper at {path} lends us {', '.join(lent)}", *whys]))
    return note("helper", "; ".join([f"the helper at {path} lends us nothing that is here", *whys]))


def of_zeusd(setters: Sequence[Sequence[Setter]]) -> Iterator[Finding]:
    """Where there is one. setters: of each device."""
    said = {one.why: one for who in setters for one in who if one.name == "zeusd" and one.there}
    for why, one in said.items():
        yield ok("zeusd", why) if one.settable is True else note("zeusd", *_without_follows(why))


def _without_follows(why: str) -> tuple[str, None, str | None]:
    text, remedy = parted(why)
    return text, None, remedy


def of_others(setters: Sequence[tuple[str, int]], *, hidden: bool) -> Iterator[Finding]:
    """Who else may set limits. hidden: not all processes of the machine may be seen."""
    for name, pid in setters:
        text = f"{name} runs here (PID {pid}), which can set power limits"
        follows = "a limit that somebody else changes is theirs: a tuning that meets one ends"
        yield note("others", text, follows, "see that it sets none while a job is tuned")
    if not setters and hidden:
        text = "no program is seen that is known to set power limits, but not all of the machine's may show here"
        yield note("others", text)
    elif not setters:
        yield ok("others", "no other program is seen that is known to set power limits")


def of_budget(budget: Mapping[str, Any]) -> Finding:
    """A power budget of this machine, as its inventory says."""
    held = len(budget["gpus"])
    text = f"a power budget of {budget['watts']:g} W runs here (PID {budget['pid']})"
    return ok("budget", text, f"it sets the limits of {held} GPU{'s' * (held > 1)}, and gives jobs there their caps")
