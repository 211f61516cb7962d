"""CPU packages as one device: all that one job uses, read together through powercap; the power of each from how its
energy counter moves, and the energy of its memory beside it."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from autocap.clock import Clock
from autocap.devices.base import Notes, Tunable, require_settable
from autocap.devices.permission import ROOT_FOR_FILES
from autocap.devices.powercap import EnergyCounter, Package, ZoneError
from autocap.devices.rapl.limits import RaplLimits
from autocap.devices.rapl.packages import CAP_WINDOW_US, NO_LIMIT_W, RaplPackage
from autocap.errors import DeviceUnavailable
from autocap.records import Reading, SensorInfo, same_limit

UPDATE_S = 0.1  # counters move every millisecond: over a tenth of a second their steps are no noise to speak of
_FRESH = 0.75  # of an update, after which there is a new reading: loops come a little early
_STUCK_S = 1.0
_MEAN_S = 1.0  # over which a package is held against its cap, as its limit is


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageReading:
    """stamp_s: when the newest power was read. power_w, energy_j: of the package alone, since the beginning; memory_j:
    of its memory. `None` in a gap, memory_j also where there is no counter of it."""

    stamp_s: float
    power_w: float | None = None
    energy_j: float | None = None
    memory_j: float | None = None


class PackageMeter:
    """Reads one package. where: what messages call it. gap: why there is no power now, `None` where there is.

    Raises ZoneError where a counter cannot be read.
    """

    def __init__(self, package: Package, where: str, t_s: float) -> None:
        self.where = where
        self.gap: str | None = None
        self._counters = tuple(EnergyCounter(zone, t_s) for zone in package.energy_zones)
        self._base: tuple[float, float] | None = (t_s, 0.0)  # time and joules of the newest reading, or of a beginning
        self._power_w: float | None = None
        self._recent_j: deque[tuple[float, float]] = deque([(t_s, 0.0)])

    def read(self, t_s: float) -> PackageReading:
        """Everything, once. t_s: now. Raises ZoneError where a zone is lost."""
        energies_j = self._energies(t_s)
        if energies_j is None:  # what was used in a gap is not known, so no energy is reported across it
            self._base, self._power_w = None, None
            self._recent_j.clear()
            return PackageReading(stamp_s=t_s)
        energy_j, *memory_j = energies_j
        self._recent_j.append((t_s, energy_j))
        while len(self._recent_j) > 1 and self._recent_j[1][0] <= t_s - _MEAN_S:
            self._recent_j.popleft()
        stamp_s, power_w = self._power(t_s, energy_j)
        return PackageReading(
            stamp_s=stamp_s, power_w=power_w, energy_j=energy_j, memory_j=memory_j[0] if memory_j else None
        )

    def mean_w(self) -> float | None:
        """Mean power of the package over the last second, watts; `None` until it was read for so long."""
        if not self._recent_j:
            return None
        (from_s, from_j), (to_s, to_j) = self._recent_j[0], self._recent_j[-1]
        return (to_j - from_j) / (to_s - from_s) if to_s - from_s >= _MEAN_S else None

    def _energies(self, t_s: float) -> list[float] | None:
        """Joules by each counter, all of which are read; `None` where one cannot tell."""
        self.gap, energies_j = None, []
        for counter in self._counters:
            try:
                energy_j = counter.read(t_s)
                trouble = f"the energy counter of {self.where} ({counter.zone.name}) {counter.trouble}"
            except ZoneError as error:
                if error.lost:
                    raise
                energy_j, trouble = None, str(error)
            if energy_j is None:
                self.gap = self.gap or trouble
            else:
                energies_j.append(energy_j)
        return energies_j if self.gap is None else None

    def _power(self, t_s: float, energy_j: float) -> tuple[float, float | None]:
        """The newest reading, held until there is another."""
        since_s, since_j = self._base or (t_s, energy_j)
        elapsed_s = t_s - since_s
        if elapsed_s >= _FRESH * UPDATE_S and energy_j > since_j:
            self._power_w = (energy_j - since_j) / elapsed_s
            since_s, since_j = t_s, energy_j
        elif elapsed_s > _STUCK_S:
            self._power_w, self.gap = None, f"the energy counter of {self.where} has not moved for {_STUCK_S:g} s"
        self._base = (since_s, since_j)
        return since_s, self._power_w


T = TypeVar("T")

_BINDING, _FREE = 0.95, 0.90  # mean power over the limit, above which the cap holds the package down, and below not


class RaplDevice(Tunable):
    """The packages of one job, and the energy of their memory.

    packages: in the order of the readings. clock: stamps the readings. observe: there is no setter, whatever is asked
    for. Raises DeviceUnavailable where an energy counter cannot be read, with the remedy. A limit settles within about
    two of its windows, after which the hardware has forgotten what was drawn before.
    """

    kind = "rapl"
    sensor = SensorInfo(update_s=UPDATE_S, window_s=UPDATE_S, settle_s=2 * CAP_WINDOW_US / 1e6)

    def __init__(self, packages: Sequence[RaplPackage], clock: Clock, *, observe: bool) -> None:
        self._packages, self._clock, self._observe = tuple(packages), clock, observe
        self.gpus = tuple(package.info for package in packages)
        try:
            self._meters = tuple(PackageMeter(one.package, one.where, clock.now()) for one in packages)
        except ZoneError as error:
            raise DeviceUnavailable(f"no energy, so nothing to measure: {error}") from error
        self._notes = Notes()
        self._note_limits()

    @property
    def refusal(self) -> str | None:
        """Why the limits of these packages cannot be set, as far as that shows without setting them; else `None`."""
        return next((package.obstacle for package in self._packages if package.obstacle is not None), None)

    def read(self) -> tuple[Reading, ...]:
        """One reading a package, its memory's energy beside its own. Raises ZoneError when one is lost; whatever else
        fails is a gap, and a note."""
        return tuple(self._read(package, meter) for package, meter in zip(self._packages, self._meters, strict=True))

    def notes(self) -> tuple[str, ...]:
        """Sentences on what the user should know; each is returned once."""
        return self._notes.take()

    def limits(self) -> RaplLimits:
        """The setter. Raises DeviceError under `observe`, where there is none, and LimitRefused (`refusal`) where a
        package takes no limit."""
        require_settable(self.refusal, observe=self._observe)
        return RaplLimits(self._packages)

    @property
    def denial(self) -> str | None:
        """Why this process may not set limits, by the files' permissions; `None` where nothing speaks against it."""
        may_write = all(package.limit is None or package.limit.may_write() for package in self._packages)
        return None if may_write else ROOT_FOR_FILES

    def verifier(self) -> RaplLimits:
        """Sees whether limits hold that others request for us. Raises as `limits` does."""
        return self.limits()

    def close(self) -> None:
        """Close the files that were kept open."""
        for package in self._packages:
            for zone in package.package.zones:
                zone.sysfs.close()

    def _read(self, package: RaplPackage, meter: PackageMeter) -> Reading:
        found = meter.read(self._clock.now())
        if meter.gap is not None:
            self._notes.say(meter.gap, f"{meter.gap}; such readings are left out, as gaps")
        requested_w = None if package.limit is None else self._ask(package.limit.limit_w)
        enforced_w = self._ask(package.enforced_w)
        self._watch_enforced(package, requested_w, enforced_w)
        return Reading(
            t_s=found.stamp_s,
            power_w=found.power_w,
            energy_j=found.energy_j,
            beside_j=found.memory_j,
            requested_w=requested_w,
            enforced_w=enforced_w,
            cap_binding=_binding(meter.mean_w(), enforced_w),
        )

    def _ask(self, look: Callable[[], T]) -> T | None:
        """One look at a limit; `None`, and a note, where it cannot be read now. Raises ZoneError when it is lost."""
        try:
            return look()
        except ZoneError as error:
            if error.lost:
                raise
            self._notes.say(str(error), f"{error}; it is asked again at the next reading")
            return None

    def _note_limits(self) -> None:
        for package in self._packages:
            if package.limit is None:
                self._notes.say(
                    package.uuid,
                    f"{package.where} takes no power limit; {NO_LIMIT_W:g} W stands for none in what follows",
                )
            elif not package.limit.in_force():
                self._notes.say(
                    package.uuid,
                    f"the limit of {package.where}, {package.limit.limit_w():g} W, is switched off; the baseline is "
                    "measured without one, and a cap switches it on until the end",
                )

    def _watch_enforced(self, package: RaplPackage, requested_w: float | None, enforced_w: float | None) -> None:
        if requested_w is None or enforced_w is None or same_limit(enforced_w, requested_w):
            return
        if enforced_w < requested_w:
            self._notes.say(
                f"{package.uuid} held",
                f"another interface of {package.where} holds it at {enforced_w:g} W, although {requested_w:g} W is "
                "requested; caps above that change nothing",
            )


def _binding(mean_w: float | None, enforced_w: float | None) -> bool | None:
    """Whether a package is held down by its cap, by its mean power; the kernel does not report it."""
    if mean_w is None or enforced_w is None:
        return None
    share = mean_w / enforced_w
    return True if share >= _BINDING else False if share < _FREE else None
