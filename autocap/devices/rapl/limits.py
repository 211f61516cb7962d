"""Setting the long-term limit of CPU packages: written, read back, and with a reason where it does not hold.

Only the guardian, the watchdog and `autocap restore` hold one of these.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from autocap.devices.base import LimitPort, Setting, require_inside
from autocap.devices.powercap import find_packages
from autocap.devices.rapl.packages import LongTermLimit, RaplPackage, for_a_cap, is_a_caps_window, limit_of, uuid_of
from autocap.errors import DeviceError, LimitClamped, LimitIgnored, LimitNotEnforced
from autocap.job.processes import ProcessId
from autocap.records import same_limit


class RaplLimits(LimitPort):
    """The limits of some packages, by UUID.

    packages: that may be capped. limits: instead of theirs, where limits are only put back.
    A cap is the limit, a window over which it holds soon, and the zone switched on. The limit is written first and put
    back last: while any of the three is ours, so is the limit.
    """

    def __init__(self, packages: Sequence[RaplPackage], limits: Mapping[str, LongTermLimit] | None = None) -> None:
        self._packages = {package.uuid: package for package in packages}
        own = {package.uuid: package.limit for package in packages if package.limit is not None}
        self._limits = own if limits is None else limits
        self._found: dict[str, tuple[float, tuple[Setting, ...]]] = {}  # before the first cap of ours

    def requested_w(self, uuid: str) -> float | None:
        """The limit last requested, by anybody, watts; whether or not it is switched on. Raises DeviceError."""
        return self._limit(uuid).limit_w()

    def settings(self, uuid: str) -> tuple[Setting, ...]:
        """The limit's window, microseconds, and the zone's flag, as they are now. Raises ZoneError."""
        return self._limit(uuid).settings()

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        """Request a cap, watts, and see that it holds. The limit found before the first cap may be outside the range,
        and is not switched on where it was not.

        Raises LimitRefused where it is outside the range, not permitted, ignored or clamped, LimitNotEnforced where
        another interface of the package holds less, ZoneError where the package is lost.
        """
        limit = self._limit(uuid)
        before_w = limit.limit_w()
        found_w, found = self._found.setdefault(uuid, (before_w, limit.settings()))
        is_found = same_limit(cap_w, found_w)
        if not is_found:
            package = self._packages[uuid]
            require_inside(cap_w, package.cap_range.min_w, package.cap_range.max_w, package.where)
        limit.request(cap_w)
        for setting in for_a_cap(found, switched_on=not is_found):
            limit.apply(setting)
        self._require_held(uuid, cap_w, before_w)

    def verify(self, uuid: str, cap_w: float) -> None:
        """See that a cap which was just requested holds. Raises LimitRefused where it does not, ZoneError."""
        self._require_held(uuid, cap_w, None)

    def put_back(self, uuid: str, limit_w: float | None, found: tuple[Setting, ...]) -> None:
        """As LimitPort has it: the window, the flag, and then the limit. Raises LimitRefused, ZoneError."""
        limit = self._limit(uuid)
        if limit_w is None:
            now = {setting.name: setting for setting in limit.settings()}
            found = tuple(one for one in found if one.name in now and is_a_caps_window(now[one.name]))
        steps = [partial(limit.apply, setting) for setting in found]
        if limit_w is not None:
            steps += [partial(limit.request, limit_w), partial(_require_taken, limit, limit_w, None)]
        _each(steps)

    def _require_held(self, uuid: str, cap_w: float, before_w: float | None) -> None:
        limit = self._limit(uuid)
        _require_taken(limit, cap_w, before_w)
        enforced_w = self._packages[uuid].enforced_w()
        if enforced_w is not None and enforced_w < cap_w and not same_limit(enforced_w, cap_w):
            raise LimitNotEnforced(
                f"cap {cap_w:g} W was requested of {limit.where}, but {enforced_w:g} W holds on its other interface; "
                f"pass --max-cap {enforced_w:g} or less",
                enforced_w,
            )

    def _limit(self, uuid: str) -> LongTermLimit:
        if uuid not in self._limits:
            there = ", ".join(self._limits) or "none"
            raise DeviceError(f"there is no CPU package {uuid} whose limit can be set; there is {there}")
        return self._limits[uuid]


def _require_taken(limit: LongTermLimit, asked_w: float, before_w: float | None) -> None:
    """Raises LimitRefused where a limit that was written does not read back."""
    kept_w = limit.limit_w()
    if same_limit(kept_w, asked_w):
        return
    is_ignored = before_w is not None and same_limit(kept_w, before_w)
    text = (
        f"cap {asked_w:g} W was {'ignored' if is_ignored else 'changed'} by {limit.where}, which is at {kept_w:g} W; "
        "another tool may hold it (thermald, a daemon of the vendor, the firmware), so nothing is tuned"
    )
    raise (LimitIgnored if is_ignored else LimitClamped)(text, kept_w)


def _each(steps: Sequence[Callable[[], None]]) -> None:
    """Take every step, whatever becomes of those before it; the first failure is raised at the end."""
    failure: DeviceError | None = None
    for step in steps:
        try:
            step()
        except DeviceError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def limits_from_outside(job: ProcessId | None) -> RaplLimits:
    """For the watchdog and `autocap restore`; the job does not matter. Raises DeviceUnavailable without a package."""
    # Every zone, whichever its package would be capped by now: another tool may have switched its twin on since.
    zones = [(zone, package.index) for package in find_packages() for zone in package.zones]
    found = ((uuid_of(zone), limit_of(zone, f"package {index}")) for zone, index in zones)
    return RaplLimits((), {uuid: limit for uuid, limit in found if limit is not None})
