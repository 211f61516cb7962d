"""The budget of this machine as what may hold the limits of a session's devices: what it holds, and how a session sets
caps under it."""

from contextlib import closing
from pathlib import Path

from autocap.devices.base import Tunable
from autocap.errors import ActuatorDenied, PeerLost
from autocap.plugins.fleet.budget.calling import NoBudget, call
from autocap.plugins.fleet.budget.client import BudgetGuardian
from autocap.plugins.fleet.budget.words import Ask, Standing
from autocap.session.actuating import Actuation


def actuation(device: Tunable) -> Actuation | None:
    """How a device is set under it; `None` where no budget holds any of its GPUs. Raises ActuatorDenied where it holds
    only some of them."""
    found = _standing()
    if found is None:
        return None
    path, standing = found
    held = _held(standing)
    outside = [gpu for gpu in device.gpus if gpu.uuid not in held]
    if len(outside) == len(device.gpus):
        return None
    if outside:
        raise ActuatorDenied(
            f"the power budget that runs here holds other GPUs of the job, but not {outside[0].where}; start it with "
            "all of them in --gpus"
        )
    guardian = BudgetGuardian(gpus=device.gpus, path=path)
    return Actuation(
        name="budget",
        where=str(path),
        gpus=device.gpus,
        budget=guardian,
        guardian=guardian.of,
        reason=f"a power budget of {standing.budget_w:g} W runs here",
    )


def inventory() -> dict[str, object] | None:
    """What `autocap devices` says of it, as JSON has it; `None` where none runs. pid: of its manager. gpus: UUIDs of
    those whose limits it holds."""
    found = _standing()
    if found is None:
        return None
    one = found[1]
    return {"watts": one.budget_w, "policy": one.policy, "pid": one.pid, "gpus": tuple(sorted(_held(one)))}


def _standing() -> tuple[Path, Standing] | None:
    try:
        with closing(call()) as there:
            return there.path, there.ask(Ask(), Standing)
    except (NoBudget, PeerLost):
        return None


def _held(standing: Standing) -> set[str]:
    return {*standing.free, *(uuid for job in standing.jobs for uuid in job.devices)}
