"""Hand-made samples and measurements for tests of the pure modules: exact numbers, no device, no noise."""

from collections.abc import Iterable, Iterator, Sequence

from autocap.measurement.metering import Metered, Metering
from autocap.progress import Mark, Progress
from autocap.records import Measurement, Prediction, Reading, Sample, StepReading, Trial, TrialState


def measurement(
    energy_j: float = 100.0,
    period_s: float = 0.5,
    *,
    cap_w: float = 260.0,
    energy_error: float = 0.005,
    period_error: float = 0.005,
    corr: float = 0.0,
    iterations: float = 100.0,
) -> Measurement:
    """A valid measurement of one device."""
    return Measurement(
        setting=(cap_w,),
        start_s=0.0,
        duration_s=period_s * iterations,
        iterations=iterations,
        period_s=period_s,
        period_rel_stderr=period_error,
        power_w=energy_j / period_s,
        power_rel_stderr=0.0,
        energy_per_iteration_j=energy_j,
        energy_rel_stderr=energy_error,
        time_energy_corr=corr,
    )


def trial_of(found: Measurement, cost: float = 1.0, cost_stderr: float = 0.01) -> Trial:
    """The trial of a cap that was measured to the end."""
    cap_w = max(found.setting)
    return Trial(setting=cap_w, state=TrialState.COMPLETE, cost=cost, cost_stderr=cost_stderr, measurement=found)


def prediction(cap_w: float, energy: float, time: float, *, energy_error: float = 0.01, time_error: float = 0.01):
    """Of a cap, beside the baseline."""
    return Prediction(
        setting=cap_w,
        energy=energy,
        time=time,
        energy_rel_stderr=energy_error,
        period_rel_stderr=time_error,
        time_energy_corr=0.0,
    )


def samples(
    *,
    start_s: float = 0.0,
    seconds: float = 60.0,
    period_s: float = 0.5,
    power_w: float | None = 200.0,
    interval_s: float = 0.05,
    count_from: int = 0,
    throttled: bool = False,
) -> Iterator[Sample]:
    """A job of constant power whose iterations end at whole multiples of `period_s` after `start_s`."""
    for i in range(round(seconds / interval_s) + 1):
        t_s = start_s + i * interval_s
        done = int((t_s - start_s) / period_s + 1e-9)
        steps = StepReading(count=count_from + done, t_s=start_s + done * period_s) if count_from + done else None
        reading = Reading(t_s=t_s, power_w=power_w, throttled=throttled)
        yield Sample(t_s=t_s, readings=(reading,), steps=steps)


class Meter(Metering):
    """Meters samples of a job that pauses nowhere."""

    def of(self, sample: Sample, marks: Sequence[Mark] = ()) -> Metered:
        return self.meter(sample, marks, "period", ())


def metered(feed: Iterable[Sample], progress: Progress) -> Iterator[Metered]:
    """The samples as they are metered, with the marks that a progress makes of them."""
    meter = Meter()
    for sample in feed:
        yield meter.of(sample, progress.marks(sample))
