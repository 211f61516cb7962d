"""Which nodes of a Ray cluster a job's workers run on, from the tables of its head; no dashboard is needed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ray
from ray._private import worker
from ray._private.state import state
from ray.core.generated.gcs_pb2 import ActorTableData, JobTableData

from autocap.job.processes import identify, tree

NAMESPACE = "autocap"  # of Ray jobs that are ours
_MOST_SHOWN = 60  # characters of a command
_DEAD = ActorTableData.DEAD
_ALIVE = ActorTableData.ALIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class RayJob:
    """id: as Ray has it, hexadecimal, empty for no job in particular. node_ids, names: of its nodes. pids: of the
    processes that its actors have on each. is_everywhere: whether no node is left to which workers could yet come: it
    is on all that have GPUs, or in a cluster without any, CPUs."""

    id: str
    node_ids: tuple[str, ...]
    names: tuple[str, ...]
    pids: tuple[tuple[int, ...], ...]
    is_everywhere: bool


def head_answers(within_s: float) -> bool:
    """Whether the cluster's head does, in time. Waits for it."""
    try:
        worker.global_worker.gcs_client.internal_kv_exists(b"autocap", None, timeout=within_s)
    except Exception:  # noqa: BLE001 - Ray's own are not all RayErrors
        return False
    return True


def all_nodes() -> RayJob:
    """All of the cluster's living nodes."""
    return _named("", {node["NodeID"]: [] for node in ray.nodes() if node["Alive"]}, is_everywhere=True)


def offering() -> RayJob:
    """Of the living nodes those that offer GPUs, or where none does, all."""
    there = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    gpus = [each for each, node in there.items() if node["Resources"].get("GPU", 0) > 0]
    return _named("", {each: [] for each in gpus or there}, is_everywhere=True)


def living(name: str) -> list[str]:
    """The ids of the living nodes that have a name, as RayJob has them."""
    return [
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and name in (_host(node), _apart(_host(node), node["NodeID"]))
    ]


def why_not(name: str) -> str | None:
    """`None` where a job of that name runs; else so, with those that do."""
    jobs = _running()
    if any(_is_meant(job, None, name) for job in jobs):
        return None
    there = ", ".join(f"{job.job_id.hex()} ({' '.join(job.entrypoint.split())[:_MOST_SHOWN]})" for job in jobs)
    return f"Ray has no running job {name}; " + (f"those that run: {there}" if there else "none runs")


def _running() -> list[JobTableData]:
    """All but what we and others like us are."""
    table = state._connect_and_get_accessor().get_job_table(
        skip_submission_job_info_field=True, skip_is_running_tasks_field=True
    )
    jobs = [JobTableData.FromString(entry) for entry in table]
    return [job for job in jobs if not job.is_dead and job.config.ray_namespace != NAMESPACE]


def job_of(driver: int | None, name: str | None) -> RayJob | None:
    """The job of a driver process, or of what it has started, or with a name, once all of its actors live; `None`
    until then. Its nodes are those where it was given GPUs, or else CPUs, or else has any actor."""
    accessor = state._connect_and_get_accessor()
    (job,) = [one for one in _running() if _is_meant(one, driver, name)][-1:] or (None,)
    if job is None:
        return None
    actors = [ActorTableData.FromString(entry) for entry in accessor.get_actor_table(ray.JobID(job.job_id), None)]
    living = [actor for actor in actors if actor.state != _DEAD]
    if not living or any(actor.state != _ALIVE for actor in living):
        return None
    offers = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    node_ids, is_everywhere = where(
        [(actor.address.node_id.hex(), actor.required_resources) for actor in living], offers
    )
    pids = {node: [one.pid for one in living if one.address.node_id.hex() == node] for node in node_ids}
    return _named(job.job_id.hex(), pids, is_everywhere=is_everywhere)


_Resources = Mapping[str, float]


def where(actors: Sequence[tuple[str, _Resources]], offers: Mapping[str, _Resources]) -> tuple[list[str], bool]:
    """The job's nodes, and whether that is everywhere, as RayJob has both. actors: the node of each, and what it was
    given. offers: what each node has."""
    for resource in ("GPU", "CPU"):
        holding = {node for node, given in actors if given.get(resource, 0) > 0}
        offering = {node for node, offer in offers.items() if offer.get(resource, 0) > 0}
        if holding:
            comes_first = resource == "GPU" or not any(offer.get("GPU", 0) > 0 for offer in offers.values())
            return sorted(holding), comes_first and offering <= holding
    return sorted({node for node, _ in actors}), False


def _is_meant(job: JobTableData, driver: int | None, name: str | None) -> bool:
    if driver is None:
        return name in (job.job_id.hex(), job.config.metadata.get("job_submission_id"))
    if job.driver_address.ip_address not in (ray.util.get_node_ip_address(), "127.0.0.1"):
        return False
    root = identify(driver)
    return root is not None and job.driver_pid in {each.pid for each in tree(root)}


def _named(job: str, pids: Mapping[str, Sequence[int]], *, is_everywhere: bool) -> RayJob:
    """With names to tell nodes apart: the host's, and where pretended nodes share one, the beginning of the id.

    pids: of the job's actors, by their node's id.
    """
    nodes = {node["NodeID"]: node for node in ray.nodes()}
    hosts = {each: _host(nodes[each]) for each in pids}
    shared = [host for host in hosts.values() if list(hosts.values()).count(host) > 1]
    names = {each: _apart(host, each) if host in shared else host for each, host in hosts.items()}
    order = sorted(pids, key=lambda each: names[each])
    return RayJob(
        id=job,
        node_ids=tuple(order),
        names=tuple(names[each] for each in order),
        pids=tuple(tuple(sorted(pids[each])) for each in order),
        is_everywhere=is_everywhere,
    )


def _apart(host: str, node_id: str) -> str:
    return f"{host}-{node_id[:6]}"


def _host(node: dict[str, str]) -> str:
    given = node["NodeName"]  # by `ray start --node-name`; else the address
    return given if given != node["NodeManagerAddress"] else node["NodeManagerHostname"]
