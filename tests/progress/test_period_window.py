"""What a reading averages over, as learned from the energy counter: what is said holds."""

import functools

import numpy as np
import pytest

from autocap.devices.model.sensor import PowerSensor, SensorModel
from autocap.progress.period.progress import PeriodProgress
from autocap.progress.period.signals import Window, learned, moved_at
from autocap.records import Reading, Sample, SensorInfo
from bench.period.signals import WAVEFORMS, Floats, Load, truth

LEAD_S = 1.5


@functools.cache
def recorded(
    model: SensorModel, seed: int, *, period_s: float | None = None, poll_s: float = 0.02, quantum_j: float = 0.001
) -> tuple[Floats, Floats, Floats, Floats]:
    """Stamps and watts of the readings of a job, and stamps and joules of the looks at its counter, for 25 s."""
    rng = np.random.default_rng(seed)
    waveform = WAVEFORMS[("cnn", "shallow", "accumulate4")[seed % 3]]
    load = Load(waveform=waveform, period_s=period_s or rng.uniform(0.35, 1.8), jitter=rng.choice([0.002, 0.03]))
    edges_s, power_w, _, _ = truth(load, 25.0 + LEAD_S, rng)
    readings = PowerSensor(model, rng).advance(edges_s, power_w)
    looks_s = np.arange(LEAD_S, float(edges_s[-1]), poll_s)
    looks_s = looks_s + np.abs(rng.normal(0.0, 0.0007, len(looks_s)))
    shown = np.maximum(np.searchsorted(readings.energy_t_s, looks_s, side="right") - 1, 0)
    keep = readings.t_s >= LEAD_S
    energy_j = quantum_j * np.round(readings.energy_j[shown] / quantum_j)
    return readings.t_s[keep], readings.power_w[keep], looks_s, energy_j


def window(model: SensorModel, recording: tuple[Floats, Floats, Floats, Floats]) -> Window | None:
    t_s, power_w, looks_s, energy_j = recording
    moved = moved_at(looks_s, energy_j)
    return learned(t_s, power_w, *moved, update_s=model.update_s)


@pytest.mark.parametrize(
    ("update_s", "window_s", "counter_s", "poll_s", "often"),
    [
        (0.1, 0.1, 0.02, 0.02, True),
        (0.1, 0.05, 0.02, 0.02, False),
        (0.1, 0.025, 0.02, 0.02, False),  # of a window that is hardly longer than a move little can be said
        (0.02, 0.01, 0.02, 0.02, False),
        (0.1, 1.0, 0.02, 0.02, True),
        (0.1, 1.0, 0.1, 0.05, True),
        (0.1, 0.1, 0.1, 0.05, False),
    ],
)
def test_what_is_said_of_the_window_holds_within_its_error(update_s, window_s, counter_s, poll_s, often) -> None:
    said = 0
    for seed in range(9):
        model = SensorModel(
            update_s=update_s,
            window_s=window_s,
            energy_update_s=counter_s,
            update_jitter=(0.001, 0.01)[seed % 2],
            noise_correlation=(0.0, 0.8)[seed % 2],
        )
        found = window(model, recorded(model, seed, poll_s=poll_s, quantum_j=(0.001, 0.1, 1.0)[seed % 3]))
        if found is not None:
            said += 1
            assert abs(found.window_s - window_s) <= found.off * found.window_s
    assert said >= 2 or not often


@pytest.mark.parametrize("response_s", [0.05, 0.11, 0.25])
def test_a_low_pass_is_no_average_and_nothing_is_said(response_s: float) -> None:
    for seed, counter_s in ((0, 0.02), (1, 0.02), (2, 0.1)):
        model = SensorModel(update_s=0.02, window_s=0.002, response_s=response_s, energy_update_s=counter_s)
        assert window(model, recorded(model, seed)) is None


@pytest.mark.parametrize("period_s", [0.0104, 0.0195, 0.0513, 0.095])
def test_nothing_wrong_is_said_under_a_load_that_is_faster_than_the_sensor(period_s: float) -> None:
    for window_s in (0.01, 0.025, 0.1):
        model = SensorModel(update_s=0.1, window_s=window_s, energy_update_s=0.02)
        found = window(model, recorded(model, 0, period_s=period_s))
        assert found is None or abs(found.window_s - window_s) <= found.off * found.window_s


def test_nothing_is_said_of_too_little_or_of_a_flat_load() -> None:
    model = SensorModel(update_s=0.1, window_s=0.1, energy_update_s=0.02)
    t_s, power_w, looks_s, energy_j = recorded(model, 0)
    early = t_s < LEAD_S + 4.0
    assert window(model, (t_s[early], power_w[early], looks_s, energy_j)) is None
    assert window(model, (t_s, np.full_like(power_w, 200.0), looks_s, energy_j)) is None


@pytest.mark.slow
def test_readings_that_turn_out_to_be_averages_over_a_second_give_way_to_the_counter_and_settle_longer() -> None:
    """On a card whose sensor nobody has measured: it was taken to be an instant one."""
    model = SensorModel(update_s=0.1, window_s=1.0, energy_update_s=0.02)
    info = SensorInfo(update_s=0.1, window_s=0.025, settle_s=0.5, window_known=False)
    progress, marks = PeriodProgress(info), 0
    t_s, power_w, looks_s, energy_j = recorded(model, 2)
    for look_s, counted_j in zip(looks_s, energy_j, strict=True):
        place = int(np.searchsorted(t_s, look_s, side="right")) - 1
        if place < 0:
            continue
        reading = Reading(
            t_s=float(t_s[place]), power_w=float(power_w[place]), energy_j=float(counted_j), requested_w=300.0
        )
        marks += len(progress.marks(Sample(t_s=float(look_s), readings=(reading,))))
    assert marks > 12
    assert progress.settle_s > 1.8
