"""Beats between a load that is faster than the sensor and the sensor's sampling, which no period must be taken for.

What an average lets through of a load faster than the sensor: nothing that such a load shows may be excluded.
"""

from pathlib import Path

import numpy as np
import pytest

from autocap.progress.period import PeriodEstimate, Verdict, detect
from autocap.progress.period.bound import Draw, Floats, Swing, may_pass, swing_of
from autocap.progress.period.estimate import Template
from autocap.progress.period.period_ratio import Tried, tried
from autocap.runlog.traces import read
from bench.period import evidence
from bench.period.evidence import Found, Window
from bench.period.real_cases import look
from bench.period.real_signals import FAMILIES
from bench.period.real_signals import WINDOWS_S as WINDOWS
from bench.period.signals import SENSORS, WAVEFORMS, Load, Signal, record

LOGS = Path(__file__).resolve().parents[1] / "data" / "power-logs"
UPDATE_S = 0.1


def seen(period_s: float, sensor: str, *, seed: int = 7, jitter: float = 0.0, span_s: float = 30.0) -> Signal:
    load = Load(waveform=WAVEFORMS["cnn"], period_s=period_s, jitter=jitter)
    return record(load, SENSORS[sensor], span_s, np.random.default_rng(seed))


def judged(period_s: float, *, counter: bool = False, busy: bool = False, window_s: float = 0.025) -> PeriodEstimate:
    """The verdict on a load read for 25 ms of every 100 ms, beside its counter, or its utilisation."""
    readings, counted = seen(period_s, "100/25"), seen(period_s, "100/100")
    return detect(
        readings.t_s,
        readings.power_w,
        update_s=UPDATE_S,
        window_s=window_s,
        counted=(counted.t_s, counted.power_w) if counter else None,
        witnesses=[(readings.t_s, readings.power_w / 300)] if busy else [],
    )


WINDOWS_S = {"20ms_3090": 0.1, "20ms_a100": 0.025, "5050_a100": 0.025, "step_k40m": 0.015}  # of each sensor


@pytest.mark.parametrize(("span_s", "known"), [(20.0, True), (40.0, False)])
@pytest.mark.parametrize("log", WINDOWS_S)
def test_nothing_in_the_logs_of_real_cards_under_fast_waves_and_steps_is_a_period(log, span_s, known) -> None:
    trace = read(LOGS / f"{log}.csv")
    part = trace.split(span_s)[0] if trace.end_s - trace.start_s > span_s else trace
    witnesses = part.witnesses
    assert len(witnesses) == 1  # utilisation, which carries the same beat
    window_s = WINDOWS_S[log] if known else 0.0
    estimate = detect(part.t_s, part.power_w, update_s=part.update_s, window_s=window_s, witnesses=witnesses)
    assert estimate.verdict is not Verdict.PERIODIC
    assert not estimate.verified


def test_the_beat_in_a_real_log_is_named() -> None:
    trace = read(LOGS / "20ms_3090.csv")
    estimate = detect(trace.t_s, trace.power_w, update_s=trace.update_s, witnesses=trace.witnesses)
    assert estimate.verdict is Verdict.AMBIGUOUS
    assert estimate.reason.startswith("it may be a beat: a load faster than the sensor")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wave of 20 ms", "wave of 100 ms", "wave of 20 ms, counter"])
def test_fast_waves_through_slow_sensors_are_no_period(name: str) -> None:
    (family,) = [family for family in FAMILIES if family.name == name]
    for number in range(3):
        assert look(family.record(number, 20.0, np.random.default_rng(number))).verdict is not Verdict.PERIODIC


@pytest.mark.parametrize(
    ("name", "length", "number"),
    [
        ("wave of 20 ms", 0, 6),  # edges that seem sharp, though they hardly swing
        ("wave of 50 ms", 0, 0),  # as steady as a cycle of its own
        ("wave of 100 ms", 0, 4),
        ("wave of 100 ms", 1, 5),  # the window is nearly one fast cycle
        ("wave of 20 ms, counter", 1, 2),  # no more than chance makes of a counter that is polled
    ],
)
def test_fast_waves_are_no_period_for_that_the_sensors_window_is_known(name: str, length: int, number: int) -> None:
    """The signals of which each had been called, and borne out by utilisation or the counter."""
    place, family = next((place, family) for place, family in enumerate(FAMILIES) if family.name == name)
    rng = np.random.default_rng([8700, 4, place, length, number])
    assert look(family.record(number, WINDOWS[length], rng), known=True).verdict is not Verdict.PERIODIC


