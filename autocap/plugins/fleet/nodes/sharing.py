"""What the site of a budget over several nodes and their managers say to each other; `fleet.site` says when."""

from dataclasses import dataclass

from autocap.plugins.fleet.budget.words import JobStanding


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """To the nodes, twice a second or so, and whenever a part changes: the site lives. Each answers with `Books`.

    since: for each node, by its number, how many numbers ago the last of these was that it is known to have answered.
    parts_w: of the budget, watts; serials: of the orders that these are of, 0 for a node that is to hold its floor.
    """

    number: int
    policy: str
    since: tuple[int, ...]
    serials: tuple[int, ...]
    parts_w: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBooks:
    """One job of a node. at: how it stands; the slowdown that it allows is the one that is kept to. caps_w, slowdown,
    energy: its curve, as `JobCurve` has it, from its lowest cap to the highest that is of use to it."""

    at: JobStanding
    caps_w: tuple[float, ...]
    slowdown: tuple[float, ...]
    energy: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """From a node: how it stands. number: of the latest `Share` that it has heard, 0 before. serial: of the order whose
    part it holds, 0 where it holds its floor. Watts of all its devices:

    may_w: the most that may be in force until it takes up another part. floor_w: what it falls to by itself; fixed_w:
    of that, what is no job's. found_w: what is in force once its limits are as they were found. powers_w: of each
    device, in the order of `Found`; power_w: of the node, as far as the budget has it. free: devices that no job uses.
    failed: sentences on devices that are outside."""

    number: int
    serial: int
    may_w: float
    floor_w: float
    fixed_w: float
    found_w: float
    reserved_w: float
    jobs: tuple[JobBooks, ...]
    free: tuple[str, ...]
    powers_w: tuple[float | None, ...]
    power_w: float | None
    failed: tuple[str, ...] = ()
