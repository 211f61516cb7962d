"""Which nodes of a Ray cluster a job's workers run on, from the tables of its head; no dashboard is needed."""

from collections.abc import Sequence
from dataclasses import dataclass

import ray
from ray._private.state import state
from ray.core.generated.gcs_pb2 import ActorTableData, JobTableData

from autocap.job.processes import identify, tree

_DEAD = ActorTableData.DEAD
_ALIVE = ActorTableData.ALIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class RayJob:
    """id: as Ray has it, hexadecimal, empty for no job in particular. node_ids, names: of its nodes."""

    id: str
    node_ids: tuple[str, ...]
    names: tuple[str, ...]


def all_nodes() -> RayJob:
    """All of the cluster's living nodes."""
    return _named("", [node["NodeID"] for node in ray.nodes() if node["Alive"]])


def job_of(driver: int | None, name: str | None) -> RayJob | None:
    """The job of a driver process, or of what it has started, or with a name, once all of its actors live; `None`
    until then. Its nodes are those where it was given GPUs, or else CPUs, or else has any actor."""
    accessor = state._connect_and_get_accessor()
    jobs = [
        JobTableData.FromString(entry)
        for entry in accessor.get_job_table(skip_submission_job_info_field=True, skip_is_running_tasks_field=True)
    ]
    (job,) = [one for one in jobs if not one.is_dead and _is_meant(one, driver, name)][-1:] or (None,)
    if job is None:
        return None
    actors = [ActorTableData.FromString(entry) for entry in accessor.get_actor_table(ray.JobID(job.job_id), None)]
    living = [actor for actor in actors if actor.state != _DEAD]
    if not living or any(actor.state != _ALIVE for actor in living):
        return None
    for resource in ("GPU", "CPU"):
        holding = [actor for actor in living if actor.required_resources.get(resource, 0) > 0]
        if holding:
            living = holding
            break
    return _named(job.job_id.hex(), sorted({actor.address.node_id.hex() for actor in living}))


def _is_meant(job: JobTableData, driver: int | None, name: str | None) -> bool:
    if driver is None:
        return name in (job.job_id.hex(), job.config.metadata.get("job_submission_id"))
    if job.driver_address.ip_address not in (ray.util.get_node_ip_address(), "127.0.0.1"):
        return False
    root = identify(driver)
    return root is not None and job.driver_pid in {each.pid for each in tree(root)}


def _named(job: str, node_ids: Sequence[str]) -> RayJob:
    """With names to tell nodes apart: the host's, and where pretended nodes share one, the beginning of the id."""
    nodes = {node["NodeID"]: node for node in ray.nodes()}
    hosts = {each: _host(nodes[each]) for each in node_ids}
    shared = [host for host in hosts.values() if list(hosts.values()).count(host) > 1]
    names = {each: f"{host}-{each[:6]}" if host in shared else host for each, host in hosts.items()}
    order = sorted(node_ids, key=lambda each: names[each])
    return RayJob(id=job, node_ids=tuple(order), names=tuple(names[each] for each in order))


def _host(node: dict[str, str]) -> str:
    given = node["NodeName"]  # by `ray start --node-name`; else the address
    return given if given != node["NodeManagerAddress"] else node["NodeManagerHostname"]
