"""The plan that a sweep's options mean on the devices that there are."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from autocap import devices
from autocap.clock import Clock
from autocap.config import TuneConfig
from autocap.config.sweep import COOL_DOWN_SECONDS, SweepConfig
from autocap.devices.base import Tunable
from autocap.errors import ActuatorDenied, DeviceError
from autocap.events.sweep import GpuSet, SweepPlan
from autocap.records import GpuInfo
from autocap.session.actuating import Actuation, actuation
from autocap.session.caps import cap_grid, checker, common_range, limits_found
from autocap.sweep.schedule import default_step_w

MOST_RUNS = 20_000


def planned(config: SweepConfig, clock: Clock, stack: ExitStack) -> tuple[SweepPlan, dict[str, Tunable]]:
    """Look at the devices, and plan; nothing is set.

    Also returns the devices of each set by its label, open until the stack closes; a set is not there where only the
    command makes its devices. Raises AutocapError for what cannot be done on them.
    """
    sets: list[GpuSet] = []
    ahead: dict[str, Tunable] = {}
    emulated = False
    for names in config.gpu_sets or (None,):
        finder = stack.enter_context(devices.open_source(config.run_on(names), clock, checker(config.run.tune)))
        opened = finder.ahead()
        device = opened or finder.known
        if device is None:
            raise DeviceError(
                "which of the GPUs here the command uses shows only once it runs, and its caps are set before that; "
                "pass --gpus, or set CUDA_VISIBLE_DEVICES"
            )
        gpus = device.gpus
        if opened is not None:
            stack.enter_context(closing(opened))
            gpus = _settable(config, opened)
        one = gpu_set(config.run.tune, gpus, limits_found(device))
        sets.append(one)
        emulated = emulated or device.emulated
        if opened is not None:
            ahead[one.label] = opened
    label, times = Counter(one.label for one in sets).most_common(1)[0]
    if times > 1:
        raise DeviceError(f"--gpus names GPU {label} as a set {times} times; give each set once")
    runs = config.repeats * sum(len(one.caps_w) for one in sets)
    if runs > MOST_RUNS:
        raise DeviceError(
            f"these are {runs} runs of the command, and a sweep has at most {MOST_RUNS}; pass a larger --cap-step, or "
            "fewer --repeats"
        )
    cool_down_s = config.cool_down_s
    if cool_down_s is None:
        cool_down_s = 0.0 if emulated else COOL_DOWN_SECONDS
    plan = SweepPlan(
        command=config.run.command,
        name=config.name,
        device=config.run.device,
        emulated=emulated,
        sets=tuple(sets),
        repeats=config.repeats,
        order=config.order,
        seed=config.seed,
        discard=config.discard,
        cool_down_s=cool_down_s,
        stop_slowdown=config.stop_slowdown,
        node_power=config.run.node_power,
    )
    return plan, ahead


def _settable(config: SweepConfig, device: Tunable) -> tuple[GpuInfo, ...]:
    """The devices, with the caps that may be set there. Raises DeviceError where none may be, and one is to be."""
    if config.run.tune.observe:
        return device.gpus
    if device.refusal is not None:
        raise DeviceError(device.refusal)
    return required_way(config, device).gpus


def required_way(config: SweepConfig, device: Tunable) -> Actuation:
    """How the caps of a sweep are set. Raises ActuatorUnavailable, also under a power budget, whose ceilings would
    change what is measured."""
    way = actuation(config.run.actuator, device)
    if way.budget is not None:
        raise ActuatorDenied(
            f"{way.reason}, and a sweep needs caps of its own choice; end it, or sweep before it begins"
        )
    return way


def observed(plan: SweepPlan) -> SweepPlan:
    """What is left of a plan when nothing may be set: the runs at the limit found on arrival."""
    sets = tuple(replace(one, caps_w=(one.baseline_w,)) for one in plan.sets)
    return replace(plan, sets=sets, observe=True)


def device_names(plan: SweepPlan, one: GpuSet) -> tuple[str, ...]:
    """How to name the GPUs of a set in --gpus and to CUDA: by UUID, which no order of devices changes.

    Emulated devices get theirs only with the job.
    """
    return tuple(str(gpu.index) if plan.emulated else gpu.uuid for gpu in one.gpus)


def gpu_set(tune: TuneConfig, gpus: Sequence[GpuInfo], original_w: Sequence[float]) -> GpuSet:
    """The caps of one set, with the limit found on arrival among them: what they are compared with."""
    allowed = common_range(gpus)
    baseline_w = min(max(min(original_w), allowed.min_w), allowed.max_w)
    low_w, high_w = tune.min_cap_w or allowed.min_w, tune.max_cap_w or baseline_w
    stepped = replace(tune, step_w=tune.step_w or default_step_w(low_w, high_w))
    caps_w = {*cap_grid(stepped, gpus, original_w), baseline_w}
    return GpuSet(
        label=",".join(str(gpu.index) for gpu in gpus),
        gpus=tuple(gpus),
        baseline_w=baseline_w,
        caps_w=tuple(sorted(caps_w, reverse=True)),
    )