@pytest.mark.slow
def test_edges_sharper_than_an_average_makes_of_fast_loads_call_a_period_whether_or_not_the_window_is_known() -> None:
    load = Load(waveform=WAVEFORMS["shallow"], period_s=0.41, jitter=0.01)
    readings = record(load, SENSORS["20/10"], 20.0, np.random.default_rng(1))
    for window_s in (0.0, 0.01):
        estimate = detect(readings.t_s, readings.power_w, update_s=0.02, window_s=window_s)
        assert estimate.verdict is Verdict.PERIODIC
        assert not estimate.verified  # a fast load of which one level lasts for a moment is not excluded
        assert estimate.period_s == pytest.approx(0.41, rel=0.01)


@pytest.mark.parametrize("period_s", [0.0525, 0.0756, 0.1202, 0.148])
def test_a_fast_load_seen_by_a_counter_that_moves_without_jitter_is_no_period_however_steady(period_s: float) -> None:
    readings = seen(period_s, "counter", seed=0, span_s=20.0)
    verdict = detect(readings.t_s, readings.power_w, update_s=UPDATE_S, window_s=UPDATE_S).verdict
    assert verdict is not Verdict.PERIODIC


def test_an_update_that_is_not_known_ends_in_a_verdict_as_well() -> None:
    readings = seen(0.9, "20/10")
    known, unknown = (
        detect(readings.t_s, readings.power_w, update_s=update_s, window_s=0.01) for update_s in (0.02, 0.0)
    )
    assert unknown.verdict is known.verdict is Verdict.PERIODIC


def test_a_period_that_the_counter_sees_is_verified() -> None:
    estimate = judged(0.52, counter=True)
    assert estimate.period_s == pytest.approx(0.52, rel=0.002)
    assert estimate.verified


def test_a_beat_that_the_counter_does_not_see_is_unresolvable() -> None:
    estimate = judged(0.113, counter=True)  # a beat of 0.87 s
    assert estimate.verdict is Verdict.UNRESOLVABLE
    assert "the energy counter sees too little of the period of 0.8" in estimate.reason


@pytest.mark.slow
def test_a_beat_through_a_sensor_that_averages_all_the_time_is_no_period() -> None:
    for seed in range(4):
        readings = seen(0.142, "100/100", seed=seed)
        verdict = detect(readings.t_s, readings.power_w, update_s=UPDATE_S, window_s=0.1).verdict
        assert verdict is not Verdict.PERIODIC


@pytest.mark.parametrize("waveform", ["shallow", "accumulate4"])
def test_a_phase_that_is_off_as_the_sensors_clock_is_shows_a_beat_however_sharp_its_edges_seem(waveform: str) -> None:
    """A load of little more than an update, read for a quarter of the time: edges alone had let these through."""
    for seed in range(2):
        load = Load(waveform=WAVEFORMS[waveform], period_s=0.1085, jitter=0.0)
        readings = record(load, SENSORS["100/25"], 30.0, np.random.default_rng(seed))
        estimate = detect(readings.t_s, readings.power_w, update_s=UPDATE_S, window_s=0.025)
        assert estimate.verdict is Verdict.AMBIGUOUS
        assert estimate.reason == "it may be a beat: its phase goes ahead and back with the sensor's clock"
        assert not estimate.triable  # as a cap that slows the load lengthens the beat, as it would a cycle


def test_a_trial_is_for_periods_that_fast_loads_would_lengthen_by_much_more_than_the_clock_loses() -> None:
    """A beat of F cycles of a load lengthens by F times what the load does: of few as much as a cycle of its own."""
    short, long = judged(0.52, window_s=0.0), judged(1.9, window_s=0.0)
    assert short.open
    assert not short.triable
    assert short.reason.endswith("; an energy counter would decide it")
    assert long.triable
    assert long.reason.endswith("; an energy counter, or one trial at another cap would decide it")


def test_stamps_without_any_scatter_show_no_beat() -> None:
    """An energy counter's own moves, which are regular in the simulation: their rounding is no clock."""
    readings = seen(0.52, "counter")
    assert detect(readings.t_s, readings.power_w, update_s=UPDATE_S, window_s=UPDATE_S).verdict is Verdict.PERIODIC


def test_a_sharp_edge_excludes_a_beat_where_the_sensors_window_is_known_and_utilisation_where_it_is_not_none() -> None:
    estimate = judged(0.52)
    assert estimate.verdict is Verdict.PERIODIC
    assert estimate.verified
    assert not judged(0.52, busy=True, window_s=0.0).verified


