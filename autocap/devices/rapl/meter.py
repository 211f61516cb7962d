"""The power of one package and its memory, from how their energy counters move."""

from collections import deque

from autocap.devices.powercap import EnergyCounter, Package, ZoneError

UPDATE_S = 0.1  # counters move every millisecond: over a tenth of a second their steps are no noise to speak of
_FRESH = 0.75  # of an update, after which there is a new reading: loops come a little early
_STUCK_S = 1.0
_MEAN_S = 1.0  # over which a package is held against its cap, as its limit is


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
        self._package_j: deque[tuple[float, float]] = deque([(t_s, 0.0)])

    def read(self, t_s: float) -> tuple[float, float | None, float | None]:
        """When the newest power reading was taken, its watts, and the joules since the beginning; the last two `None`
        in a gap. t_s: now. Raises ZoneError where a zone is lost."""
        energies_j = self._energies(t_s)
        if energies_j is None:  # what was used in a gap is not known, so nothing is told across it
            self._base, self._power_w = None, None
            self._package_j.clear()
            return t_s, None, None
        energy_j = sum(energies_j)
        self._package_j.append((t_s, energies_j[0]))
        while len(self._package_j) > 1 and self._package_j[1][0] <= t_s - _MEAN_S:
            self._package_j.popleft()
        return *self._power(t_s, energy_j), energy_j

    def package_w(self) -> float | None:
        """Mean power of the package alone over the last second, watts; `None` until it was read for so long."""
        if not self._package_j:
            return None
        (from_s, from_j), (to_s, to_j) = self._package_j[0], self._package_j[-1]
        return (to_j - from_j) / (to_s - from_s) if to_s - from_s >= _MEAN_S else None

    def _energies(self, t_s: float) -> list[float] | None:
        """Joules by each counter, all of which are read; `None` where one cannot tell."""
        self.gap, energies_j = None, []
        for counter in self._counters:
            try:
                energy_j = counter.read(t_s)
            except ZoneError as error:
                if error.lost:
                    raise
                energy_j, self.gap = None, str(error)
            if energy_j is None:
                self.gap = self.gap or f"the energy counter of {self.where} ({counter.zone.name}) {counter.trouble}"
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
