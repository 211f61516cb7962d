import re
from dataclasses import replace

import pytest

from autocap.config import TuneConfig
from autocap.config.values import MOST_CAPS
from autocap.errors import DeviceError
from autocap.knobs import POWER_LIMIT
from autocap.metrics import Metric
from autocap.records import CapRange, GpuInfo
from autocap.session.search_space import cap_grid, common_range, settings_known


def gpu(index: int = 0, low: float = 100.0, high: float = 260.0) -> GpuInfo:
    return GpuInfo(
        index=index, uuid=f"GPU-{index}", name="GPU", cap_range=CapRange(min_w=low, max_w=high, default_w=high)
    )


def config(**given: object) -> TuneConfig:
    return TuneConfig(metric=Metric(name="energy"), **given)  # type: ignore[arg-type]  # a test's shorthand


def test_the_grid_spans_the_device_in_steps_of_5_w() -> None:
    grid = cap_grid(config(), [gpu()], [260.0])
    assert len(grid) == 33
    assert (grid[0], grid[-1], grid[1] - grid[0]) == (100.0, 260.0, 5.0)


def test_nothing_above_the_limit_found_on_arrival_is_tried_unless_asked_for() -> None:
    assert cap_grid(config(), [gpu()], [200.0])[-1] == 200.0
    assert cap_grid(config(max_cap_w=260.0), [gpu()], [200.0])[-1] == 260.0


def test_several_gpus_share_the_caps_that_all_of_them_take() -> None:
    grid = cap_grid(config(), [gpu(0, 100, 260), gpu(1, 150, 300)], [260.0, 220.0])
    assert (grid[0], grid[-1]) == (150.0, 220.0)
    with pytest.raises(DeviceError, match="no common cap: GPU 1 starts at 300 W and GPU 0 ends at 260 W"):
        common_range([gpu(0, 100, 260), gpu(1, 300, 400)])


def test_a_gpu_that_arrives_below_what_another_one_takes_is_not_raised_unasked() -> None:
    gpus = [gpu(0, 100, 260), gpu(1, 150, 300)]
    with pytest.raises(DeviceError, match="the lowest cap that all GPUs take, 150 W, is above the 120 W limit fou"):
        cap_grid(config(), gpus, [120.0, 300.0])
    assert cap_grid(config(max_cap_w=200.0), gpus, [120.0, 300.0])[0] == 150.0


def test_listed_caps_the_lowest_off_the_step_and_one_that_the_strategy_names_are_on_the_grid() -> None:
    assert cap_grid(config(caps_w=(120.0, 133.0)), [gpu()], [260.0]) == (120.0, 133.0)
    assert cap_grid(config(min_cap_w=112.0, step_w=50.0), [gpu()], [260.0]) == (112.0, 160.0, 210.0, 260.0)
    assert 137.0 in cap_grid(config(), [gpu()], [260.0], required_w=[137.0])


@pytest.mark.parametrize(
    ("given", "required_w", "message"),
    [
        ({"caps_w": (90.0,)}, [], "--caps 90 W is below the 100 W minimum of GPU 0; pass --caps 100 or more"),
        ({"min_cap_w": 250.0}, [], "--min-cap 250 W is above the 240 W limit found on arrival; pass --max-cap to"),
        ({"min_cap_w": 150.0}, [140.0], "the strategy is to use 140 W, outside 150 to 260 W"),
        ({"step_w": 5e-324}, [], "a step of 4.94066e-324 W makes inf caps between 100 and 240 W"),
        (
            {"step_w": 0.07},
            [],
            "makes 2000 caps between 100 and 240 W, and at most 2000 can be searched; pass --cap-st",
        ),
        ({"step_w": 0.07}, [], "pass --cap-step 0.071 or more"),
    ],
)
def test_bounds_outside_the_device_are_refused(given: dict[str, object], required_w: list[float], message: str) -> None:
    with pytest.raises(DeviceError, match=re.escape(message)):
        cap_grid(config(**given), [gpu()], [240.0], required_w)


def test_the_step_that_the_refusal_names_is_taken() -> None:
    assert len(cap_grid(config(step_w=0.071), [gpu()], [240.0], [100.05])) <= MOST_CAPS + 1


def test_a_limit_that_cannot_be_read_is_named_by_its_devices_index_and_kind() -> None:
    assert settings_known([gpu(2), gpu(5)], POWER_LIMIT, [260.0, 240.0]) == (260.0, 240.0)
    with pytest.raises(DeviceError, match="the limit of GPU 5 cannot be read, so it could not be put back; not tuned"):
        settings_known([gpu(2), gpu(5)], POWER_LIMIT, [260.0, None])
    package = replace(gpu(1), noun="package")
    with pytest.raises(DeviceError, match="the limit of package 1 cannot be read"):
        settings_known([gpu(0), package], POWER_LIMIT, [260.0, None])
