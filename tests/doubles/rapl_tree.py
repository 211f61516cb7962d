"""A powercap tree in a folder, as the kernel's RAPL drivers show it, for whoever is given its root."""

import time
from pathlib import Path

RANGE_UJ = 262_143_328_850  # of a desktop's counter: 22 minutes at 200 W
WINDOW_US = 27_983_872  # 28 s, which firmware usually sets


class RaplTree:
    """root: what stands for /sys. Packages are added one by one; every file can be read and changed by its name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = root / "class" / "powercap"
        self.top.mkdir(parents=True)
        self.cpus = 0

    def package(
        self,
        number: int = 0,
        *,
        interface: str = "intel-rapl",
        limit_w: float | None = 125.0,
        max_power_w: float | None = 125.0,
        enabled: int = 1,
        memory: bool = True,
        range_uj: int = RANGE_UJ,
        name: str | None = None,
    ) -> str:
        """Add a package's zone, with a core and perhaps a memory zone below; its id. limit_w: `None` for energy alone,
        as AMD has it."""
        zone = f"{interface}:{number}"
        self._zone(zone, name or f"package-{number}", range_uj)
        self._zone(f"{zone}:0", "core", range_uj)
        if memory:
            self._zone(f"{zone}:1", "dram", range_uj)
        if limit_w is not None:
            self.put(zone, "enabled", enabled)
            bound_uw = 0 if max_power_w is None else round(max_power_w * 1e6)
            self._constraint(zone, 0, "long_term", limit_w, WINDOW_US, bound_uw)
            self._constraint(zone, 1, "short_term", 1.25 * limit_w, 2440, 0)
        return zone

    def cores(self, package: int, cpus: int, die: int = 0) -> None:
        """So many more CPUs, in a package."""
        for cpu in range(self.cpus, self.cpus + cpus):
            folder = self.root / "devices" / "system" / "cpu" / f"cpu{cpu}" / "topology"
            folder.mkdir(parents=True)
            (folder / "physical_package_id").write_text(f"{package}\n")
            (folder / "die_id").write_text(f"{die}\n")
        self.cpus += cpus

    def put(self, zone: str, file: str, value: object) -> None:
        """In one go, padded, so that no other process finds half of it."""
        path = self.top / zone / file
        with path.open("r+" if path.exists() else "w") as opened:
            opened.write(f"{value!s:<20}\n")

    def number(self, zone: str, file: str) -> int:
        while not (text := (self.top / zone / file).read_text()):  # another process is writing it
            time.sleep(0.001)
        return int(text)

    def use(self, zone: str, energy_j: float) -> None:
        """Let a counter move on by so many joules, across its end."""
        range_uj = self.number(zone, "max_energy_range_uj")
        self.put(zone, "energy_uj", (self.number(zone, "energy_uj") + round(energy_j * 1e6)) % range_uj)

    def caps(self, zone: str) -> bool:
        """Whether a zone takes a limit."""
        return (self.top / zone / "enabled").exists()

    def setting(self, zone: str) -> tuple[float, int, int]:
        """The long-term limit in watts, its window in microseconds, and the zone's flag."""
        limit_w = self.number(zone, "constraint_0_power_limit_uw") / 1e6
        return limit_w, self.number(zone, "constraint_0_time_window_us"), self.number(zone, "enabled")

    def _zone(self, zone: str, name: str, range_uj: int) -> None:
        (self.top / zone).mkdir()
        self.put(zone, "name", name)
        self.put(zone, "energy_uj", 1_000_000)
        self.put(zone, "max_energy_range_uj", range_uj)

    def _constraint(self, zone: str, index: int, name: str, limit_w: float, window_us: int, bound_uw: int) -> None:
        self.put(zone, f"constraint_{index}_name", name)
        self.put(zone, f"constraint_{index}_power_limit_uw", round(limit_w * 1e6))
        self.put(zone, f"constraint_{index}_time_window_us", window_us)
        self.put(zone, f"constraint_{index}_max_power_uw", bound_uw)
