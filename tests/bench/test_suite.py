"""python -m bench suite: the table of a whole suite, and what it refuses before anything is trained."""

from dataclasses import replace

from autocap.records import Measurement
from autocap.reports.summary.record import ChosenSummary, Totals, VersusBaseline
from bench.suite import Finished, Job, Result, table
from tests.doubles.feeds import measurement


def measured(cap_w: float, *, power_w: float, period_s: float) -> Measurement:
    return measurement(power_w * period_s, period_s, cap_w=cap_w, energy_error=0.001, period_error=0.001)


JOB = Job(network="resnet50", strategy="golden", batch_size=128)
RESULT = Result(
    ended_because="exited",
    device=None,
    baseline=measured(260, power_w=215.5, period_s=0.5),
    chosen=ChosenSummary(setting=(160.0,), confirmed=True, measurement=measured(160, power_w=139.1, period_s=0.564)),
    totals=Totals(wall_s=600, energy_j=9.5e4, iterations=1000, exploration_s=60, exploration_energy_j=1e4),
    versus_baseline=VersusBaseline(
        energy_pct=-27.2,
        energy_stderr_pct=0.21,
        time_pct=12.8,
        time_stderr_pct=0.14,
        metric_pct=-7.2,
        metric_stderr_pct=0.2,
        net_energy_j=-2.155e4,
        net_energy_stderr_j=210.0,
        net_metric_pct=-6.0,
        net_metric_stderr_pct=0.2,
        break_even_s=100.0,
    ),
)


def rows(*finished: Finished) -> list[str]:
    return table(finished).splitlines()[2:]


def test_a_row_is_one_epoch_of_the_papers_at_the_kept_cap() -> None:
    default, golden = rows(Finished(job=JOB, result=RESULT, failure=None))

    # 32,000 samples in batches of 128 are 250 iterations.
    assert default == "| resnet50 | default | 260 | 215.5 | 26.938 | - | 125.0 | - | - |"
    assert golden == "| resnet50 | golden | 160 | 139.1 | 19.613 | -27.2 ± 0.2 | 141.0 | +12.8 ± 0.1 | -20.0 |"


def test_a_network_has_one_default_row_above_its_strategies() -> None:
    other = replace(JOB, strategy="linear")
    lines = rows(*(Finished(job=job, result=RESULT, failure=None) for job in (JOB, other)))

    assert [line.split(" | ")[1] for line in lines] == ["default", "golden", "linear"]


def test_where_no_cap_was_kept_the_row_is_the_limit_found_without_a_gain() -> None:
    nothing = replace(RESULT, chosen=None, versus_baseline=None)
    _, golden = rows(Finished(job=JOB, result=nothing, failure=None))

    assert golden == "| resnet50 | golden | 260 | 215.5 | 26.938 | - | 125.0 | - | - |"


def test_a_job_that_failed_has_a_row_that_says_so() -> None:
    (row,) = rows(Finished(job=JOB, result=None, failure="no result"))
    assert row == "| resnet50 | golden | failed |  |  |  |  |  |  |"
