"""The CPU time of a job's processes, as a witness of a period in its power."""

import os
import time

import numpy as np
import pytest

from autocap.job.processes import own_identity
from autocap.progress.host_time import HostTime, process_cpu_ns
from autocap.progress.period.counted import Load


def test_the_clock_of_a_process_counts_all_of_its_threads_and_takes_no_rights() -> None:
    before_ns = time.process_time_ns()
    seen_ns = process_cpu_ns(os.getpid())
    assert before_ns <= seen_ns <= time.process_time_ns()
    assert process_cpu_ns(1) >= 0  # another user's, where we are not root


def test_a_process_that_is_not_there_is_an_oserror() -> None:
    with pytest.raises(OSError, match=r"."):
        process_cpu_ns(2**22 + 1)  # beyond the highest number that Linux gives


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
    monkeypatch.setattr("autocap.progress.host_time.tree", lambda job: (own_identity(),))


def test_what_lies_between_two_looks_is_an_average_in_cpus() -> None:
    load = looked(5.0, 5.05, 5.25, 5.25)
    assert load is not None
    assert load.cpus == pytest.approx([0.5, 2.0, 0.0])
    assert load.t_s == pytest.approx([0.1, 0.2, 0.3])
    assert load.most == os.cpu_count()


def test_where_nothing_is_to_be_seen_there_is_no_witness() -> None:
    assert looked(5.0, 5.1) is None  # too few looks
    assert looked(5.0, 5.1, -1.0) is None  # it has ended
    assert looked(5.0, 5.1, 5.2, job=False) is None  # on another machine


def test_a_number_that_another_process_has_by_now_takes_nothing_back() -> None:
    load = looked(5.0, 5.1, 0.0, 0.05)
    assert load is not None
    assert load.cpus == pytest.approx([1.0, 0.0, 0.5])
