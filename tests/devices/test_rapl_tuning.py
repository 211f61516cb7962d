"""CPU jobs tuned through powercap, in virtual time: the product's own device, guardian, controller and loop."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from autocap import events
from autocap.config import RunConfig, TuneConfig
from autocap.devices.powercap import Sysfs
from autocap.devices.rapl.device import RaplDevice
from autocap.devices.rapl.packages import list_packages
from autocap.limits import Guardian
from autocap.metrics import Metric
from autocap.progress import StepProgress
from autocap.progress.period.progress import PeriodProgress
from autocap.session.roles import NoInbox
from autocap.session.tuning import SearchPlan, Tuning
from autocap.strategies import registry
from bench.faults.virtual import Unwatched
from bench.simulation.jobs import Log
from tests.doubles.cpu_job import CpuJob, CpuShape
from tests.doubles.rapl_tree import RaplTree
from tests.doubles.tuned_job import CountedBy, EndsOnceHeld

_IN_MEMORY = Path("/dev/shm")

SHAPES = {
    "mixed": CpuShape(),
    "memory": CpuShape(compute_s=0.12, memory_s=0.25, dynamic_w=150.0),
    "cubic": CpuShape(static_w=25.0, dynamic_w=120.0, knee=0.0, flat=0.0, compute_s=0.2, memory_s=0.0),
    "cubic and memory": CpuShape(static_w=40.0, dynamic_w=100.0, knee=0.0, flat=0.0, compute_s=0.15, memory_s=0.15),
}
ENERGY, EDP, EDS = Metric(name="energy"), Metric(name="edp"), Metric(name="eds", k=2.0)


@pytest.fixture
def tree() -> Iterator[RaplTree]:
    """In memory: a disk would take most of a test's time."""
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as folder:
        yield RaplTree(Path(folder) / "sys")


class Told(Log):
    """Keeps what is announced, as a run's recorder does."""

    def warn(self, t_s: float, text: str) -> None:
        self.event(events.Warned(t_s=t_s, text=text))

    @property
    def kept_w(self) -> float | None:
        decided = [event.setting for event in self.events if isinstance(event, events.Decided)]
        return decided[-1] if decided else None

    @property
    def baseline_j(self) -> float:
        """Per iteration."""
        measured = next(event for event in self.events if isinstance(event, events.BaselineMeasured))
        return measured.measurement.energy_per_iteration_j


def tune(
    tree: RaplTree,
    zones: list[str],
    shape: CpuShape,
    metric: Metric,
    *,
    seed: int = 0,
    progress: str = "steps",
    observe: bool = False,
    wait_s: float = 120.0,
) -> Told:
    """Tune a job until a cap is held, and put everything back."""
    clock, told, factory = CpuJob(tree, zones, shape, seed=seed), Told(), registry.find("model")
    state_dir = tree.root.parent / "state"
    by_steps = CountedBy(clock.steps, lambda sensor: StepProgress(), progress)
    counting = by_steps if progress == "steps" else CountedBy(lambda: None, PeriodProgress, progress)
    tuning = Tuning(
        config=RunConfig(command=("train",), tune=TuneConfig(metric=metric, observe=observe, wait_s=wait_s)),
        clock=clock,
        job=EndsOnceHeld(told),
        inbox=NoInbox(),
        recorder=told,
        plan=SearchPlan(factory=factory, options=registry.option_values(factory, ())),
        counting=counting,
        new_guardian=partial(Guardian, state_dir=state_dir, sync=lambda fd: None, start_watch=Unwatched),
    )
    tuning.tune(RaplDevice(list_packages(Sysfs(tree.root)), clock, observe=observe))
    return told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "metric"),
    [("mixed", ENERGY), ("memory", EDP), ("cubic", EDS), ("cubic and memory", ENERGY)],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_cpu_job_is_tuned_to_within_one_percent_of_its_best(tree: RaplTree, name: str, metric: Metric) -> None:
    zone, shape = tree.package(), SHAPES[name]
    found = tree.setting(zone)
    told = tune(tree, [zone], shape, metric, seed=len(name) + len(metric.name))
    assert shape.regret_pct(metric, told.kept_w or 125.0, 31.0, 125.0) < 1.0
    assert tree.setting(zone) == found


@pytest.mark.slow
def test_the_period_of_the_packages_power_is_progress_enough(tree: RaplTree) -> None:
    zone, shape, eds = tree.package(), SHAPES["memory"], EDS
    told = tune(tree, [zone], shape, eds, progress="period")
    assert shape.regret_pct(eds, told.kept_w or 125.0, 31.0, 125.0) < 1.0


@pytest.mark.slow
def test_two_packages_get_one_cap_and_wrap_while_they_are_measured(tree: RaplTree) -> None:
    zones = [tree.package(number, range_uj=1_500_000_000) for number in (0, 1)]  # every 12 s and more
    shape, energy = SHAPES["mixed"], ENERGY
    told = tune(tree, zones, shape, energy)
    assert told.kept_w is not None
    assert shape.regret_pct(energy, told.kept_w, 31.0, 125.0) < 1.0
    assert {len(event.setting) for event in told.events if isinstance(event, events.CapSet)} == {2}
    true_j = shape.truth(125.0, packages=2).energy_per_iteration_j
    assert told.baseline_j == pytest.approx(true_j, rel=0.02)
    assert not [event for event in told.events if isinstance(event, events.Warned)]


def test_packages_that_count_energy_alone_are_observed(tree: RaplTree) -> None:
    zone = tree.package(limit_w=None)
    told = tune(tree, [zone], SHAPES["mixed"], EDS, observe=True)
    true_j = SHAPES["mixed"].truth(500.0).energy_per_iteration_j
    assert told.baseline_j == pytest.approx(true_j, rel=0.02)
