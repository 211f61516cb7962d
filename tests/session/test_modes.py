"""What comes before a job: nothing of ours keeps it from its start."""

import threading
from contextlib import ExitStack

import pytest

from autocap.config import RunConfig, TuneConfig
from autocap.job.signals import SignalClock
from autocap.metrics import Metric
from autocap.session import modes
from autocap.session.place import Place


def test_a_driver_that_does_not_answer_keeps_no_job_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    place = Place()
    monkeypatch.setattr(place, "source", lambda *_: answers.wait(10.0))
    monkeypatch.setattr(modes, "_OPENED_WITHIN_S", 0.1)
    config = RunConfig(command=("train",), tune=TuneConfig(metric=Metric(name="energy")))
    with ExitStack() as stack, SignalClock() as clock:
        found, why = modes._source_or_why(config, clock, modes._plan(config), modes.JobOrigin.RUN, place, stack)
    answers.set()
    assert (found, why) == (None, "no device to tune: the driver has not answered for 0.1 s")
