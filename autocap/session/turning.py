"""Which knob a session turns, what it is found at, and what may be tried of it."""

from collections.abc import Sequence

from autocap.config import RunConfig, TuneConfig
from autocap.devices.base import Tunable
from autocap.errors import DeviceError
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits.guard import LimitGuard
from autocap.records import GpuInfo
from autocap.session.caps import cap_grid, limits_found
from autocap.strategies import registry
from autocap.strategies.grid import CapGrid
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
