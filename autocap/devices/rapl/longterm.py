"""The long-term power limit of one zone: what the kernel keeps of it, and why a part of it could not be set."""

import errno
import os
from dataclasses import replace

from autocap.devices.base import Setting
from autocap.devices.powercap import LONG_TERM, Package, Zone, ZoneError
from autocap.errors import LimitNotPermitted, LimitRefused
from autocap.job.own_command import helper_advice, sudo_advice

WITHOUT_ROOT = (
    f"{sudo_advice()}, {helper_advice()}, let a group of yours write the limit's files (a udev rule, see "
    "`autocap help node-power`), or pass --observe to measure without setting"
)
# The limit holds on average over its window, which firmware sets to about 28 s: for so long after each change a package
# would draw what it had saved up before. Over 1 s a cap can be measured.
CAP_WINDOW_US = 1_000_000
_SAME_WINDOW = 0.15  # the hardware's windows are a fifth to a quarter apart
_WINDOW, _ENABLED = "time_window_us", "enabled"  # what the settings are called


class LongTermLimit:
    """The long-term limit of a zone, read afresh at each call, and its window and the zone's flag beside it.

    where: what messages call the package. bound_w, least_w: the constraint's own bounds, `None` where it does not say.
    Methods that read raise ZoneError, those that write LimitRefused as well.
    """

    def __init__(self, zone: Zone, constraint: str, where: str) -> None:
        self.zone, self.where = zone, where
        self._limit_file, window_file = f"{constraint}_power_limit_uw", f"{constraint}_time_window_us"
        files = {_WINDOW: window_file, _ENABLED: _ENABLED}
        self._files = {name: file for name, file in files.items() if zone.has(file)}
        self.bound_w = _watts(zone.positive(f"{constraint}_max_power_uw"))
        self.least_w = _watts(zone.positive(f"{constraint}_min_power_uw"))

    def limit_w(self) -> float:
        return self.zone.number(self._limit_file) / 1e6

    def in_force(self) -> bool:
        """Whether the limit counts at all; a zone without a flag is always on."""
        return _ENABLED not in self._files or self.zone.number(_ENABLED) != 0

    def settings(self) -> tuple[Setting, ...]:
        """The window and the flag, those that there are."""
        return tuple(Setting(name=name, value=self.zone.number(file)) for name, file in self._files.items())

    def window_s(self) -> float | None:
        """Over which the limit holds on average; `None` where it does not say."""
        return self.zone.number(self._files[_WINDOW]) / 1e6 if _WINDOW in self._files else None

    def may_write(self) -> bool:
        """As far as the files' permissions show."""
        files = (self._limit_file, *self._files.values())
        return all(self.zone.sysfs.may_write(self.zone.path / file) for file in files)

    def request(self, limit_w: float) -> None:
        """Write the limit, watts."""
        self._write(self._limit_file, round(limit_w * 1e6), f"cap {limit_w:g} W")

    def apply(self, setting: Setting) -> None:
        """Write the window or the flag where it is another, and see that it was taken."""
        file = self._files.get(setting.name)
        if file is None:
            raise LimitRefused(f"{setting.name} of {self.where} was there and is gone; its driver may have changed")
        if self.zone.number(file) == setting.value:
            return
        self._write(file, setting.value, f"{setting.name} {setting.value}")
        kept = self.zone.number(file)
        if not _same(setting, kept):
            raise LimitRefused(
                f"{setting.name} {setting.value} was ignored by {self.where}, which keeps {kept}; {_LOCKED}"
            )

    def _write(self, file: str, value: int, what: str) -> None:
        try:
            self.zone.put(file, value)
        except ZoneError as error:
            refused = LimitNotPermitted if error.denied else LimitRefused
            raise refused(f"{what} was not set on {self.where}: {_reason(error)}") from error


def limit_of(zone: Zone, where: str) -> LongTermLimit | None:
    """The long-term limit of a zone; `None` where it has none, or none was ever set (0 W)."""
    constraint = zone.constraint(LONG_TERM)
    if constraint is None or zone.positive(f"{constraint}_power_limit_uw") is None:
        return None
    return LongTermLimit(zone, constraint, where)


def limits_of(package: Package, where: str) -> tuple[LongTermLimit, ...]:
    """The long-term limits of a package, one an interface that has any; the lowest in force counts.

    The first is the one to cap by: switched on, if any is. Switching it on, as a cap does, does not change which.
    """
    found = [limit for zone in package.zones if (limit := limit_of(zone, where)) is not None]
    return tuple(sorted(found, key=lambda limit: not limit.in_force()))


def for_a_cap(found: tuple[Setting, ...], *, switched_on: bool) -> tuple[Setting, ...]:
    """The settings with which a cap holds, and soon. found: those before; a window that was shorter stays.

    switched_on: `False` for a cap that is no more than the limit found, whose flag stays as it was.
    """
    return tuple(_needed(setting, switched_on) for setting in found)


def _needed(found: Setting, switched_on: bool) -> Setting:
    if found.name == _WINDOW:
        return found if 0 < found.value < CAP_WINDOW_US else replace(found, value=CAP_WINDOW_US)
    return replace(found, value=1) if switched_on else found


def is_a_caps_window(setting: Setting) -> bool:
    """Whether a setting can only come from a cap of ours. A zone's flag cannot: somebody else's limit needs it too."""
    return setting.name == _WINDOW and _same(setting, CAP_WINDOW_US)


_LOCKED = (
    "the firmware has locked it, or the kernel is in lockdown mode: unlock the package power limits in the BIOS "
    "set-up, or pass --observe to measure without setting"
)


def _reason(error: ZoneError) -> str:
    if error.code == errno.EROFS:
        return "sysfs is mounted read-only, as in a container; run autocap on the host, or give the container /sys"
    if not error.denied:
        return str(error)
    return f"although we are root, {_LOCKED}" if os.geteuid() == 0 else f"a limit needs root; {WITHOUT_ROOT}"


def _same(setting: Setting, value: int) -> bool:
    tolerance = _SAME_WINDOW * setting.value if setting.name == _WINDOW else 0
    return abs(setting.value - value) <= tolerance


def _watts(value_uw: int | None) -> float | None:
    return None if value_uw is None else value_uw / 1e6
