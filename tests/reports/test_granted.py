"""A run under a power budget, in words."""

from autocap import events
from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.metrics import Metric
from autocap.records import CapRange, GpuInfo
from autocap.reports.wording.events import Wording
from autocap.reports.wording.granted import remarks
from autocap.testing.simulated.job import SimulatedJob
from bench.simulation.jobs import tune
from tests.doubles.logs import announced

JOB = SimulatedJob(profile=profiles.load("quadro-rtx-6000/resnet50"))


def told(log: list[events.Event]) -> list[str]:
    wording = Wording()
    return [line for line in map(wording.line, log) if line is not None]


def test_a_search_under_a_ceiling_says_what_was_given_and_what_its_baseline_was() -> None:
    outcome = tune(JOB, TuneConfig(metric=Metric(name="edp")), "model", grants=[(0.0, 160.0)], end_s=200.0)
    lines = told(outcome.log.events)
    assert lines[0] == "the budget gives up to 160 W per GPU"
    assert any(line.startswith("baseline at 160 W, roughly: ") for line in lines)
    baseline = announced(outcome, events.BaselineMeasured)[0].measurement
    assert remarks(outcome.log.events, [260.0], baseline) == [
        "the budget gave each device at most 160 W, at the end 160 W",
        "the baseline is that of 160 W, the most that the budget gave then, and not of the limit found on arrival",
    ]


def test_what_was_held_for_the_budget_is_told_with_the_slowdown_that_it_meant() -> None:
    grants = [(110.0, 140.0), (120.0, 110.0), (180.0, None)]
    outcome = tune(JOB, TuneConfig(metric=Metric(name="edp")), "model", grants=grants, end_s=200.0)
    lines = told(outcome.log.events)
    assert lines[-2] == "the budget sets no ceiling any more"
    assert lines[-1].startswith("110 W, held under the budget: ")
    baseline = announced(outcome, events.BaselineMeasured)[-1].measurement
    given, held = remarks(outcome.log.events, [260.0], baseline)
    assert given == "the budget gave each device at most 110–140 W, at the end no limit"
    assert held.startswith("measured at 110 W while the budget held it there: time +")


def test_a_cap_by_the_curve_alone_is_not_called_confirmed() -> None:
    outcome = tune(JOB, TuneConfig(metric=Metric(name="edp")), "model", grants=[(10.0, 150.0)], end_s=200.0)
    said = "keeping 150 W, not confirmed: the best up to 150 W"
    assert any(line.startswith(said) for line in told(outcome.log.events))


def test_of_a_run_under_no_budget_nothing_is_said() -> None:
    assert remarks([], [260.0], None) == []


def test_what_a_job_leaves_to_a_budget_that_goes_on_is_one_plain_sentence() -> None:
    kind = CapRange(min_w=100.0, max_w=260.0, default_w=260.0)
    gpus = tuple(GpuInfo(index=place, uuid=f"GPU-{place}", name="x", cap_range=kind) for place in range(2))
    lines = told([
        events.DeviceFound(t_s=0.0, kind="nvml", emulated=False, gpus=gpus, original=(260.0, 250.0)),
        *(events.LimitRestored(t_s=9.0, uuid=gpu.uuid, final=150.0, restored=None) for gpu in gpus),
        events.LimitRestored(t_s=9.0, uuid="of another node", final=None, restored=None),
    ])  # fmt: skip
    said = "the budget goes on: it gives each GPU up to 150 W now, and puts 260 W/250 W back when it ends"
    assert lines[1:] == [said]