@pytest.mark.parametrize("name", ["frequent checkpoints", "steps of 2 to 3 readings"])
def test_the_cycle_of_regular_checkpoints_is_no_iteration(name: str) -> None:
    """The signals of which one or more had been called, as cycles of seven steps and a checkpoint."""
    place, family = next((place, family) for place, family in enumerate(FAMILIES) if family.name == name)
    for window_s, length, number in ((40.0, 1, 0), (60.0, 2, 5 if family.name.startswith("steps") else 1)):
        recording = family.record(number, window_s, np.random.default_rng([7100, 4, place, length, number]))
        estimate = look(recording)
        if estimate.verdict is Verdict.PERIODIC:
            steps = estimate.period_s / recording.signal.mean_iteration_s(estimate.start_s, estimate.end_s)
            assert round(steps) <= 4
            assert steps == pytest.approx(round(steps), rel=0.03)


def looked_at(family: str, waveform: str, sensor: str, column: str, period_s: float, *seed: int) -> Found:
    """What is said of a window of the benchmark (`bench period`), by what is known beside the power."""
    window = Window(
        family=family,
        waveform=waveform,
        sensor=sensor,
        column=column,
        period_s=period_s,
        fast=waveform == "fast",
        resolved=waveform != "fast",
        seed=seed,
    )
    return evidence.look(window)


@pytest.mark.parametrize("sensor", ["20 ms", "25 of 100 ms", "100 ms"])
def test_a_swing_of_a_hundredth_is_called_where_readings_and_a_fast_counter_see_it_at_the_same_time(sensor) -> None:
    found = looked_at("set", "near-flat", sensor, "20 ms", 0.5, 1)
    assert found.called
    assert not found.wrong
    assert not found.proven  # sensors that look at the same moments would show a beat so as well


@pytest.mark.slow
@pytest.mark.parametrize("period_s", [0.0552, 0.0542, 0.0262, 0.0174])
def test_a_beat_that_has_the_same_size_in_readings_and_counter_is_seen_by_them_at_different_times(period_s) -> None:
    """Both average over all of the time, and move as often: of sizes alone every one of these is a cycle."""
    for seed in range(3):
        assert not looked_at("judged", "fast", "100 ms", "counter", period_s, seed).called


@pytest.mark.parametrize(
    ("family", "waveform", "sensor", "column", "period_s", "seed", "mistake"),
    [
        # The few phases that a whole number of updates shows: of 6.02, where edges were made up,
        ("set", "fast", "25 of 100 ms", "window", 0.08581713056956701, (5100, 6, 105, 49), "called"),
        # of 9.07, whose phase walks about as far meanwhile, of 8.01, and five cycles in nine updates.
        ("set", "fast", "25 of 100 ms", "window", 0.09008397408985203, (4411, 6, 57, 1), "called"),
        ("set", "fast", "25 of 100 ms", "counter", 0.061538310291182854, (5200, 6, 86, 30), "called"),
        ("set", "fast", "25 of 100 ms", "20 ms", 0.17984962952384465, (5201, 6, 78, 22), "called"),
        # A waveform mostly made of what takes two updates: a beat of 23.3 with sharp edges.
        ("judged", "fast", "25 of 100 ms", "window", 0.19405185684149992, (4411, 6, 58, 2), "proven"),
        # A beat that lengthens at a cap as a cycle does, of 4.8 cycles of a load that feels a fifth of what the clock
        # loses: its clock and the counter show it.
        ("set", "fast", "20 ms", "trial", 0.015826025571729466, (5202, 6, 55, 55), "called"),
        # Parts of an iteration, each faster than two readings, whose beat of three to five updates walks as it does.
        ("judged", "accumulation of 3", "25 of 100 ms", "alone", 0.3902, (881, 3), "wrong"),
        ("judged", "accumulation of 3", "25 of 100 ms", "alone", 0.4205, (881, 57), "wrong"),
        ("set", "accumulation of 4", "25 of 100 ms", "alone", 0.525, (881, 2), "wrong"),
        # Five or seven cycles of which none shows clearly, taken for one.
        ("set", "near-flat", "25 of 100 ms", "20 ms", 0.46655924238117114, (5202, 5, 61, 1), "called"),
        ("set", "near-flat", "25 of 100 ms", "20 ms", 0.4024167459066621, (5302, 5, 60, 0), "called"),
        # And five in a whole number of updates: their third harmonic is beyond the sensor for one cycle.
        ("judged", "accumulation of 3", "100 ms", "window", 0.45942961463686627, (5101, 5, 67, 1), "wrong"),
    ],
)
def test_what_was_once_mistaken_for_a_period_is_not_any_more(
    family, waveform, sensor, column, period_s, seed, mistake
) -> None:
    assert not getattr(looked_at(family, waveform, sensor, column, period_s, *seed), mistake)


