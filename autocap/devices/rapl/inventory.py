"""All CPU packages of this machine, for whoever acts for several jobs."""

from autocap.devices.inventory import DescribedDevice, Inventory, ListedDevice
from autocap.devices.permission import settable_files
from autocap.devices.rapl.device import RaplDevice
from autocap.devices.rapl.limits import RaplLimits
from autocap.devices.rapl.packages import RaplPackage, list_packages
from autocap.errors import DeviceError


class RaplInventory(Inventory):
    """They come and go with the kernel's files, so nothing is kept open."""

    noun = "package"
    shared = "every user computes on a CPU package"

    def devices(self) -> tuple[ListedDevice, ...]:
        return tuple(map(_listed, self._packages()))

    def described(self) -> tuple[DescribedDevice, ...]:
        return tuple(map(_described, self._packages()))

    def pids(self, uuid: str) -> None:
        """Everybody computes on a package."""

    def limits(self) -> RaplLimits:
        return RaplLimits(list_packages())

    def _packages(self) -> tuple[RaplPackage, ...]:
        self.unreadable = ()
        try:
            return list_packages()
        except DeviceError as error:  # there is none, or none that can be read
            self.unreadable = (str(error),)
            return ()


def _listed(package: RaplPackage) -> ListedDevice:
    limit = package.limit
    return ListedDevice(
        index=package.index,
        uuid=package.uuid,
        kind=RaplDevice.kind,
        name=package.name,
        noun=RaplInventory.noun,
        cap_range=None if limit is None else package.cap_range,
        default_w=None if limit is None else package.cap_range.default_w,
        requested_w=None if limit is None else limit.limit_w(),
        enforced_w=package.enforced_w(),
        obstacle=package.obstacle,
    )


def _described(package: RaplPackage) -> DescribedDevice:
    limit, trouble = package.limit, None
    writable = limit is not None and limit.may_write()
    try:
        for zone in package.package.energy_zones:
            zone.energy_j()
    except DeviceError as error:
        trouble = str(error)
    zones = dict.fromkeys(zone.id for zone in (*package.package.energy_zones, *package.package.zones))
    return DescribedDevice(
        device=_listed(package),
        direct=settable_files(package.obstacle, writable=writable, switched_on=limit is not None and limit.in_force()),
        facts={
            "zones": tuple(zones),
            "window_s": None if limit is None else limit.window_s(),
            "memory": package.package.memory is not None,
            "trouble": trouble,
        },
    )
