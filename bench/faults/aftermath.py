"""When a fault of a real process happens, and what must come of it: the limits back in time, the job done."""

import os
import time
from contextlib import suppress
from dataclasses import replace
from random import Random

from bench.faults.outcome import Outcome, difference, silence
from bench.faults.processes import ARRIVALS_MW, Scene
from bench.waiting import Late

BACK_WITHIN_S, HUNG_BACK_WITHIN_S = 1.0, 2.0  # guarantee 1 of the contract
LATEST_S = 18.0  # of a random moment; the first cap is set after 7 to 11 s
CHANGES = 12  # limits that a controller sets in that time


def random_moment(scene: Scene, rng: Random, after_s: float = 0.0) -> None:
    """Some time after the start; or right after one of the limits was set, also in the middle of the next."""
    if rng.random() < 0.5:
        time.sleep(rng.uniform(after_s, LATEST_S))
    else:
        count = rng.randint(1, CHANGES)
        scene.until(lambda: scene.changes(count), f"limit {count} is set")
        time.sleep(rng.uniform(0.0, 0.06))


def send(pid: int, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)


def kill(scene: Scene, result: Outcome) -> Outcome:
    """SIGKILL to the controller, and what must come of it."""
    assert scene.controller is not None
    scene.controller.kill()
    scene.controller.wait()
    changed, back_s = put_back(scene, within_s=BACK_WITHIN_S)
    return ended(scene, replace(result, changed=changed, back_s=back_s))


def put_back(scene: Scene, within_s: float) -> tuple[str | None, float | None]:
    """What is wrong with how the limits come back from now on, and the seconds it takes; `None` for either where they
    are there already, or never come."""
    began_s = time.monotonic()
    if scene.are_back():
        return None, None
    try:
        scene.until(scene.are_back, "the limits are back", 10.0)
    except Late:
        return difference(ARRIVALS_MW, scene.limits_mw()), None
    back_s = time.monotonic() - began_s
    return (f"back only after {back_s:.2f} s" if back_s > within_s else None), back_s


def ended(
    scene: Scene, result: Outcome, pattern: str | None = None, expected: tuple[int, ...] = ARRIVALS_MW
) -> Outcome:
    """The job goes on to its end, and the limits stay."""
    harmed = scene.harm()
    with_message = silence(scene.said(), pattern)
    changed = result.changed or difference(expected, scene.limits_mw())
    try:
        scene.until(lambda: not scene.leftovers(), "the journal is empty", 5.0)
    except Late:
        changed = changed or f"the journal still holds {', '.join(scene.leftovers())}"
    return replace(result, harmed=result.harmed or harmed, silent=with_message, changed=changed)
