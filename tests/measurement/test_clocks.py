from autocap.measurement.batches import Clocks
from autocap.records import Reading, Sample


def test_a_clock_at_rest_is_none_that_the_job_runs_at() -> None:
    clocks = Clocks()
    for number in range(10):
        busy = number % 2 == 0
        reading = Reading(t_s=number, power_w=100.0, sm_clock_hz=1.4e9 if busy else 2.1e8, utilisation=float(busy))
        clocks.add(Sample(t_s=number, readings=(reading,)))
    assert clocks.mean_hz(0.0, 10.0) == 1.4e9
