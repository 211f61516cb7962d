"""NVIDIA GPUs as one device: all that one job uses, read together through NVML."""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property

import pynvml

from autocap.clock import Clock
from autocap.devices.base import Notes, Tunable, require_settable
from autocap.devices.model import WINDOWS_S, sensor_of
from autocap.devices.nvml.card import Card, PowerQuery
from autocap.devices.nvml.library import Library, NvmlGpu
from autocap.devices.nvml.limits import HeldLimits, NvmlLimits, Requester
from autocap.devices.nvml.probe import WATCH_S, SensorProbe, probe_sensors
from autocap.devices.nvml.state import NvmlError, offered, opened
from autocap.devices.permission import denial, own_privileges
from autocap.errors import DeviceUnavailable
from autocap.records import CapRange, GpuInfo, Reading, SensorInfo

_UPDATE_S = 0.1  # where power did not move while it was watched: what most drivers do
# What a reading covers cannot be asked. Instant readings cover 10 to 110 ms on the cards that were measured (SC24): the
# short end is assumed, which makes the period detector check for aliases. nvmlDeviceGetPowerUsage is instant on some
# cards and a mean over the last second on others, and nothing tells which: the slow one is assumed.
_INSTANT_WINDOW_S, _USAGE_WINDOW_S = 0.025, 1.0
_ENFORCED_WITHIN_S = 1.0
_HIGH_MINIMUM = 0.6  # of the highest limit: RTX 5090 400 of 600 W, RTX PRO 6000 300 of 600; others a third to a half
_INSTANT_SETTLE_S, _USAGE_SETTLE_S = 0.5, 2.0


