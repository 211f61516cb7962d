"""What a power-capped device is to the rest of autocap: something to read, and, apart from it, something to set.

The two are separate objects on purpose. A `Device` has no setter, so whoever only holds one cannot change anything.
A `LimitPort`, or the `KnobPort` of another knob, is handed to the guardian and to nobody else: there is no other path
to a setter.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, Self

from autocap.errors import DeviceError, LimitNotEnforced, LimitRefused
from autocap.job.processes import Roots
from autocap.knobs import Knob
from autocap.records import GpuInfo, NodeReading, Reading, SensorInfo


class CheckCaps(Protocol):
    """Refuses caps that were asked for and that these devices do not take, before a job starts.

    Args:
        found_w: Their limits found on arrival, watts, where they are known by then.

    Raises:
        DeviceError: Where the device fails.
    """

    def __call__(self, gpus: Sequence[GpuInfo], found_w: Sequence[float] = ()) -> object: ...


class Device(Protocol):
    """The devices that one job uses, read together. Reading never changes anything.

    kind: "emulated", "nvml", … emulated: its power is modelled, and is labelled so wherever it is shown. driver: its
    version, `None` where there is none. gpus: the devices, in the order of the readings.
    """

    kind: str
    emulated: bool = False
    driver: str | None = None
    gpus: tuple[GpuInfo, ...]
    sensor: SensorInfo

    def read(self) -> tuple[Reading, ...]:
        """One reading a device, in the order of `gpus`.

        Raises:
            DeviceError: When a device is lost; a reading that is merely missing has `power_w=None`.
        """

    def notes(self) -> tuple[str, ...]:
        """Sentences for the run log on what the user should know of the device; each is returned once."""
        return ()

    def close(self) -> None:
        """Release what reading needs. Changes no limit."""
        return


class Tunable(Device, Protocol):
    """A device together with the way to its setter, for whoever joins it to a guardian."""

    @property
    def refusal(self) -> str | None:
        """Why its limits cannot be set, `None` where they can, or where only trying shows it."""
        return None

    def limits(self) -> "LimitPort":
        """The setter.

        Raises:
            DeviceError: Where there is none, as under --observe.
        """

    def verifier(self) -> "LimitVerifier | None":
        """Of a real device of the machine, whose limits somebody else may set for us where we may not; else `None`.

        Raises:
            DeviceError: As `limits` does.
        """
        return None

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """What these devices offer besides their power limit, the same for all of them. Their kind offers
        `knob_from_outside` then."""
        return ()

    def knob_port(self, name: str) -> "KnobPort":
        """The setter of one of them.

        Raises:
            DeviceError: Where there is none, as under --observe.
        """
        raise DeviceError(f"devices of kind '{self.kind}' have no knob {name}")

    def knob_values(self, name: str) -> tuple[float | None, ...]:
        """What one of them is at on each device, as last asked for by anybody, in its values; `None` where that is not
        known. Read with every sample.

        Raises:
            DeviceError: Where the device fails.
        """
        return (None,) * len(self.gpus)

    @property
    def denial(self) -> str | None:
        """Why this process may not set such limits, or may turn out not to, a clause; `None` where nothing speaks
        against it."""
        return None

    @property
    def reloads(self) -> int:
        """How often its driver was seen to have been loaded again; each time, limits may have fallen back to the
        default."""
        return 0


class DeviceSource(Protocol):
    """Finds the devices of a job and opens them: one source a kind of device.

    It is made before the job starts, so that what can be refused is refused by then. A context manager that closes what
    finding needed.
    """

    known: Tunable | None = None
    """The devices, where they are known before the job is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is held, unless a kind says so."""
        return

    def ahead(self) -> Tunable | None:
        """The devices, opened before there is a job; `None` where they come with the job, or only its processes show
        which they are.

        Raises:
            DeviceError: Where they must not or cannot be tuned.
        """
        return None

    def find(self, job: Roots, waited_s: float) -> Tunable | None:
        """The job's devices, opened; `None` where it uses none yet.

        Args:
            waited_s: For how long the job has been looked at; infinity for the last look, or the only one.

        Raises:
            DeviceError: Where they must not or cannot be tuned.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A number that a cap changes beside the limit itself, in the device's own unit: a time window, a flag."""

    name: str
    value: int


