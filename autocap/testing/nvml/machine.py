"""What an emulated machine is like: its cards, what is wrong with them, and the job that they run. No numpy here: the
watchdog process reads this and must be quick."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

LOST, UNKNOWN, TIMEOUT, NO_PERMISSION = 15, 999, 10, 4  # the codes that faults are made of, as NVML has them


class Limits(StrEnum):
    """What becomes of a limit that is set."""

    SETTABLE = "settable"
    REFUSED = "refused"  # no permission
    ROOTS = "roots"  # no permission but for root, as on a real machine
    IGNORED = "ignored"  # success is reported, and nothing happens
    CLAMPED = "clamped"  # success is reported, and `clamp_mw` is taken
    UNSUPPORTED = "unsupported"  # as on laptops and virtual GPUs: the enforced limit reads, nothing else does


class Trouble(StrEnum):
    """What is wrong with a card for a while."""

    STUCK = "stuck"
    ZERO = "zero"
    MISSING = "missing"
    COUNTER_STANDS = "counter stands still"  # and catches up afterwards
    COUNTER_SKIPS = "counter leaves out"  # what was used meanwhile
    THERMAL = "thermal"
    POWER_BRAKE = "power brake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A trouble from one time to another, seconds. every_s: from one beginning to the next, where it comes again."""

    trouble: Trouble
    from_s: float = 0.0
    until_s: float = 1e12
    every_s: float | None = None

    def lasts(self, t_s: float) -> bool:
        """Whether it is there at some time."""
        since_s = t_s - self.from_s
        if self.every_s is not None and since_s >= 0:
            since_s %= self.every_s
        return 0 <= since_s < self.until_s - self.from_s


