"""How a budget stands, for whoever asks."""

import math
import os

from autocap.plugins.fleet.budget.words import JobStanding, Standing
from autocap.plugins.fleet.manager.steward import Steward
from autocap.plugins.fleet.manager.tenant import Tenant


def standing(steward: Steward, *, policy: str, record: str, follows: tuple[str, ...] = ()) -> Standing:
    """record: the run directory. follows: sentences on events."""
    tenants, ledger = steward.tenants.values(), steward.ledger
    free = [one for one in tenants if one.free]
    return Standing(
        budget_w=ledger.budget_w,
        policy=policy,
        reserved_w=steward.rest.reserved_w,
        room_w=ledger.room_w,
        power_w=_power_w(steward),
        short_w=steward.short_w,
        pause=steward.pause,
        jobs=tuple(_job(steward, one) for one in tenants if not one.free),
        free=tuple(uuid for one in free for uuid in steward.uuids(one)),
        record=record,
        pid=os.getpid(),
        failed=steward.caps.sentences,
        follows=follows,
    )


def _job(steward: Steward, tenant: Tenant) -> JobStanding:
    slowdown, stderr = steward.expected(tenant)
    account = steward.ledger[tenant.name]
    return JobStanding(
        name=tenant.name,
        devices=steward.uuids(tenant),
        tuned=tenant.tuned,
        pid=tenant.pid,
        cap_w=steward.cap_w(tenant),
        lowest_w=account.lowest_w,
        draw_w=_draw_w(steward, tenant),
        slowdown=slowdown,
        slowdown_stderr=stderr,
        weight=1.0 if account.weight is None else account.weight,
        doubt=tenant.doubt,
        ceiling_w=tenant.ceiling_w,
        most_slowdown=_most(tenant),
    )


def _most(tenant: Tenant) -> float | None:
    """The slowdown that its tuner allows; `None` where it said none."""
    most = math.inf if tenant.said is None or not tenant.tuned else tenant.said.most_slowdown
    return most if most < math.inf else None


def _power_w(steward: Steward) -> float | None:
    """What all draw, watts; of the whole machine where that is known."""
    known_w = [reading.power_w for reading in steward.readings if reading.power_w is not None]
    if not known_w or len(known_w) < len(steward.readings):
        return None
    return sum(known_w) + steward.rest.drawn_w


def _draw_w(steward: Steward, tenant: Tenant) -> float | None:
    """What all devices of one draw, watts."""
    draws_w = [steward.readings[gpu].power_w for gpu in tenant.gpus] if steward.readings else []
    known_w = [w for w in draws_w if w is not None]
    return sum(known_w) if known_w and len(known_w) == len(draws_w) else None


def values_of(standing: Standing | None) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What is exported of it, by metric; nothing before anything is known."""
    if standing is None:
        return {}
    jobs = [
        (
            {
                "job": job.name if job.node is None else f"{job.node}: {job.name}",
                "tuned": "true" if job.tuned else "false",
            },
            job,
        )
        for job in standing.jobs
    ]
    return {
        "autocap_budget_watts": [({"policy": standing.policy}, standing.budget_w)],
        "autocap_budget_power_watts": [] if standing.power_w is None else [({}, standing.power_w)],
        "autocap_budget_reserved_watts": [({}, standing.reserved_w)],
        "autocap_budget_room_watts": [({}, standing.room_w)],
        "autocap_budget_short_watts": [({}, standing.short_w)],
        "autocap_budget_job_cap_watts": [(labels, job.cap_w) for labels, job in jobs],
        "autocap_budget_job_ceiling_watts": [
            (labels, job.ceiling_w) for labels, job in jobs if job.ceiling_w is not None
        ],
        "autocap_budget_job_power_watts": [(labels, job.draw_w) for labels, job in jobs if job.draw_w is not None],
        "autocap_budget_job_slowdown_ratio": [(labels, job.slowdown) for labels, job in jobs],
    }
