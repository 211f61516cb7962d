"""Who sets the limits of a device: we ourselves, the helper or zeusd, and with which guardian. Nothing is set here."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from autocap import events
from autocap.config import VIA, RunConfig
from autocap.devices import kind_of
from autocap.devices.base import LimitVerifier, Tunable
from autocap.devices.plugged import port_of
from autocap.errors import LimitNotPermitted, LimitWithheld, SetterAbsent, SetterDenied, SetterUnavailable
from autocap.job import registry
from autocap.job.keeper import keeper
from autocap.job.processes import ProcessId
from autocap.knobs import Knob
from autocap.limits import Guardian
from autocap.limits.guard import LimitGuard
from autocap.limits.helper.client import RemoteGuardian, kept
from autocap.limits.helper.connection import connect, offers_at
from autocap.limits.helper.protocol import Offer, socket_path
from autocap.records import CapRange, GpuInfo
from autocap.session.roles import Budget

NewGuardian = Callable[..., LimitGuard]  # from what `Guardian` takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Actuation:
    """How the limits of some devices are set.

    name, where, reason: as in events.SetterChosen. gpus: the devices, with the caps that may be set there. guardian:
    makes their guardian; the argument is the job. passed_over: why nobody sets them for us, where we have to try it
    ourselves without the right to; sentences. withheld: one of these may set them later. alone: nobody else could set
    them. budget: which holds them, and may lower the caps at any moment. of_nodes: who does on each of several nodes,
    with any time.
    """

    name: str
    gpus: tuple[GpuInfo, ...]
    guardian: Callable[[ProcessId | None], LimitGuard]
    where: str = ""
    reason: str = ""
    passed_over: str = ""
    withheld: bool = False
    alone: bool = False
    budget: Budget | None = None
    of_nodes: tuple[events.SetterChosen, ...] = ()

    def chosen(self, t_s: float) -> tuple[events.SetterChosen, ...]:
        """As the run log has it, of each node; nothing where there was no choice."""
        if self.alone:
            return ()
        here = events.SetterChosen(t_s=t_s, name=self.name, where=self.where, reason=self.reason)
        return tuple(replace(one, t_s=t_s) for one in self.of_nodes) or (here,)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Inside, a limit that is not permitted is refused with all reasons."""
        try:
            yield
        except LimitNotPermitted as error:
            if not self.passed_over:
                raise
            if self.withheld:  # it is no way round that to be root
                raise LimitWithheld(self.passed_over) from error
            raise LimitNotPermitted(f"{self.passed_over}; {error}") from error


def require_setter(config: RunConfig) -> None:
    """Before there is a job: raises SetterUnavailable where what --via names is not there at all."""
    if config.tune.observe or kind_of(config.device) not in registry.names("inventories"):
        return
    if config.via == "helper":
        offers_at(socket_path())
    elif config.via == "zeusd":
        from autocap.devices.nvml.zeusd import Zeusd  # with HTTP, which most sessions do not need

        Zeusd.usual().require({})


def actuation(via: str, device: Tunable, new_guardian: NewGuardian = Guardian) -> Actuation:
    """How to set the limits of a device. via: as --via has it; what is emulated is always set directly, and
    what a power budget holds is set by its manager, whatever --via says.

    Raises SetterUnavailable where what it names would not set them; `auto` tries it ourselves then.
    """
    root, verifier = None if device.emulated else keeper(), device.verifier()
    direct = Actuation(
        name="direct",
        gpus=device.gpus,
        guardian=lambda job: (
            new_guardian(kind=device.kind, gpus=device.gpus, limits=device.limits(), job=job)
            if root is None
            else kept(root, device, device.gpus)
        ),
        alone=verifier is None,
    )
    if verifier is None:
        return direct
    for name in registry.ours("holders"):
        held: Actuation | None = registry.load("holders", name).actuation(device)
        if held is not None:
            return held
    if via == "direct":
        return direct
    if via == "helper":
        return _helped(device.gpus, verifier)
    if via == "zeusd":
        return _by_zeusd(device, new_guardian)
    assert via == VIA
    denial = device.denial if root is None else root.denial()
    if denial is None:
        return direct
    refusals, withheld = [], False
    for way in (partial(_helped, device.gpus, verifier), partial(_by_zeusd, device, new_guardian)):
        try:
            return replace(way(), reason=denial)
        except SetterAbsent:  # of which the refusal itself has the remedy
            pass
        except SetterUnavailable as error:
            refusals.append(str(error))
            if isinstance(error, SetterDenied):  # what is denied here is not had elsewhere behind its back
                withheld = True
                break
    return replace(direct, passed_over="; ".join(refusals), withheld=withheld)


def turning(device: Tunable, knob: Knob, new_guardian: NewGuardian) -> Actuation:
    """How another knob than the power limit is set: by ourselves, as the helper, zeusd and power budgets set power
    limits alone. Raises SetterUnavailable where a budget holds a device."""
    for name in registry.ours("holders") if device.verifier() is not None else ():
        if registry.load("holders", name).actuation(device) is not None:
            raise SetterUnavailable(
                f"a power budget holds {device.gpus[0].where} and sets its power limit alone; drop --knob"
            )
    return Actuation(
        name="direct",
        gpus=device.gpus,
        guardian=lambda job: new_guardian(
            kind=device.kind, gpus=device.gpus, limits=port_of(device, knob), job=job, knob=knob
        ),
        alone=True,
    )


def _helped(found: tuple[GpuInfo, ...], verifier: LimitVerifier) -> Actuation:
    path = socket_path()
    offers = offers_at(path)
    gpus = tuple(_as_offered(gpu, offers.get(gpu.uuid)) for gpu in found)
    return Actuation(
        name="helper",
        where=str(path),
        gpus=gpus,
        guardian=lambda job: RemoteGuardian(gpus=gpus, verifier=verifier, connect=partial(connect, path)),
    )


def _as_offered(gpu: GpuInfo, offer: Offer | None) -> GpuInfo:
    """A device with the caps that the helper would set there. Raises SetterUnavailable where it would set none."""
    if offer is None:
        raise SetterUnavailable(f"the helper does not have {gpu.where} ({gpu.uuid})")
    if not offer.allowed:
        raise SetterDenied(f"the helper does not lend {gpu.where}: {offer.why}")
    own = gpu.cap_range
    min_w = own.min_w if offer.min_w is None else max(own.min_w, offer.min_w)
    max_w = own.max_w if offer.max_w is None else min(own.max_w, offer.max_w)
    if min_w > max_w:
        raise SetterDenied(
            f"the helper lets no cap be set on {gpu.where}: at least {min_w:g} W and at most {max_w:g} W are allowed"
        )
    default_w = min(max(own.default_w, min_w), max_w)
    return replace(gpu, cap_range=CapRange(min_w=min_w, max_w=max_w, default_w=default_w))


def _by_zeusd(device: Tunable, new_guardian: NewGuardian) -> Actuation:
    from autocap.devices.nvml import zeusd
    from autocap.devices.nvml.device import NvmlDevice

    if not isinstance(device, NvmlDevice):
        raise SetterUnavailable(f"zeusd sets no limit of a {device.gpus[0].noun}, only of GPUs")
    service = zeusd.Zeusd.usual()
    service.require(device.pci_addresses())
    kind = f"{zeusd.KIND}:{service.address}"  # by which the watchdog and `autocap restore` find the way
    return Actuation(
        name="zeusd",
        where=service.address,
        gpus=device.gpus,
        guardian=lambda job: new_guardian(kind=kind, gpus=device.gpus, limits=device.limits(service), job=job),
    )
