"""Which knob a session turns, what it is found at, and what may be tried of it: of caps, the user's bounds inside the
devices' own, and never above the arrival limit unasked."""

from collections.abc import Sequence

from autocap.config import RunConfig, TuneConfig
from autocap.config.values import too_fine
from autocap.devices.base import CheckCaps, Device, Tunable
from autocap.errors import DeviceError
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits.guard import LimitGuard
from autocap.records import CapRange, GpuInfo
from autocap.strategies import registry
from autocap.strategies.grid import DEFAULT_STEP_W, CapGrid
from autocap.strategies.registry import StrategyFactory
from autocap.text import did_you_mean


def turned(config: TuneConfig, device: Tunable) -> Knob:
    """The knob that --knob names, of those that the devices offer. Raises DeviceError for another one."""
    known = {knob.name: knob for knob in (*device.knobs, POWER_LIMIT)}
    if config.knob not in known:
        raise DeviceError(
            f"{device.gpus[0].where} has no knob '{config.knob}'{did_you_mean(config.knob, known)}; choose of "
            f"{', '.join(known)}"
        )
    return known[config.knob]


def require_turnable(config: RunConfig, strategy: StrategyFactory, device: Tunable) -> Knob:
    """The knob, which its strategy can search. Raises DeviceError where the device has none of that name, or of it no
    setting that was asked for, and UsageError where another strategy is needed, or another option of it."""
    knob = turned(config.tune, device)
    registry.require_knob(config.strategy, strategy, knob)
    registry.option_values(strategy, config.strategy_options, knob)
    _named(config.tune, knob)
    return knob


def found_at(device: Tunable, knob: Knob, guard: LimitGuard | None) -> tuple[Knob, tuple[float, ...]]:
    """The settings found on arrival, by whoever guards them, or read. A value of an ordered knob that is not on its
    list is on that of the knob that is returned, so that the baseline is what was found. Raises DeviceError where one
    is not known."""
    if knob.is_power_limit:
        return knob, limits_found(device) if guard is None else settings_known(device.gpus, knob, guard.found)
    values = device.knob_values(knob.name) if guard is None else guard.original_w
    try:
        knob = knob.including([value for value in values if value is not None])
    except ValueError as error:
        raise DeviceError(f"{error}, which is where it was found; set it to one of them first") from None
    if guard is not None:
        guard.knob = knob
    return knob, settings_known(device.gpus, knob, tuple(map(knob.setting_or_none, values)))


def settings_now(device: Tunable, knob: Knob) -> tuple[float | None, ...]:
    """What it is set to on each device, `None` where that is not known."""
    if knob.is_power_limit:
        return tuple(reading.requested_w for reading in device.read())
    return tuple(map(knob.setting_or_none, device.knob_values(knob.name)))


def settings_known(gpus: Sequence[GpuInfo], knob: Knob, found: Sequence[float | None]) -> tuple[float, ...]:
    """The same as a guardian found them, every one of them known. Raises DeviceError for one that is not."""
    for gpu, setting in zip(gpus, found, strict=True):
        if setting is None:
            raise DeviceError(f"the {knob.label} of {gpu.where} cannot be read, so it could not be put back; not tuned")
    return tuple(setting for setting in found if setting is not None)


def setting_grid(
    config: TuneConfig, gpus: Sequence[GpuInfo], knob: Knob, found: Sequence[float], required: Sequence[float] = ()
) -> CapGrid:
    """What to search among. found: the settings on arrival, which nothing faster is tried than unless it is named.
    required: settings that the strategy's options name. Raises DeviceError where nothing is left, and as `cap_grid`."""
    if knob.is_power_limit:
        return cap_grid(config, gpus, found, required)
    if config.knob_settings is None:
        top = min(found) if knob.ordered else max(knob.settings)
        wanted = [setting for setting in knob.settings if setting <= top]
        if len(wanted) < 2:
            raise DeviceError(
                f"the {knob.name} was found at {knob.text(min(found))}, and nothing faster is tried unasked; name what "
                "may be with --knob-settings"
            )
    else:
        wanted = _named(config, knob)
    return CapGrid(sorted({*wanted, *required}), knob)


def _named(config: TuneConfig, knob: Knob) -> list[float]:
    """The settings that --knob-settings names. Raises DeviceError for what is none."""
    try:
        return [knob.named(word) for word in config.knob_settings or ()]
    except ValueError as error:
        raise DeviceError(f"--knob-settings: {error}") from None


_NARROW_W, _NARROW_STEPS = 150.0, 45.0  # a CPU package of 125 W gets steps of 2 W


