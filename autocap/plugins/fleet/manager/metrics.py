"""What a budget's manager exports, from how it stands."""

from autocap.plugins.fleet.budget.words import Standing
from autocap.reports.prometheus.budget import Values


def values_of(standing: Standing | None) -> Values:
    """By metric; nothing before anything is known."""
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