@pytest.mark.slow
def test_a_load_that_averaging_readings_folds_is_no_period_and_what_is_slower_than_the_averages_is() -> None:
    """Of 40 s at 20 ms two readings each are averaged, which fold a load of 50.5 ms to 0.19 s: readings show it."""
    fast = looked_at("set", "fast", "20 ms", "window", 0.05051748782381583, 5300, 6, 26, 26)
    assert not fast.called
    slow = looked_at("set", "cnn", "20 ms", "window", 0.5, 3)
    assert slow.proven
    assert not slow.wrong


def test_a_period_whose_waveform_is_mostly_faster_than_the_readings_is_not_proven() -> None:
    """Of a cycle of 1.1 s in 11 readings a third would do as well, in another order of these, and be steadier where
    two waits shift the cycle: 0.73 s of a job and half as much again."""
    t_s = 0.1 * np.arange(100) + np.random.default_rng(0).normal(0, 5e-4, 100)
    work = np.array([264, 264, 264, 264, 264, 264, 132, 77, 231, 231, 231], dtype=float)
    fold = np.interp(np.arange(100) % 11, np.arange(11), work)
    power_w = np.concatenate((fold[:51], fold[55:83], fold[87:])) + np.random.default_rng(1).normal(0, 1, 92)
    estimate = detect(t_s[:92], power_w, update_s=0.1, window_s=0.02)
    assert not estimate.verified or estimate.period_s == pytest.approx(1.1, rel=0.02)


@pytest.mark.slow
def test_a_knowing_look_at_accumulation_sees_the_whole_cycle_as_well() -> None:
    """One of its four parts had been proven, without the closing step: knowing the window, its fit had as many
    harmonics as the whole cycle may have, and longer ones were not tried."""
    family = evidence.FAMILIES["set"]
    (window,) = (one for one in evidence.windows("set", family, 6400, 6, ["window"]) if one.seed == (6400, 5, 23, 5))
    seen = evidence.look(window)
    assert seen.called
    assert not seen.wrong


@pytest.mark.parametrize("sensor", ["20 ms", "25 of 100 ms", "100 ms"])
def test_a_period_that_the_hosts_cpu_time_shares_is_proven_and_one_of_a_host_that_spins_is_not(sensor: str) -> None:
    for seed, proven in ((0, False), (1, True)):  # spins, blocks
        found = looked_at("judged", "a wait for data", sensor, "CPU time", 0.7, seed)
        assert found.window.host == ("blocks" if proven else "spins")
        assert found.proven is proven
        assert not found.wrong


@pytest.mark.slow
@pytest.mark.parametrize("sensor", ["20 ms", "25 of 100 ms", "100 ms"])
@pytest.mark.parametrize("period_s", [0.0174, 0.0513, 0.0262])
def test_the_cpu_time_of_a_fast_load_proves_no_beat_of_it(sensor: str, period_s: float) -> None:
    for seed in (1, 2):  # blocks, loads data
        assert not looked_at("judged", "fast", sensor, "CPU time", period_s, seed).proven


@pytest.mark.parametrize(
    ("family", "sensor", "period_s", "seed"),
    [
        ("judged", "100 ms", 0.07980197097788562, (8601, 6, 57, 1)),  # its beat takes 4.998 of it
        ("set", "25 of 100 ms", 0.1250497969871748, (8602, 6, 38, 10)),  # 7.97
    ],
)
def test_a_host_that_shows_the_fast_load_itself_proves_no_beat_though_it_logs_as_seldom(
    family: str, sensor: str, period_s: float, seed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Window, "host", evidence.LOGS)
    assert not looked_at(family, "fast", sensor, "CPU time", period_s, *seed).proven


DRAW = Draw(least_w=50.0, most_w=350.0)
PHASES = 128


def averaged(load_w: Floats, cycles: float) -> Floats:
    """A load's cycle, averaged over so many of its cycles, at 128 phases."""
    size = len(load_w)
    total = np.concatenate(([0.0], np.cumsum(np.tile(load_w, 2 + int(np.ceil(cycles)))))) / size
    ends = np.arange(PHASES) / PHASES + np.ceil(cycles)
    places = np.arange(len(total)) / size
    return (np.interp(ends, places, total) - np.interp(ends - cycles, places, total)) / cycles