def common_range(gpus: Sequence[GpuInfo]) -> CapRange:
    """The limits that every device of the job accepts. Raises DeviceError when there are none."""
    low = max(gpus, key=lambda gpu: gpu.cap_range.min_w)
    high = min(gpus, key=lambda gpu: gpu.cap_range.max_w)
    min_w, max_w = low.cap_range.min_w, high.cap_range.max_w
    if min_w > max_w:
        raise DeviceError(
            f"no common cap: {low.where} starts at {min_w:g} W and {high.where} ends at {max_w:g} W; "
            "pass --gpus with those of one kind"
        )
    default_w = min(max(min(gpu.cap_range.default_w for gpu in gpus), min_w), max_w)
    return CapRange(min_w=min_w, max_w=max_w, default_w=default_w)


def cap_grid(
    config: TuneConfig,
    gpus: Sequence[GpuInfo],
    original_w: Sequence[float | None],
    required_w: Sequence[float] = (),
) -> CapGrid:
    """The caps to search among, watts.

    original_w: the limits found on arrival. Whoever runs the machine chose them, so they are the top unless
    `max_cap_w` or `settings` asks for more. required_w: caps that the strategy's options name, which are on the grid
    whatever its step. Raises DeviceError for a bound or a named cap outside the devices' range,
    and for a step that makes too many caps.
    """
    allowed = common_range(gpus)
    for option, setting in [("--min-cap", config.min_cap_w), ("--max-cap", config.max_cap_w)]:
        if setting is not None:
            _check(option, setting, allowed, gpus)
    for setting in config.caps_w or ():
        _check("--caps", setting, allowed, gpus)
    min_w = allowed.min_w if config.min_cap_w is None else config.min_cap_w
    highest_w = allowed.max_w if config.max_cap_w is None else config.max_cap_w
    for setting in required_w:
        _check("strategy option", setting, allowed, gpus)
        if not min_w <= setting <= highest_w:
            raise DeviceError(
                f"the strategy is to use {setting:g} W, outside {min_w:g} to {highest_w:g} W; "
                "change --min-cap or --max-cap"
            )
    if config.caps_w is not None:
        return CapGrid(sorted({*config.caps_w, *required_w}))
    arrival_w = min([limit for limit in original_w if limit is not None], default=allowed.max_w)
    top_w = highest_w if config.max_cap_w is not None else min(highest_w, arrival_w)
    if min_w > top_w:
        lowest = f"--min-cap {min_w:g} W"
        if config.min_cap_w is None:  # arrived below what another GPU of the job takes
            lowest = f"the lowest cap that all {gpus[0].noun}s take, {min_w:g} W,"
        raise DeviceError(
            f"{lowest} is above the {top_w:g} W limit found on arrival; pass --max-cap to allow caps above it"
        )
    step_w = config.step_w or _usual_step_w(allowed)
    why_not = too_fine(min_w, top_w, step_w)
    if why_not is not None:
        raise DeviceError(why_not)
    stepped = CapGrid.stepped(min_w, top_w, step_w)
    return CapGrid(sorted({*stepped, *required_w}))


def checker(config: TuneConfig, required_w: Sequence[float] = ()) -> CheckCaps:
    """Refuses what `cap_grid` refuses, for devices that are found before there is a grid to make."""

    def check(gpus: Sequence[GpuInfo], found_w: Sequence[float] = ()) -> object:
        return cap_grid(config, gpus, found_w, required_w)

    return check


def _usual_step_w(allowed: CapRange) -> float:
    """The spacing of caps where nobody chose one: finer on a device whose whole range is narrow."""
    width_w = allowed.max_w - allowed.min_w
    return DEFAULT_STEP_W if width_w >= _NARROW_W else max(1.0, width_w // _NARROW_STEPS)


def _check(option: str, setting: float, allowed: CapRange, gpus: Sequence[GpuInfo]) -> None:
    if setting < allowed.min_w:
        where = max(gpus, key=lambda gpu: gpu.cap_range.min_w).where
        raise DeviceError(
            f"{option} {setting:g} W is below the {allowed.min_w:g} W minimum of {where}; "
            f"pass {option} {allowed.min_w:g} or more"
        )
    if setting > allowed.max_w:
        where = min(gpus, key=lambda gpu: gpu.cap_range.max_w).where
        raise DeviceError(
            f"{option} {setting:g} W is above the {allowed.max_w:g} W maximum of {where}; "
            f"pass {option} {allowed.max_w:g} or less"
        )


def limits_found(device: Device) -> tuple[float, ...]:
    """The limits found on arrival, watts, read without a guardian; the default where a device does not say."""
    readings = device.read()
    limits_w = [reading.enforced_w if reading.requested_w is None else reading.requested_w for reading in readings]
    return tuple(
        gpu.cap_range.default_w if limit_w is None else limit_w
        for gpu, limit_w in zip(device.gpus, limits_w, strict=True)
    )
