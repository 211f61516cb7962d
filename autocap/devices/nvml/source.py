"""The GPUs of the machine as a source of devices: which of them a job uses, and whether it has them to itself; and all
of them, for whoever acts for several jobs."""

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from autocap.clock import Clock, MonotonicClock
from autocap.devices.base import CheckCaps, DeviceSource, Tunable
from autocap.devices.inventory import DescribedDevice, HoldableInventory, ListedDevice, SensorSeen, named
from autocap.devices.nvml import job_gpus
from autocap.devices.nvml.device import NvmlDevice
from autocap.devices.nvml.job_gpus import JobGpus, Listing, ProcessFacts
from autocap.devices.nvml.library import Library, NvmlGpu, open_library
from autocap.devices.nvml.limits import NvmlLimits
from autocap.devices.nvml.probe import SensorProbe, probe_sensor
from autocap.devices.permission import own_privileges, settable
from autocap.errors import DeviceError, DeviceUnavailable
from autocap.job.processes import Roots
from autocap.records import GpuInfo

if TYPE_CHECKING:
    from autocap.config import RunConfig


# A job of several ranks comes to its GPUs one by one: they are its GPUs once they have stayed the same for so long,
# or once it may see no more of them.
_UNCHANGED_S = 5.0
# CUDA opens every GPU that it may see, long before it computes on one; so the driver's own list is waited for.
_LISTED_WITHIN_S = 20.0


class NvmlSource(DeviceSource):
    """The GPUs of the machine that a job uses, or those that --gpus names; which they are shows once the job uses them.

    library: closed at the end. open_device: opens some by UUID. attached: the job runs already.
    """

    def __init__(
        self,
        config: "RunConfig",
        library: Library,
        open_device: Callable[[tuple[str, ...]], Tunable],
        check: CheckCaps,
        *,
        attached: bool = False,
    ) -> None:
        self._config, self._library, self._open = config, library, open_device
        try:
            gpus = library.inventory()
        except DeviceError as error:
            raise DeviceUnavailable(str(error)) from error
        if not gpus:
            raise DeviceUnavailable("; ".join(["the NVIDIA driver shows no GPU here", *library.unreadable]))
        self._named = None if config.gpus is None else named(gpus, config.gpus)
        self._check_caps([gpu for gpu in gpus if self._named is None or gpu.uuid in self._named], check)
        self._seen: JobGpus | None = None
        self._seen_s = 0.0
        # Where something was computed before a job that is to be started: by this its GPU is told where no list does.
        self._before = {} if attached or self._named is not None else self._busy(gpus)

    def __exit__(self, *error: object) -> None:
        self._library.close()

    def ahead(self, environ: Mapping[str, str] = os.environ) -> Tunable | None:
        """Those that --gpus names, or else CUDA_VISIBLE_DEVICES, which our child inherits, or the only one there is."""
        listings = self._listings()
        gpus = [listing.gpu for listing in listings]
        visible = job_gpus.visible(gpus, environ.get("CUDA_VISIBLE_DEVICES"), environ.get("CUDA_DEVICE_ORDER"))
        uuids = self._named or tuple(gpu.uuid for gpu in gpus if visible is None or gpu.uuid in visible)
        if not uuids or (len(uuids) > 1 and self._named is None and visible is None):
            return None
        if not self._config.shared_gpu:
            others = job_gpus.of_pids(pid for listing in listings for pid in listing.pids)
            job_gpus.refuse_strangers(job_gpus.strangers(listings, uuids, (), others))
        return self._open(uuids)

    def find(self, job: Roots, waited_s: float) -> Tunable | None:
        listings = self._listings()
        tree = job_gpus.of_tree(job)
        ours = {process.pid for process in tree}
        others = job_gpus.of_pids(pid for listing in listings for pid in listing.pids if pid not in ours)
        uuids = self._named
        if uuids is None:
            found = _unless_waiting(lambda: self._used(listings, tree, others), waited_s)
            if found is None:
                return None
            # There is nothing more to wait for where the driver never tells.
            is_listed = found.computing or not all(listing.told for listing in listings)
            is_whole = is_listed and job_gpus.reachable(listings, tree) <= set(found.uuids)
            if not is_whole and not self._is_settled(found, waited_s, is_listed or waited_s >= _LISTED_WITHIN_S):
                return None
            uuids = found.uuids
        if not self._config.shared_gpu:
            job_gpus.refuse_strangers(job_gpus.strangers(listings, uuids, tree, others))
        return self._open(uuids)

    def _used(
        self, listings: Sequence[Listing], tree: Sequence[ProcessFacts], others: Sequence[ProcessFacts]
    ) -> JobGpus | None:
        found = job_gpus.used(listings, tree, others)
        if found is not None or all(listing.told for listing in listings):
            return found
        return job_gpus.by_load(listings, tree, self._before, self._busy([listing.gpu for listing in listings]))

    def _busy(self, gpus: Sequence[NvmlGpu]) -> dict[str, bool]:
        """Where something is computed at the moment, by UUID, as far as the driver says."""
        found = {gpu.uuid: self._library.is_busy(gpu.uuid) for gpu in gpus}
        return {uuid: is_busy for uuid, is_busy in found.items() if is_busy is not None}

    def _listings(self) -> list[Listing]:
        listed = [(gpu, self._library.compute_pids(gpu.uuid)) for gpu in self._library.inventory()]
        return [Listing(gpu=gpu, pids=pids or (), told=pids is not None) for gpu, pids in listed]

    def _is_settled(self, found: JobGpus, waited_s: float, listed: bool) -> bool:
        if found != self._seen:
            self._seen, self._seen_s = found, waited_s
        return math.isinf(waited_s) or (listed and waited_s - self._seen_s >= _UNCHANGED_S)

    def _check_caps(self, gpus: Sequence[NvmlGpu], check: CheckCaps) -> None:
        """Refuse caps that no choice among these GPUs could take, before the job starts."""
        ranges = {gpu.cap_range for gpu in gpus}
        if self._named is None and len(ranges) > 1:
            return
        infos = [
            GpuInfo(index=gpu.index, uuid=gpu.uuid, name=gpu.name, cap_range=gpu.cap_range)
            for gpu in gpus
            if gpu.cap_range is not None
        ]
        if infos:
            check(infos)