class Way(StrEnum):
    """To which step a limit between two of them is taken."""

    DOWN = "down"
    UP = "up"
    NEAREST = "nearest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A firmware that takes limits in steps, lag_s after they were set, seconds. from_mw: from where they count.
    untouched_mw: limits that it takes as they are, such as the board's own."""

    step_mw: int
    lag_s: float = 0.008
    way: Way = Way.DOWN
    from_mw: int = 0
    untouched_mw: tuple[int, ...] = ()

    def made_of(self, limit_mw: int) -> int:
        """What becomes of a limit, milliwatts."""
        over_mw = (limit_mw - self.from_mw) % self.step_mw
        if over_mw == 0 or limit_mw in self.untouched_mw:
            return limit_mw
        up = self.way is Way.UP or (self.way is Way.NEAREST and 2 * over_mw >= self.step_mw)
        return limit_mw - over_mw + (self.step_mw if up else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU. Limits in milliwatts, as NVML has them; arrival_mw: requested when the machine appears.

    ceiling_mw: an outside limiter's. instant_scope: of field 186, `None` where there is none. limit_fields: whether
    fields 190 and 192 are there. usage_is_average: nvmlDeviceGetPowerUsage shows the last second's mean. persistence:
    without it a limit falls back to the default once the last client closes the library, on a machine of one process;
    between processes that is only shown. measured_stamps: field values carry the time of the measurement, not of the
    question. pids: other processes that compute on it; drawing_pids: that draw. steps: what its firmware does to
    limits, a moment after they were set. ignored_share: of the sets, by chance, that report success while nothing
    happens; wrong_share: that report success while another limit is taken, wrong_mw away. floor_mw: the least that it
    takes, whatever min_mw says: less becomes that, or, where floor_refuses, is refused. denied: C functions that answer
    NO_PERMISSION. acts_share: of its limit that it holds its draw at, as a board whose supply allows no more.
    plateau_mw: limits from the first to the second are all taken as the first. peaks_share: of the instant readings, by
    chance, that show peaks_gain times the draw, as a cap bounds means. rest_mhz: the clock that is shown at rest.
    counter_wraps_mj: where its energy counter begins anew.
    """

    uuid: str
    min_mw: int
    max_mw: int
    default_mw: int
    arrival_mw: int
    name: str = "Emulated NVML"
    ceiling_mw: int | None = None
    clamp_mw: int | None = None
    limits: Limits = Limits.SETTABLE
    minor_number: int | None = None
    mig: bool = False
    virtual: bool = False
    persistence: bool = True
    instant_scope: int | None = 0
    limit_fields: bool = True
    samples_buffer: bool = False
    usage_is_average: bool = False
    measured_stamps: bool = False
    energy_counter: bool = True
    energy_gain: float = 1.0
    episodes: tuple[Episode, ...] = ()
    pids: tuple[int, ...] = ()
    drawing_pids: tuple[int, ...] = ()
    steps: Steps | None = None
    ignored_share: float = 0.0
    wrong_share: float = 0.0
    wrong_mw: int = 0
    floor_mw: int = 0
    floor_refuses: bool = False
    denied: tuple[str, ...] = ()
    acts_share: float = 1.0
    plateau_mw: tuple[int, int] | None = None
    peaks_share: float = 0.0
    peaks_gain: float = 1.2
    rest_mhz: int | None = None
    counter_wraps_mj: int | None = None

    def made_of(self, limit_mw: int) -> int:
        """What it makes of a limit that is asked for, once its firmware has had its time."""
        limit_mw = max(limit_mw, self.floor_mw)
        return limit_mw if self.steps is None else self.steps.made_of(limit_mw)

    def acts_mw(self, limit_mw: int) -> float:
        """What it holds its draw at under a limit that it has taken."""
        if self.ceiling_mw is not None:
            limit_mw = min(limit_mw, self.ceiling_mw)
        if self.plateau_mw is not None and self.plateau_mw[0] <= limit_mw <= self.plateau_mw[1]:
            limit_mw = self.plateau_mw[0]
        return self.acts_share * limit_mw


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A function of the library that fails, or, with code 0, takes its time. Calls are counted in each process apart.

    function: its C name, or "*" for all (initialising left out). after: calls that go well first. times: how many
    fail then, `None` for all. gpu: only calls about that one. from_s: not before. delay_s: how long such a call hangs.
    """

    code: int
    function: str = "*"
    after: int = 0
    times: int | None = 1
    gpu: int | None = None
    from_s: float = 0.0
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A limit that was, or will be, requested by whoever it was."""

    t_s: float
    gpu: int
    limit_mw: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The whole machine.

    profile: of the job (`autocap.devices.model.profiles`). sensor: a preset of `autocap.devices.model.sensor` or
    `autocap.testing.logged_sensors`. job_gpus: which cards the job uses, `None` for all. job_pid: who the driver
    says computes there; `None` until a player registers. start_s: when its first iteration begins; `None` as
    job_pid. changes: limits that somebody else sets (`again` for an agent that does so every few seconds). reloads:
    when the driver is taken out and loaded again, seconds: limits fall back to the default, counters begin anew,
    handles from before are refused, and a process that had opened the library before is told UNINITIALIZED until it
    opens it again. missing: C functions that this driver lacks. has_driver: without one the library cannot be
    loaded. efficiency_spread: as SimulatedNode has it.
    """

    profile: str
    cards: tuple[Card, ...]
    sensor: str = "turing"
    seed: int = 1
    jitter: float = 0.01
    iterations: int | None = None
    job_gpus: tuple[int, ...] | None = None
    job_pid: int | None = None
    start_s: float | None = None
    changes: tuple[Change, ...] = ()
    reloads: tuple[float, ...] = ()
    faults: tuple[Fault, ...] = ()
    missing: tuple[str, ...] = ()
    has_driver: bool = True
    driver_version: str = "575.57.08"
    efficiency_spread: float = 0.0
    call_s: float = 0.012
    enforced_lag_s: float = 0.02

    def with_card(self, gpu: int, card: Card) -> "Machine":
        return replace(self, cards=(*self.cards[:gpu], card, *self.cards[gpu + 1 :]))


def again(gpu: int, limit_mw: int, *, from_s: float, every_s: float, until_s: float = 36_000.0) -> tuple[Change, ...]:
    """An agent that sets its number again and again."""
    times = range(int((until_s - from_s) // every_s) + 1)
    return tuple(Change(t_s=from_s + every_s * number, gpu=gpu, limit_mw=limit_mw) for number in times)


def pci_bus(gpu: int) -> int:
    """The number of a card's PCI bus, which is no count of the cards."""
    return 0x1B + 0x20 * gpu


def machine(profile: str, *, gpus: int = 1, arrivals_mw: Sequence[int] | None = None) -> Machine:
    """A machine of like cards with the profile's limits, its job at work since before time 0.

    arrivals_mw: the limits requested when the machine appears, one a card; the default limit unless given.
    """
    from autocap.devices.model import profiles

    caps = profiles.load(profile).cap_range
    name = f"{profiles.load(profile).gpu_name} (emulated NVML)"
    cards = tuple(
        Card(
            uuid=f"GPU-{index:08x}-0000-4000-8000-00000e0e0e0e",
            name=name,
            min_mw=round(1000 * caps.min_w),
            max_mw=round(1000 * caps.max_w),
            default_mw=round(1000 * caps.default_w),
            arrival_mw=round(1000 * caps.default_w) if arrivals_mw is None else arrivals_mw[index],
            minor_number=index,
        )
        for index in range(gpus)
    )
    return Machine(profile=profile, cards=cards, start_s=0.0)
