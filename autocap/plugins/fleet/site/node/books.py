"""How a node stands, as its site is told."""

import math
from dataclasses import replace

import numpy as np

from autocap.plugins.fleet.manager.standing import standing
from autocap.plugins.fleet.manager.steward import Steward
from autocap.plugins.fleet.nodes.sharing import Books, JobBooks

_DIGITS = 6


def books_of(steward: Steward, *, number: int, serial: int) -> Books:
    """number, serial: as `Books` has them. Where a part is held it is the ledger's budget, and may all be in force."""
    ledger, now = steward.ledger, standing(steward, policy="", record="")
    of_jobs_w = sum(len(one.devices) * ledger[one.name].lowest_w for one in now.jobs)
    charged_w = ledger.budget_w - ledger.room_w
    reserved_w = steward.rest.reserved_w
    return Books(
        number=number,
        serial=serial,
        may_w=max(charged_w, ledger.budget_w if serial else 0.0),
        floor_w=ledger.least_w,
        fixed_w=ledger.least_w - of_jobs_w,
        found_w=sum(steward.caps.counted_w.get(gpu, w) for gpu, w in enumerate(steward.caps.found_w)) + reserved_w,
        reserved_w=reserved_w,
        jobs=tuple(
            JobBooks(at=replace(one, doubt=None, most_slowdown=_most(steward, one.name)), **_curve(steward, one.name))
            for one in now.jobs
        ),
        free=now.free,
        powers_w=tuple(reading.power_w for reading in steward.readings),
        power_w=now.power_w,
        failed=now.failed,
    )


def _most(steward: Steward, name: str) -> float | None:
    """The slowdown that is kept to as long as the budget holds for all."""
    most = steward.ledger[name].curve.most_slowdown
    return most if most < math.inf else None


def _curve(steward: Steward, name: str) -> dict[str, tuple[float, ...]]:
    curve = steward.ledger[name].wanted()
    caps_w, slowdown, energy = (
        tuple(float(f"{value:.{_DIGITS}g}") for value in column)
        for column in (curve.caps_w, curve.slowdown, np.maximum(curve.energy, 1e-6))
    )
    return {"caps_w": caps_w, "slowdown": slowdown, "energy": energy}
