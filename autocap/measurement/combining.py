"""Several measurements of one cap as one, and a measurement as it would have been at another time."""

import math
from dataclasses import replace

from autocap.measurement.batches import BatchErrors
from autocap.records import Measurement


def pool(measurements: list[Measurement]) -> Measurement:
    """One measurement from several windows at the same cap, each weighted by its iterations."""
    whole = _pooled(measurements)
    if any(m.gpu is None for m in measurements):
        return whole
    return whole.with_gpus(_pooled([m.of_gpus() for m in measurements]))


def _pooled(measurements: list[Measurement]) -> Measurement:
    iterations = sum(m.iterations for m in measurements)
    duration_s = sum(m.duration_s for m in measurements)
    energy_j = sum(m.energy_per_iteration_j * m.iterations for m in measurements)
    var_t = sum((m.period_rel_stderr * m.duration_s / duration_s) ** 2 for m in measurements)
    shares = [m.energy_per_iteration_j * m.iterations / energy_j for m in measurements]
    var_e = sum((m.energy_rel_stderr * share) ** 2 for m, share in zip(measurements, shares, strict=True))
    covariance = sum(
        m.time_energy_corr * m.period_rel_stderr * m.energy_rel_stderr * m.duration_s / duration_s * share
        for m, share in zip(measurements, shares, strict=True)
    )
    time, energy = math.sqrt(var_t), math.sqrt(var_e)
    correlation = covariance / (time * energy) if time > 0 and energy > 0 else 0.0
    errors = BatchErrors(time=time, energy=energy, correlation=min(1.0, max(-1.0, correlation)))
    reasons = [m.reason for m in measurements if m.reason is not None]
    return Measurement(
        cap_w=measurements[0].cap_w,
        start_s=min(m.start_s for m in measurements),
        duration_s=duration_s,
        iterations=iterations,
        period_s=duration_s / iterations,
        period_rel_stderr=errors.time,
        power_w=energy_j / duration_s,
        power_rel_stderr=errors.power,
        energy_per_iteration_j=energy_j / iterations,
        energy_rel_stderr=errors.energy,
        time_energy_corr=errors.correlation,
        cap_binding=measurements[-1].cap_binding,
        valid=all(m.valid for m in measurements),
        reason=reasons[0] if reasons else None,
    )


def as_at(measurement: Measurement, then: Measurement, first: Measurement) -> Measurement:
    """What caps would have shown while those compared with showed `first`, given what they showed beside `then`."""
    if measurement.gpu is not None and then.gpu is not None and first.gpu is not None:
        gpus = as_at(measurement.of_gpus(), then.of_gpus(), first.of_gpus())
        return as_at(replace(measurement, gpu=None), then, first).with_gpus(gpus)
    time = first.period_s / then.period_s
    energy = first.energy_per_iteration_j / then.energy_per_iteration_j
    return replace(
        measurement,
        duration_s=measurement.duration_s * time,
        period_s=measurement.period_s * time,
        power_w=measurement.power_w * energy / time,
        energy_per_iteration_j=measurement.energy_per_iteration_j * energy,
    )
