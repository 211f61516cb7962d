"""A job that counts its steps as it likes misleads its own tuning at most: the controller goes on, within bounds."""

from collections.abc import Iterator
from random import Random

import pytest

from autocap.config import TuneConfig
from autocap.controller.context import SetCaps
from autocap.controller.controller import Controller
from autocap.metrics import Metric
from autocap.progress import StepProgress
from autocap.records import Reading, Sample, SensorInfo, StepReading
from autocap.strategies import registry
from autocap.strategies.grid import CapGrid
from bench.simulation.strategies import new_strategy

MOST_PER_S = 10**7  # what is ever read out of a step map
METRIC = Metric(name="eds", k=2.0)
GRID = CapGrid(tuple(float(watts) for watts in range(100, 261, 20)))


def controller() -> Controller:
    return Controller(
        config=TuneConfig(metric=METRIC),
        sensor=SensorInfo(update_s=0.1, window_s=0.1, settle_s=0.5),
        original_w=(260.0,),
        grid=GRID,
        progress=StepProgress(),
        new_strategy=new_strategy(registry.find("golden"), GRID),
    )


def counts(rises: list[int], seed: int) -> Iterator[Sample]:
    """A job whose count rises by one of these at every sample, at times that lag behind by up to five seconds."""
    random = Random(seed)
    count, step_s = 0, -1e6
    for number in range(600):
        t_s = 0.05 * number
        ended_s = max(step_s + 1e-6, t_s - random.choice((0.0, 0.05 * random.random(), 5 * random.random())))
        rise = min(random.choice(rises), int((ended_s - step_s) * MOST_PER_S))
        if rise and ended_s <= t_s:
            count, step_s = count + rise, ended_s
        steps = StepReading(count=count, t_s=step_s) if count else None
        yield Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=random.gauss(200, 5)),), steps=steps)


@pytest.mark.parametrize(
    "rises", [[0, 1, 1, 2, 500_000], [1, 1, 1, 1, 1, 1, 10**12], [500_000], [1, 400_000], [0] * 50 + [10**12]]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_a_map_can_be_read_as_the_controller_goes_on(rises: list[int], seed: int) -> None:
    one = controller()
    for sample in counts(rises, seed):
        for action in one.feed(sample):
            assert not isinstance(action, SetCaps) or all(100.0 <= cap_w <= 260.0 for cap_w in action.settings)