def swing(values_w: Floats) -> Swing:
    mean_w = float(values_w.mean())
    return swing_of(values_w - mean_w, np.zeros((1, PHASES)), mean_w, 1)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_fast_load_shows_through_an_average_is_never_excluded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = rng.uniform(DRAW.least_w, DRAW.most_w, rng.integers(2, 6))
    load_w = np.repeat(levels, rng.integers(60, 400, len(levels)))
    for cycles in (*rng.uniform(0.55, 6.0, 20), 0.9, 1.0, 1.1, 2.04):
        assert may_pass(swing(averaged(load_w, cycles)), np.array([cycles]), 0.02, DRAW).all()


@pytest.mark.parametrize("duty", [0.06, 0.2, 0.5, 0.8, 0.94])
def test_nor_is_what_shows_of_one_with_two_levels_through_less_than_half_a_cycle(duty: float) -> None:
    load_w = np.where(np.arange(1000) < 1000 * duty, 320.0, 90.0)
    for cycles in (0.05, 0.2, 0.25, 0.45):
        assert may_pass(swing(averaged(load_w, cycles)), np.array([cycles]), 0.02, DRAW).all()


def test_a_swing_that_would_need_more_than_the_card_draws_is_excluded() -> None:
    """Ten updates a cycle, through an average of one update: nine tenths of a fast cycle, or eleven, are averaged."""
    values_w = 200.0 + 40.0 * np.sign(np.sin(2 * np.pi * np.arange(PHASES) / PHASES))
    assert not may_pass(swing(values_w), np.array([0.9, 1.1, 1.9, 2.1]), 0.01, DRAW).any()
    little_w = 200.0 + 4.0 * np.sin(2 * np.pi * np.arange(PHASES) / PHASES)
    assert may_pass(swing(little_w), np.array([0.9, 1.1]), 0.01, DRAW).all()


def test_an_edge_that_is_steeper_than_the_cards_whole_range_over_the_window_is_excluded() -> None:
    values_w = np.where(np.arange(PHASES) < PHASES // 2, 120.0, 280.0)
    assert not may_pass(swing(values_w), np.array([0.25, 0.5]), 0.05, DRAW).any()
    assert may_pass(swing(values_w), np.array([0.005]), 0.05, DRAW).all()


def test_a_swing_that_is_not_known_well_excludes_nothing() -> None:
    values_w = 40.0 * np.sign(np.sin(2 * np.pi * np.arange(PHASES) / PHASES))
    unsure = swing_of(values_w, np.full((1, PHASES), 15.0) * np.sign(values_w), 200.0, 1)
    assert may_pass(unsure, np.array([0.9]), 0.01, DRAW).all()


SHAPE = np.array([40.0 + 0j, 0.0, 12.0, 0.0, 6.0])
BEFORE = Template(
    period_s=0.5,
    rel_stderr=1e-4,
    cycles=40.0,
    coefficients=SHAPE,
    level_w=180.0,
    noise_w=1.0,
    jitter=0.01,
    unseen=0.01,
    update_s=0.02,
    window_s=0.01,
)


def at_cap(period_s: float) -> tuple[Floats, Floats]:
    """Twenty seconds of the waveform with another period."""
    t_s = np.arange(0.0, 20.0, 0.02)
    turns = np.outer(np.arange(1, len(SHAPE) + 1), t_s / period_s)
    noise = np.random.default_rng(0).normal(0.0, 1.0, len(t_s))
    return t_s, 180.0 + (SHAPE.real @ np.cos(2 * np.pi * turns)) + noise


@pytest.mark.parametrize(
    ("times", "clock", "says"),
    [
        (1.07, 0.90, Tried.PROVEN),
        (1.00, 0.90, Tried.UNCLEAR),  # nothing of it follows the clock
        (1.40, 0.90, Tried.REFUTED),  # more than the clock lost
        (0.80, 0.90, Tried.REFUTED),  # a cap makes nothing faster
        (1.07, 1.00, Tried.REFUTED),  # the clock is as it was
    ],
)
def test_a_trial_proves_what_lengthens_as_the_clock_says_and_refutes_what_goes_elsewhere(times, clock, says) -> None:
    found, ratio = tried(BEFORE, *at_cap(0.5 * times), clock_hz=clock * 1.7e9, before_hz=1.7e9)
    assert found is says
    assert ratio == pytest.approx(times, rel=0.01)


def test_a_pattern_that_is_gone_at_the_cap_decides_nothing() -> None:
    t_s = np.arange(0.0, 20.0, 0.02)
    noise_w = 180.0 + np.random.default_rng(1).normal(0.0, 5.0, len(t_s))
    assert tried(BEFORE, t_s, noise_w, clock_hz=1.5e9, before_hz=1.7e9)[0] is Tried.UNCLEAR
