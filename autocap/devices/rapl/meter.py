"""The power of one package, from how its energy counter moves, and the energy of its memory beside it."""

from collections import deque
from dataclasses import dataclass

from autocap.devices.powercap import EnergyCounter, Package, ZoneError

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