class NvmlDevice(Tunable):
    """The GPUs of one job.

    library: stays open as long as this is used, and is closed by whoever opened it. uuids: which GPUs, in the order of
    the readings. clock: stamps the readings. observe: there is no setter, whatever is asked for.

    Watches the sensors for about watch_s seconds first (`probe_sensors`); with 0 takes them for what most are. Raises
    DeviceUnavailable where a GPU is not there or offers no power or limit to read, NvmlError where one is lost.
    """

    kind = "nvml"

    def __init__(
        self, library: Library, uuids: Sequence[str], clock: Clock, *, observe: bool, watch_s: float = WATCH_S
    ) -> None:
        self._library, self._clock, self._observe = library, clock, observe
        inventory = {gpu.uuid: gpu for gpu in library.inventory()}
        self._found = tuple(_find(inventory, uuid, library.unreadable) for uuid in uuids)
        self.driver = self._found[0].driver
        self.gpus = tuple(_info(gpu) for gpu in self._found)
        self._cards = tuple(Card(library, gpu.uuid, f"GPU {gpu.index}", clock) for gpu in self._found)
        self._notes = Notes()
        self._held_since_s: dict[str, float] = {}  # below its requested limit, by what messages call the card
        self.probes = probe_sensors(self._cards, clock, library.pause, watch_s)
        self.sensor = self._apply(self.probes)
        self._note_state()

    @property
    def refusal(self) -> str | None:
        """Why the limits of these GPUs cannot be set, as far as that shows without setting them; else `None`."""
        return next((gpu.obstacle for gpu in self._found if gpu.obstacle is not None), None)

    @cached_property
    def most_hz(self) -> tuple[float | None, ...]:
        """The highest SM clock of each GPU; `None` where it does not say."""
        found: list[float | None] = []
        for gpu in self.gpus:
            mhz = None
            with suppress(NvmlError):
                function, handle = pynvml.nvmlDeviceGetMaxClockInfo, self._library.handle(gpu.uuid)
                mhz = offered(f"reading the highest clock of {gpu.where}", function, handle, pynvml.NVML_CLOCK_SM)
            found.append(1e6 * mhz if mhz else None)
        return tuple(found)

    @property
    def reloads(self) -> int:
        """As Tunable has it."""
        return opened.reloads

    def read(self) -> tuple[Reading, ...]:
        """One reading a GPU. Raises NvmlError when one is lost; whatever else fails is a gap, and a note."""
        return tuple(map(self._read, self._cards))

    def read_each(self) -> tuple[Reading | NvmlError, ...]:
        """The same, with the error in the place of the reading of a GPU that is lost."""
        found: list[Reading | NvmlError] = []
        for card in self._cards:
            try:
                found.append(self._read(card))
            except NvmlError as error:
                found.append(error)
        return tuple(found)

    def _read(self, card: Card) -> Reading:
        believed = card.energy_trace.trouble is None
        reading = card.read()
        if card.power_trace.gap is not None:
            # Kept apart by their first words: how long a sensor is stuck differs each time.
            gap = card.power_trace.gap
            text = f"the power sensor of {card.where} {gap}; such readings are left out, as gaps"
            self._notes.say(f"{card.where} {gap.split(' W')[0]}", text)
        if believed and card.energy_trace.trouble is not None:
            self._notes.say(f"{card.where} counter", _dropped(card))
        self._watch_enforced(card, reading)
        for failure in card.failures():
            self._notes.say(failure, f"{failure}; it is asked again at the next reading")
        return reading

    def notes(self) -> tuple[str, ...]:
        """Sentences on what the user should know; each is returned once."""
        return self._notes.take()

    def limits(self, request: Requester | None = None) -> NvmlLimits:
        """The setter. request: by whom limits are requested, by us through NVML unless given. Raises DeviceError under
        `observe`, where there is none, and LimitRefused (`refusal`) where a GPU takes no limit."""
        require_settable(self.refusal, observe=self._observe)
        return NvmlLimits(self._library, request=request)

    def pci_addresses(self) -> dict[str, str | None]:
        """By what messages call the GPUs; `None` for one that does not say."""
        return {gpu.where: gpu.address for gpu in self._found}

    @property
    def denial(self) -> str | None:
        """Why this process may or might not set limits, by its rights; `None` where nothing speaks against it."""
        return denial(own_privileges())

    def verifier(self) -> HeldLimits:
        """Sees whether limits hold that others request for us. Raises as `limits` does."""
        require_settable(self.refusal, observe=self._observe)
        return HeldLimits(self._library)

    def close(self) -> None:
        """Nothing is held but the library, which is its opener's."""

    def _apply(self, probes: Sequence[SensorProbe]) -> SensorInfo:
        """What the probes found, put to use; the slowest of the GPUs' sensors."""
        for card, probe in zip(self._cards, probes, strict=True):
            card.power_trace.update_s = probe.update_s or _UPDATE_S
            if probe.has_counter:
                card.energy_trace.expect(self._clock.now())
            if probe.counter_trouble is not None:
                card.energy_trace.drop(probe.counter_trouble)
                self._notes.say(f"{card.where} counter", _dropped(card))
            if probe.source is PowerQuery.MODULE:
                self._notes.say(
                    f"{card.where} module", f"{card.where} reports the power of its whole module, CPU included"
                )
        update_s = max(card.power_trace.update_s for card in self._cards)
        counter_s = max((probe.counter_s for probe in probes if probe.counter_s is not None), default=None)
        windows_s = [WINDOWS_S[sensor] for gpu in self._found if (sensor := sensor_of(gpu.name)) is not None]
        known = len(windows_s) == len(self._found)
        window_s = max(windows_s) if known else min(_INSTANT_WINDOW_S, update_s)
        settle_s = max(_INSTANT_SETTLE_S, 2 * update_s)
        if any(card.source is PowerQuery.USAGE for card in self._cards):
            known, window_s, settle_s = True, _USAGE_WINDOW_S, _USAGE_SETTLE_S
        return SensorInfo(
            update_s=update_s, window_s=window_s, settle_s=settle_s, counter_s=counter_s, window_known=known
        )

    def _note_state(self) -> None:
        """What is worth knowing about limits before one is set."""
        if self._observe:
            return
        volatile = ", ".join(str(gpu.index) for gpu in self._found if gpu.persistence is False)
        if volatile:
            self._notes.say(
                "persistence",
                f"persistence mode is off on GPU {volatile}: once no program uses it, the driver may unload, and every "
                "power limit, also one that was set before autocap came, falls back to the default; "
                "switch it on with `nvidia-smi -pm 1`",
            )
        unknown = ", ".join(str(gpu.index) for gpu in self._found if gpu.mig is None)
        if unknown:
            self._notes.say(
                "MIG",
                f"the driver does not tell whether MIG splits GPU {unknown}: where it does, a limit acts on all "
                "instances, also on others' jobs; pass --observe then",
            )
        for gpu in self._found:
            if gpu.cap_range is not None and gpu.cap_range.min_w >= _HIGH_MINIMUM * gpu.cap_range.max_w:
                share = 100 * gpu.cap_range.min_w / gpu.cap_range.max_w
                self._notes.say(
                    f"GPU {gpu.index} minimum",
                    f"GPU {gpu.index} takes no limit below {gpu.cap_range.min_w:g} W, {share:.0f} % of its highest; "
                    "where a job would do best with less, no cap reaches that",
                )
        untold = []
        for gpu in self._found:
            with suppress(NvmlError):  # the next reading says what is wrong
                if self._library.compute_pids(gpu.uuid) is None:
                    untold.append(str(gpu.index))
        if untold:
            self._notes.say(
                "untold",
                f"the driver does not tell who computes on GPU {', '.join(untold)}, so whether the job has it to "
                "itself is not known",
            )
        for gpu in self._found:
            if gpu.requested_w is not None and gpu.enforced_w is not None and gpu.enforced_w < gpu.requested_w - 0.5:
                self._say_held(f"GPU {gpu.index}", gpu.requested_w, gpu.enforced_w)

    def _watch_enforced(self, card: Card, reading: Reading) -> None:
        """Less than what is requested, for longer than a new limit needs, is another limiter's doing."""
        requested_w, enforced_w, now_s = reading.requested_w, reading.enforced_w, self._clock.now()
        if requested_w is None or enforced_w is None or enforced_w >= requested_w - 0.5:
            self._held_since_s.pop(card.where, None)
        elif now_s - self._held_since_s.setdefault(card.where, now_s) > _ENFORCED_WITHIN_S:
            self._say_held(card.where, requested_w, enforced_w)

    def _say_held(self, where: str, requested_w: float, enforced_w: float) -> None:
        self._notes.say(
            f"{where} limited",
            f"something outside autocap holds {where} at {enforced_w:g} W, although {requested_w:g} W is requested; "
            "caps above that change nothing",
        )


def _find(inventory: dict[str, NvmlGpu], uuid: str, unreadable: Sequence[str]) -> NvmlGpu:
    if uuid not in inventory:
        others = "; ".join([f"there are {', '.join(inventory) or 'none'}", *unreadable])
        raise DeviceUnavailable(f"GPU {uuid} cannot be opened; {others}")
    return inventory[uuid]


def _info(gpu: NvmlGpu) -> GpuInfo:
    """What stays the same about a GPU; one whose range is not told accepts, for all we know, what it holds."""
    cap_range = gpu.cap_range
    if cap_range is None:
        held_w = gpu.enforced_w or gpu.requested_w
        if held_w is None:
            raise DeviceUnavailable(
                f"GPU {gpu.index} ({gpu.name}) shows no power limit, so nothing measured on it has a cap to go with; "
                "leave it out with --gpus"
            )
        cap_range = CapRange(min_w=held_w, max_w=held_w, default_w=held_w)
    return GpuInfo(index=gpu.index, uuid=gpu.uuid, name=gpu.name, cap_range=cap_range)


def _dropped(card: Card) -> str:
    return (
        f"the energy counter of {card.where} {card.energy_trace.trouble}, so it is not used; energy is added up from "
        "power readings instead"
    )
