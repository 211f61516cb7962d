"""The CPU time of a job's processes, as a witness of a period in its power."""

import os
import time

import numpy as np
import pytest

from autocap.job.processes import own_identity, spent_ns
from autocap.progress import Mark
from autocap.progress.counter import IterationCounter
from autocap.progress.period.counted import Load
from autocap.progress.period.estimate import Floats
from autocap.progress.period.progress import PeriodProgress
from autocap.progress.witness import HostTime
from autocap.records import Reading, Sample, SensorInfo


def test_the_clock_of_a_process_counts_all_of_its_threads_and_takes_no_rights() -> None:
    before_ns = time.process_time_ns()
    seen_ns = spent_ns(os.getpid())
    assert before_ns <= seen_ns <= time.process_time_ns()
    assert spent_ns(1) >= 0  # another user's, where we are not root


def test_a_process_that_is_not_there_is_an_oserror() -> None:
    with pytest.raises(OSError, match=r"."):
        spent_ns(2**22 + 1)  # beyond the highest number that Linux gives


def looked(*cpu_s: float, job: bool = True) -> Load | None:
    """A job that has used so many seconds by each look, a tenth of a second apart; none where that is negative: it has
    ended."""
    left = list(cpu_s)

    def cpu_ns(pid: int) -> int:
        spent_s = left.pop(0)
        if spent_s < 0:
            raise ProcessLookupError
        return round(spent_s * 1e9)

    host = HostTime(cpu_ns)
    host.follow(own_identity() if job else None)
    for number in range(len(cpu_s)):
        host.read(0.1 * number)
    return host.load(np.array([0.0, 0.1 * len(cpu_s)]))


@pytest.fixture(autouse=True)
def _this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autocap.progress.witness.tree", lambda job: (own_identity(),))


def test_what_lies_between_two_looks_is_an_average_in_cpus_and_a_number_given_again_takes_nothing_back() -> None:
    load = looked(5.0, 5.05, 5.25, 5.25)
    assert load.cpus == pytest.approx([0.5, 2.0, 0.0])
    assert load.t_s == pytest.approx([0.1, 0.2, 0.3])
    assert load.most == os.cpu_count()
    assert looked(5.0, 5.1, 0.0, 0.05).cpus == pytest.approx([1.0, 0.0, 0.5])  # another process has it by now


def test_where_nothing_is_to_be_seen_there_is_no_witness() -> None:
    assert looked(5.0, 5.1) is None  # too few looks
    assert looked(5.0, 5.1, -1.0) is None  # it has ended
    assert looked(5.0, 5.1, 5.2, job=False) is None  # on another machine


class Blocking:
    """The CPU time of a job that launches each iteration for a third of it, and then waits for the GPU."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s

    def load(self, t_s: Floats) -> Load | None:
        looks_s = np.arange(t_s[0], t_s[-1], 0.02)
        done, part = np.divmod(looks_s / self._period_s, 1.0)
        spent_s = self._period_s * (done / 3 + np.minimum(part, 1 / 3))
        return Load(looks_s[1:], np.diff(spent_s) / np.diff(looks_s), 2.0)


@pytest.mark.parametrize("blocks", [False, True])
def test_what_the_host_shares_is_followed_without_a_trial_where_nothing_is_known_of_the_sensor(blocks: bool) -> None:
    sensor = SensorInfo(update_s=0.1, window_s=0.1, settle_s=0.1, window_known=False)
    progress = PeriodProgress(sensor, Blocking(1.1) if blocks else None)
    marks: list[Mark] = []
    for t_s in np.arange(0.0, 40.0, 0.1003).tolist():
        in_cycle = t_s / 1.1 % 1.0
        power_w = 90.0 if in_cycle < 0.3 else 250.0
        reading = Reading(t_s=t_s, power_w=power_w, requested_w=300.0)
        marks += progress.marks(Sample(t_s=t_s, readings=(reading,)))
    assert (len(marks) > 25) is blocks
    assert (progress.unproven_s is None) is blocks


def test_the_counter_of_a_run_looks_at_the_jobs_cpu_time_for_its_period() -> None:
    with IterationCounter("period") as counting:
        counting.follow(own_identity())
        for _ in range(4):
            assert counting.read(0.0) is None
        host = vars(counting.progress(SensorInfo(update_s=0.1, window_s=0.1, settle_s=0.1)))["_host"]
        assert host.load(np.array([0.0, np.inf])) is not None
