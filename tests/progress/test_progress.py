import pytest

from autocap.progress import BestProgress, Mark, SpeedProgress, StepProgress
from autocap.records import Reading, Sample
from tests.doubles.feeds import samples


def at_clock(t_s: float, *clocks_hz: float | None) -> Sample:
    readings = tuple(Reading(t_s=t_s, power_w=200.0, sm_clock_hz=clock) for clock in clocks_hz)
    return Sample(t_s=t_s, readings=readings)


def test_steps_give_a_mark_for_each_new_count_at_the_time_of_the_step_or_of_the_sample_before_it() -> None:
    progress = StepProgress()
    assert progress.trouble == "no optimiser step was seen"
    marks = [mark for sample in samples(seconds=2.0, period_s=0.5) for mark in progress.marks(sample)]
    assert marks == [Mark(t_s=0.5 * i, iterations=float(i)) for i in range(1, 5)]
    assert progress.trouble is None
    (sample,) = samples(start_s=5.0, seconds=0.0, count_from=3)
    from_the_future = Sample(t_s=4.9, readings=sample.readings, steps=sample.steps)
    assert StepProgress().marks(from_the_future) == (Mark(t_s=4.9, iterations=3.0),)


def test_speed_follows_the_clock_of_the_slowest_device_and_is_of_low_confidence() -> None:
    progress = SpeedProgress()
    for i in range(101):
        progress.marks(at_clock(0.1 * i, 1.5e9, 1.6e9))
    for i in range(101, 202):
        marks = progress.marks(at_clock(0.1 * i, 0.75e9, 1.6e9))
        if marks:
            last = marks[-1]
    assert progress.confidence == "low"
    assert 15.6 < last.iterations <= 16.8  # 10 s at full clock, and 10 s at half, where an iteration takes 1 to 2 s


class Periodic(SpeedProgress):
    """Stands in for the period: marks from the first second on."""

    kind = "period"


def test_auto_takes_the_steps_when_they_come_in_time() -> None:
    progress = BestProgress(StepProgress(), Periodic(), within_s=20.0)
    for i in range(100):
        assert progress.marks(at_clock(0.1 * i, 1e9)) == ()
    assert progress.trouble is not None
    marks = [mark for sample in samples(start_s=10.0, seconds=5.0) for mark in progress.marks(sample)]
    assert len(marks) == 10
    assert progress.kind == "steps"


def test_auto_steps_down_to_the_period_when_no_step_comes() -> None:
    progress = BestProgress(StepProgress(), Periodic(), within_s=20.0)
    first = next(i for i in range(1000) if progress.marks(at_clock(0.1 * i, 1e9)))
    assert first >= 200
    assert progress.kind == "period"
    for sample in samples(start_s=100.0, seconds=5.0):
        progress.marks(sample)
    assert progress.kind == "period"


def test_auto_returns_to_the_steps_where_they_only_take_long() -> None:
    progress = BestProgress(StepProgress(), Periodic(), within_s=20.0, late=True)
    kinds = []
    for sample in samples(seconds=300.0, period_s=60.0):
        marks = progress.marks(at_clock(sample.t_s, 1e9) if sample.steps is None else _clocked(sample))
        kinds += [progress.kind] * bool(marks)
    assert kinds[0] == "period"
    assert kinds[-3:] == ["steps"] * 3  # from the third on, once only
    assert kinds == sorted(kinds)


def test_auto_stays_with_the_period_where_something_stepped_once_on_the_way() -> None:
    progress = BestProgress(StepProgress(), Periodic(), within_s=20.0, late=True)
    for i in range(1000):
        (sample,) = samples(start_s=0.1 * i, seconds=0.0, count_from=int(i > 500))
        progress.marks(_clocked(sample))
    assert progress.kind == "period"


class LatePeriod(Periodic):
    """A period that is proven after some time: marks from then on. begins_s: when."""

    follows_power = True

    def __init__(self, begins_s: float) -> None:
        super().__init__()
        self._begins_s = begins_s

    def marks(self, sample: Sample) -> tuple[Mark, ...]:
        marks = super().marks(sample)
        return marks if sample.t_s >= self._begins_s else ()


def test_the_speed_gives_way_to_a_period_that_is_proven_later() -> None:
    progress = BestProgress(LatePeriod(150.0), SpeedProgress(), within_s=60.0, late=True)
    kinds = {}
    for i in range(2000):
        if progress.marks(at_clock(0.1 * i, 1e9)):
            kinds.setdefault(progress.kind, 0.1 * i)
        assert progress.follows_power  # each reading of the power says something until then
    assert list(kinds) == ["speed", "period"]
    assert (kinds["speed"], kinds["period"]) == (pytest.approx(60.0, abs=1.0), pytest.approx(150.0, abs=1.0))


def test_a_period_is_listened_for_ten_minutes_and_the_power_no_longer_followed_then() -> None:
    progress = BestProgress(LatePeriod(700.0), SpeedProgress(), within_s=60.0, late=True)
    for i in range(1600):
        progress.marks(at_clock(0.5 * i, 1e9))
    assert progress.kind == "speed"
    assert not progress.follows_power


def _clocked(sample: Sample) -> Sample:
    return Sample(t_s=sample.t_s, readings=at_clock(sample.t_s, 1e9).readings, steps=sample.steps)
