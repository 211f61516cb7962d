"""How soon a budget follows the events of a VTN."""

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.budget_faults.scene import BUDGET_W, Floor
from bench.budget_faults.vtn import CLIENT_ID, CLIENT_SECRET, StandInVtn, event, in_seconds

_AHEAD_S, _SETTLES_S = 15.0, 15.0  # by then the caps of jobs that draw less than they might have come down
_LESS = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Seconds. begun_s, begun_draw_s: from the start of an event that was known ahead to the last limit lowered, and to
    the cards' draw below it. told_s: from when a VTN has an event that begins at once to the last limit lowered.
    deleted_s: from when it has it no more to the budget as it was."""

    begun_s: float
    begun_draw_s: float
    told_s: float
    deleted_s: float


def credentials(folder: Path) -> Path:
    """A file of the stand-in's."""
    path = folder / "credentials.toml"
    path.write_text(f'client_id = "{CLIENT_ID}"\nclient_secret = "{CLIENT_SECRET}"\n')
    path.chmod(0o600)
    return path


def followed(seed: int) -> Followed:
    """Four jobs on eight cards, and a VTN that takes a quarter of the watts that they have been granted, ahead and at
    once. Raises Late."""
    with TemporaryDirectory() as name, StandInVtn() as vtn, Floor(Path(name) / "floor") as floor:
        floor.start_jobs()
        floor.start_budget(BUDGET_W, "--openadr", vtn.url, "--openadr-credentials", str(credentials(Path(name))))
        floor.until(lambda: floor.joined() == len(floor.jobs), "all have joined")
        floor.until(lambda: len(vtn.asked) > 2, "the VTN is asked")
        time.sleep(_SETTLES_S)
        less_w = _LESS * sum(floor.limits_mw()) / 1e3
        starts_s = time.time() + _AHEAD_S
        vtn.events.append(event("ahead", less_w / 1e3, start=in_seconds(_AHEAD_S), duration="PT10S"))
        floor.until(lambda: floor.is_within(less_w), "all limits are lowered")
        begun_s = time.time() - starts_s
        floor.until(lambda: floor.power_w() <= less_w, "the cards draw less")
        begun_draw_s = time.time() - starts_s
        floor.until(lambda: _budget_w(floor) == BUDGET_W, "it is over")
        time.sleep(_SETTLES_S + seed % 10)  # at any time between two questions
        less_w = _LESS * sum(floor.limits_mw()) / 1e3
        vtn.events = [event("now", less_w / 1e3, start="0001-01-01", duration="P9999Y")]
        told_s = floor.until(lambda: floor.is_within(less_w), "all limits are lowered")
        time.sleep(3.0)
        vtn.events = []
        deleted_s = floor.until(lambda: _budget_w(floor) == BUDGET_W, "it is over")
        floor.end()
    return Followed(begun_s=begun_s, begun_draw_s=begun_draw_s, told_s=told_s, deleted_s=deleted_s)


def _budget_w(floor: Floor) -> float | None:
    standing = floor.standing()
    return None if standing is None else standing.budget_w