def _unless_waiting(look: Callable[[], JobGpus | None], waited_s: float) -> JobGpus | None:
    """What a look finds; while there are more to come, one that cannot tell has found nothing."""
    try:
        return look()
    except DeviceError:
        if math.isinf(waited_s):
            raise
        return None


def open_source(config: "RunConfig", clock: Clock, check: CheckCaps, owner_uid: int | None) -> NvmlSource:
    """The GPUs of this machine, as --gpus and the driver have them. Raises DeviceUnavailable where there is none."""

    def open_device(uuids: tuple[str, ...]) -> Tunable:
        device = NvmlDevice(library, uuids, clock, observe=config.tune.observe)
        job_gpus.keep_from_children()
        return device

    try:
        # As root where sudo lends that: the kernel's driver remembers with which rights a client was opened, and takes
        # a limit from no client that was opened without.
        library = open_library()
    except DeviceUnavailable as error:
        raise DeviceUnavailable(f"{error}; to try autocap without one, pass --device emulated") from error
    try:
        source = NvmlSource(config, library, open_device, check, attached=owner_uid is not None)
        job_gpus.keep_from_children()  # in which root's rights would live on
        return source
    except BaseException:
        library.close()
        raise


_AGAIN_S = 5.0  # between looks for a driver that was not there


class NvmlInventory(HoldableInventory):
    """now: the clock, seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._library: Library | None = None
        self._tried_s: float | None = None

    def __exit__(self, *error: object) -> None:
        if self._library is not None:
            self._library.close()

    def devices(self) -> tuple[ListedDevice, ...]:
        library = self._opened()
        return () if library is None else self._gpus(library)

    def described(self) -> tuple[DescribedDevice, ...]:
        library = self._opened()
        if library is None:
            return ()
        gpus, privileges = self._gpus(library), own_privileges()
        return tuple(
            DescribedDevice(
                device=gpu,
                direct=settable(gpu.obstacle, privileges),
                facts={"persistence": gpu.persistence, "mig": gpu.mig, "sensor": sensor},
            )
            for gpu, sensor in zip(gpus, _sensors(library, [gpu.uuid for gpu in gpus]), strict=True)
        )

    def pids(self, uuid: str) -> tuple[int, ...] | None:
        library = self._opened()
        return None if library is None else library.user_pids(uuid)

    def limits(self) -> NvmlLimits:
        return NvmlLimits(self._there(), alone=True)  # never closed: the library is every lease's

    def hold(self, uuids: Sequence[str], clock: Clock) -> NvmlDevice:
        return NvmlDevice(self._there(), uuids, clock, observe=False, watch_s=0.0)

    def _there(self) -> Library:
        library = self._opened()
        if library is None:
            raise DeviceUnavailable("; ".join(self.unreadable))
        return library

    def _opened(self) -> Library | None:
        """`None` where there is no driver; one that was not there is looked for again after some seconds."""
        with self._lock:
            now_s = self._now()
            if self._library is None and (self._tried_s is None or now_s - self._tried_s >= _AGAIN_S):
                self._tried_s = now_s
                try:
                    self._library = open_library()
                except DeviceUnavailable as error:
                    self.unreadable = (str(error),)
            return self._library

    def _gpus(self, library: Library) -> tuple[NvmlGpu, ...]:
        gpus = library.inventory()
        self.unreadable = library.unreadable or (() if gpus else ("the NVIDIA driver shows no GPU here",))
        return gpus


def _sensors(library: Library, uuids: Sequence[str]) -> list[SensorSeen]:
    """All are watched at the same time; where one fails, each by itself."""
    clock = MonotonicClock()
    with suppress(DeviceError):
        return [_seen(probe) for probe in probe_sensor(library, uuids, clock)]
    found = []
    for uuid in uuids:
        try:
            (probe,) = probe_sensor(library, [uuid], clock)
            found.append(_seen(probe))
        except DeviceError as error:
            found.append(SensorSeen(trouble=str(error)))
    return found


def _seen(probe: SensorProbe) -> SensorSeen:
    return SensorSeen(
        source=probe.source.value,
        update_s=probe.update_s,
        energy_counter=probe.has_counter,
        counter_j=probe.counter_j,
        integrated_j=probe.integrated_j,
        trouble=None if probe.counter_trouble is None else f"the energy counter {probe.counter_trouble}",
    )