class LimitPort(Protocol):
    """Reads and sets requested power limits, by device UUID; watts. Held by the guardian alone."""

    def requested_w(self, uuid: str) -> float | None:
        """The limit that was last requested, by anybody; `None` where it is not known (an emulated device seen from
        another process).

        Raises:
            DeviceError: Where the device fails.
        """

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        """Request a limit and verify that it holds.

        Raises:
            LimitRefused: Where the device does not take it.
        """

    def request_w(self, uuid: str, cap_w: float) -> None:
        """The same, but for whether it is enforced, where that takes time: of several devices it is awaited at once."""
        self.set_limit_w(uuid, cap_w)

    def is_enforced(self, uuid: str, cap_w: float) -> bool:
        """Whether a limit that was just requested is enforced, once it has had time to be.

        Raises:
            DeviceError: Where the device fails.
        """
        return True

    def settings(self, uuid: str) -> tuple[Setting, ...]:
        """What else `set_limit_w` changes, as it stands now; it is put back with the limit.

        Raises:
            DeviceError: Where the device fails.
        """
        return ()

    def put_back(self, uuid: str, limit_w: float | None, found: tuple[Setting, ...]) -> None:
        """Request a limit together with the settings that were found with it, whatever range caps have.

        Args:
            limit_w: `None` where somebody else's limit stays: then only settings go back that are still as a cap needs
                them.

        Raises:
            DeviceError: Where one is not taken, after the others were tried.
        """
        if limit_w is not None:
            with suppress(LimitNotEnforced):  # it was no more enforced when it was found
                self.set_limit_w(uuid, limit_w)

    def default_w(self, uuid: str) -> float | None:
        """The limit that a device has once its driver was loaded, watts; `None` where it does not say.

        Raises:
            DeviceError: Where the device fails.
        """
        return None

    @property
    def reloads(self) -> int:
        """As Tunable has it."""
        return 0

    def close(self) -> None:
        """Nothing is held, unless a kind says so."""
        return


class KnobPort(Protocol):
    """Reads and sets another knob than the power limit, by device UUID; in the knob's values. Held by the guardian
    alone."""

    def requested(self, uuid: str) -> float | None:
        """The value that was last requested, by anybody; `None` where it is not known. Nothing is ever set where it is
        not on arrival, so a device that cannot read it says then what it will be put back to.

        Raises:
            DeviceError: Where the device fails.
        """

    def set(self, uuid: str, value: float) -> None:
        """Request a value, and verify that it holds as far as that can be read.

        Raises:
            LimitRefused: Where the device does not take it.
        """

    def close(self) -> None:
        """Nothing is held, unless a kind says so."""
        return


class LimitVerifier(Protocol):
    """Sees whether a limit holds that somebody else has requested for us, by device UUID; watts. Sets nothing."""

    def requested_w(self, uuid: str) -> float | None:
        """As LimitPort has it."""

    def verify(self, uuid: str, cap_w: float) -> None:
        """See that a limit which was just requested holds.

        Raises:
            LimitRefused: Where it does not, as `LimitPort.set_limit_w` has it.
        """

    @property
    def reloads(self) -> int:
        """As Tunable has it."""
        return 0


def require_inside(cap_w: float, low_w: float, high_w: float, where: str) -> None:
    """Refuse a cap outside what a device accepts, watts.

    Args:
        where: What messages call the device.

    Raises:
        LimitRefused: For a cap outside.
    """
    asked = f"cap {cap_w:g} W"
    if not cap_w >= low_w:
        raise LimitRefused(f"{asked} is below the {low_w:g} W minimum of {where}; pass --min-cap {low_w:g} or more")
    if cap_w > high_w:
        raise LimitRefused(f"{asked} is above the {high_w:g} W maximum of {where}; pass --max-cap {high_w:g} or less")


def require_settable(refusal: str | None, *, observe: bool) -> None:
    """Refuse to set limits that cannot, or must not, be set.

    Raises:
        DeviceError: Under --observe, where there is no setter.
        LimitRefused: With a `Tunable`'s refusal.
    """
    if observe:
        raise DeviceError("an observed device has no limits to set; leave out --observe (AUTOCAP_OBSERVE) to tune")
    if refusal is not None:
        raise LimitRefused(refusal)


class PowerSource(Protocol):
    """Read with every sample. A slow meter runs at its own rate beside us: reading never waits for it.

    name: as given on the command line. whole: what it reads holds the GPUs' power already. refresh_s: seconds between
    two fresh readings; `None` while they have not shown it.
    """

    @property
    def name(self) -> str: ...

    @property
    def whole(self) -> bool: ...

    @property
    def refresh_s(self) -> float | None: ...

    def read(self) -> NodeReading:
        """The latest reading, held from the moment it came; `power_w=None` once it is too old to stand for now."""

    def notes(self) -> tuple[str, ...]:
        """Sentences for the run log on what the user should know of it; each is returned once."""
        return ()

    def close(self) -> None:
        """End what runs for it, where something does."""
        return


class Notes:
    """Sentences for the run log, each given once."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._said: set[str] = set()

    def say(self, about: str, text: str) -> None:
        """Keep a sentence for the next `take`, unless one about the same was said before."""
        if about not in self._said:
            self._said.add(about)
            self._waiting.append(text)

    def take(self) -> tuple[str, ...]:
        """Those that were not given yet."""
        waiting, self._waiting = tuple(self._waiting), []
        return waiting
