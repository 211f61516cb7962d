"""How many windows are called, by what the detector is given: power alone, the sensor's window, an energy counter that
is looked at with each reading or every 20 ms, and one trial at another cap; or power alone and the host's CPU time.

Two sets of waveforms and sensors: thresholds are set on the first, and judged on the second. Fast loads, of 1 to 200
ms, go through the same sensors: what repeats there is a beat of the load with the sensor's sampling, and whatever is
called is wrong.

CPU time is looked at every 20 ms. A job has a thread that launches its iterations and then waits for the GPU: spinning,
so that its CPU time is flat, or blocked. Or it spins, and processes load data: one is woken by each iteration, and
works for half an iteration to three and a half, so that several do at a time, out of step. Fast loads that block may
also log, once in so many iterations.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from autocap.devices.model.sensor import PowerSensor, SensorModel
from autocap.progress.period import PeriodEstimate, Verdict, detect, lock
from autocap.progress.period.counted import Load as CpuLoad
from autocap.progress.period.period_ratio import Tried, tried
from autocap.progress.period.signals import moves
from autocap.testing.simulated.job import DEEP, NEARLY_FLAT, SHALLOW, Phase
from bench.common import played
from bench.period.signals import LEAD_S, Floats, Load, Signal, truth

KINDS = ("spins", "blocks", "loads data")
LOGS = "logs"
_TICK_S = 0.004  # a thread that runs is counted up to the last one
_POLL_S, _POLL_JITTER_S = 0.020, 0.0007
_CPUS = 16.0
_LAUNCHES, _WORKS = (0.1, 0.7), (0.5, 3.5)  # of an iteration
_LOGS_EVERY_S, _LOG_S, _LAUNCHES_THEN = (0.33, 3.0), (0.01, 0.1), 0.3
_IDLE, _UNEVEN, _WOKEN_S = 0.05, 0.1, 0.0005


def load_of(signal: Signal, kind: str, rng: np.random.Generator) -> CpuLoad:
    """kind: of KINDS, or LOGS."""
    starts_s, ends_s = signal.progress_t_s[::2], signal.progress_t_s[1::2]
    lasts_s = ends_s - starts_s
    least = 1.0
    if kind == LOGS:
        logs_s = starts_s[:: max(2, round(rng.uniform(*_LOGS_EVERY_S) / float(np.mean(lasts_s))))]
        begin_s = np.concatenate((starts_s, logs_s))
        end_s = np.concatenate((starts_s + _LAUNCHES_THEN * lasts_s, logs_s + rng.uniform(*_LOG_S)))
        return _looked_at(begin_s, end_s, _IDLE, float(signal.t_s[-1]), rng)
    if kind == "blocks":
        least, lasts_s = _IDLE, rng.uniform(*_LAUNCHES) * lasts_s
    elif kind == "loads data":
        starts_s = starts_s + rng.exponential(_WOKEN_S, len(starts_s))
        lasts_s = rng.uniform(*_WORKS) * np.mean(lasts_s) * np.exp(_UNEVEN * rng.standard_normal(len(starts_s)))
    else:
        lasts_s = np.zeros(len(starts_s))
    return _looked_at(starts_s, starts_s + lasts_s, least, float(signal.t_s[-1]), rng)


def _looked_at(begin_s: Floats, end_s: Floats, least: float, until_s: float, rng: np.random.Generator) -> CpuLoad:
    """What is seen of one CPU in use between each begin and end, shape (n,) each, beside `least` all the time."""
    polls_s = np.arange(LEAD_S, until_s, _POLL_S)
    polls_s = polls_s + np.abs(rng.normal(0.0, _POLL_JITTER_S, len(polls_s)))
    edges_s = np.concatenate((begin_s, end_s))
    order = np.argsort(edges_s)
    edges_s = np.concatenate(([min(0.0, edges_s.min()) - 1.0], edges_s[order], [until_s + _POLL_S]))
    used = least + np.concatenate(([0.0], np.cumsum(np.repeat([1.0, -1.0], len(begin_s))[order])))
    spent_s = np.concatenate(([0.0], np.cumsum(used * np.diff(edges_s))))
    running = used[np.clip(np.searchsorted(edges_s, polls_s, side="right") - 1, 0, len(used) - 1)]
    since_tick_s = (polls_s + _TICK_S * rng.random()) % _TICK_S
    seen_s = np.interp(polls_s, edges_s, spent_s) - running * since_tick_s
    return CpuLoad(polls_s[1:], np.diff(seen_s) / np.diff(polls_s), _CPUS)


_WINDOWS_S = (20.0, 40.0)
_PERIODS_S = (0.33, 1.9)
_FAST_S = (0.001, 0.2)
_RESOLVED_UPDATES = 3.0
_NEAR = 0.03
_MULTIPLES = 4
_QUANTUM_J = 0.001
_JITTERS = (0.002, 0.01, 0.03)
# A trial: the clock falls by a tenth; of that an iteration feels a part, and a fast load another, or nothing.
_CLOCK_HZ, _CLOCK_LOST, _FLATTEN = 1.7e9, 1.10, 0.9
_FELT, _FELT_FAST, _FEELS_NOTHING = (0.4, 1.0), (0.2, 1.0), 0.2

COLUMNS = ("alone", "window", "counter", "20 ms", "trial", "CPU time")
_COUNTED, _FAST_COUNTED = COLUMNS[2:5], COLUMNS[3:5]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Waveforms by name, each with the share of its shortest feature that makes the period; and sensors."""

    waveforms: dict[str, tuple[tuple[Phase, ...], float]]
    sensors: dict[str, SensorModel]


_CLOSING = (Phase(share=0.30, power=0.55),)
SET = Family(
    waveforms={
        "cnn": (DEEP, 0.08),
        "accumulation of 4": (DEEP * 4 + _CLOSING, 0.07),
        "shallow": (SHALLOW, 0.10),
        "near-flat": (NEARLY_FLAT, 0.35),
    },
    sensors={
        "20 ms": SensorModel(update_s=0.020, window_s=0.010),
        "25 of 100 ms": SensorModel(update_s=0.100, window_s=0.025),
        "100 ms": SensorModel(update_s=0.100, window_s=0.100),
    },
)
_FORWARD = (Phase(share=0.06, power=0.45), Phase(share=0.34, power=0.98), Phase(share=0.60, power=1.14))
JUDGED = Family(
    waveforms={
        "forward and backward": (_FORWARD, 0.06),
        "a wait for data": ((Phase(share=0.20, power=0.40), Phase(share=0.80, power=1.15)), 0.20),
        "all-reduce at the end": ((Phase(share=0.72, power=1.12), Phase(share=0.28, power=0.62)), 0.28),
        "accumulation of 3": (_FORWARD * 3 + (Phase(share=0.40, power=0.50),), 0.12),
        "near-flat": ((Phase(share=0.45, power=0.975), Phase(share=0.55, power=1.02)), 0.45),
    },
    sensors={
        "20 ms": SensorModel(update_s=0.0201, window_s=0.012, update_jitter=0.005, noise=0.002),
        "25 of 100 ms": SensorModel(
            update_s=0.1012, window_s=0.025, update_jitter=0.004, noise=0.003, noise_correlation=0.6
        ),
        "100 ms": SensorModel(update_s=0.0998, window_s=0.100, update_jitter=0.001, noise=0.002, noise_correlation=0.8),
    },
)

FAMILIES = {"set": SET, "judged": JUDGED}
_TITLES = {
    "set": "Waveforms and sensors that thresholds are set on",
    "judged": "Waveforms and sensors that they are not set on",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window to look at. fast: a load faster than the sensor; resolved: the period can be seen."""

    family: str
    waveform: str
    sensor: str
    column: str
    period_s: float
    fast: bool
    resolved: bool
    seed: tuple[int, ...]

    @property
    def host(self) -> str:
        """What the host does, of KINDS, and of a fast load LOGS."""
        kinds = (*KINDS, LOGS) if self.fast else KINDS
        return kinds[sum(self.seed) % len(kinds)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the detector said. error: relative, against the nearest multiple of the mean iteration."""

    window: Window
    called: bool
    proven: bool
    error: float | None
    rel_stderr: float | None
    cpu_s: float

    @property
    def wrong(self) -> bool:
        return self.called and (self.error is None or abs(self.error) >= _NEAR)


def windows(name: str, family: Family, seed: int, repeats: int, columns: Sequence[str]) -> Iterator[Window]:
    for number, (waveform, sensor, repeat) in enumerate(product(family.waveforms, family.sensors, range(repeats))):
        rng = np.random.default_rng([seed, 5, number])
        step = (repeat + rng.random()) / repeats
        period_s = _PERIODS_S[0] * (_PERIODS_S[1] / _PERIODS_S[0]) ** step
        update_s = family.sensors[sensor].update_s
        feature_s = family.waveforms[waveform][1] * period_s
        resolved = period_s >= _RESOLVED_UPDATES * update_s and feature_s >= 0.5 * update_s
        for column in columns:
            yield Window(
                family=name,
                waveform=waveform,
                sensor=sensor,
                column=column,
                period_s=period_s,
                fast=False,
                resolved=resolved,
                seed=(seed, 5, number, repeat),
            )


def beats(name: str, family: Family, seed: int, repeats: int, columns: Sequence[str]) -> Iterator[Window]:
    """Fast loads; every second one so close to a multiple of the sensor's rate that its beat takes 3 to 100 updates."""
    for number, (sensor, repeat) in enumerate(product(family.sensors, range(repeats))):
        rng = np.random.default_rng([seed, 6, number])
        update_s = family.sensors[sensor].update_s
        slowest_s = min(_FAST_S[1], _RESOLVED_UPDATES * update_s)
        period_s = _FAST_S[0] * (slowest_s / _FAST_S[0]) ** rng.random()
        if repeat % 2:
            most = max(1, int(update_s / _FAST_S[0]))
            order = int(np.exp(rng.uniform(0.0, np.log(most + 1))))
            updates = np.exp(rng.uniform(np.log(3.0), np.log(100.0)))
            period_s = update_s / (order + rng.choice([-1.0, 1.0]) / updates)
        for column in columns:
            yield Window(
                family=name,
                waveform="fast",
                sensor=sensor,
                column=column,
                period_s=float(period_s),
                fast=True,
                resolved=False,
                seed=(seed, 6, number, repeat),
            )


def look(window: Window) -> Found:
    """Record a window, and ask the detector."""
    family = FAMILIES[window.family]
    rng = np.random.default_rng(list(window.seed))
    model = family.sensors[window.sensor]
    fast_counter = window.column in _FAST_COUNTED
    counter_s = _POLL_S if fast_counter else model.update_s
    model = replace(model, energy_update_s=counter_s)
    span_s = float(rng.choice(_WINDOWS_S))
    if window.fast:
        low, high = rng.uniform(0.3, 0.8), rng.uniform(1.05, 1.5)
        duty = rng.uniform(0.2, 0.8)
        waveform: tuple[Phase, ...] = (Phase(share=duty, power=high), Phase(share=1 - duty, power=low))
        jitter = float(np.exp(rng.uniform(np.log(0.0005), np.log(0.02))))
    else:
        waveform = family.waveforms[window.waveform][0]
        jitter = float(rng.choice(_JITTERS))
    load = Load(waveform=waveform, period_s=window.period_s, jitter=jitter)
    signal, counted = _seen(load, model, span_s, rng, fast_counter=fast_counter)
    begin_s = time.process_time()
    estimate = detect(
        signal.t_s,
        signal.power_w,
        update_s=model.update_s,
        window_s=0.0 if window.column in ("alone", "CPU time") else model.window_s,
        counted=counted if window.column in _COUNTED else None,
        load=load_of(signal, window.host, rng) if window.column == "CPU time" else None,
    )
    if window.column == "trial" and estimate.triable:
        estimate = _tried(estimate, signal, load, model, span_s, rng, fast=window.fast)
    cpu_s = time.process_time() - begin_s
    return _found(window, signal, estimate, cpu_s)


def _seen(
    load: Load, model: SensorModel, span_s: float, rng: np.random.Generator, *, fast_counter: bool
) -> tuple[Signal, tuple[Floats, Floats]]:
    """The readings of a load, and its counter, looked at with each of them or every 20 ms."""
    edges_s, power_w, progress_t_s, progress = truth(load, span_s + LEAD_S, rng)
    readings = PowerSensor(model, rng).advance(edges_s, power_w)
    keep = readings.t_s >= LEAD_S
    signal = Signal(
        t_s=readings.t_s[keep], power_w=readings.power_w[keep], progress_t_s=progress_t_s, progress=progress
    )
    polls_s = signal.t_s
    if fast_counter:
        polls_s = np.arange(LEAD_S, float(edges_s[-1]), _POLL_S)
        polls_s = polls_s + np.abs(rng.normal(0.0, _POLL_JITTER_S, len(polls_s)))
    return signal, _counted(polls_s, readings.energy_t_s, readings.energy_j)


def _tried(
    estimate: PeriodEstimate,
    signal: Signal,
    load: Load,
    model: SensorModel,
    span_s: float,
    rng: np.random.Generator,
    *,
    fast: bool,
) -> PeriodEstimate:
    """The estimate after a trial at a lower cap: proven, or as it was."""
    felt = rng.uniform(*_FELT_FAST) * (rng.random() > _FEELS_NOTHING) if fast else rng.uniform(*_FELT)
    capped = replace(load, slowdown=1.0 + (_CLOCK_LOST - 1.0) * felt, flatten=_FLATTEN)
    after, _ = _seen(capped, model, span_s, rng, fast_counter=False)
    template = lock(signal.t_s, signal.power_w, estimate, update_s=model.update_s, window_s=model.window_s)
    if template is None:
        return estimate
    clock_hz = _CLOCK_HZ / _CLOCK_LOST
    found, _ = tried(template, after.t_s, after.power_w, clock_hz=clock_hz, before_hz=_CLOCK_HZ)
    proven = found is Tried.PROVEN
    verdict = Verdict.PERIODIC if proven else Verdict.AMBIGUOUS
    return replace(estimate, verdict=verdict, verified=proven)


def _counted(polls_s: Floats, moved_s: Floats, energy_j: Floats) -> tuple[Floats, Floats]:
    seen = np.maximum(np.searchsorted(moved_s, polls_s, side="right") - 1, 0)
    shown = _QUANTUM_J * np.round(energy_j[seen] / _QUANTUM_J)
    found = moves(polls_s, shown)
    assert found is not None
    return found


def _found(window: Window, signal: Signal, estimate: PeriodEstimate, cpu_s: float) -> Found:
    called = estimate.verdict is Verdict.PERIODIC
    error = None
    if estimate.period_s is not None:
        true_s = signal.mean_iteration_s(estimate.start_s, estimate.end_s)
        multiple = min(max(1, round(estimate.period_s / true_s)), _MULTIPLES)
        error = estimate.period_s / (multiple * true_s) - 1.0
    return Found(
        window=window,
        called=called,
        proven=called and estimate.verified,
        error=error,
        rel_stderr=estimate.rel_stderr if called else None,
        cpu_s=cpu_s,
    )


def found(seeds: range, repeats: int, fast: int, columns: Sequence[str] = COLUMNS) -> list[Found]:
    """What is said of every window, each of both families' waveforms and sensors `repeats` times at other periods, and
    of `fast` fast loads a sensor; two at a time."""
    todo: list[Window] = []
    for seed in seeds:
        for name, family in FAMILIES.items():
            todo += [*windows(name, family, seed, repeats, columns), *beats(name, family, seed, fast, columns)]
    return list(played(look, todo, 8))


def report(rows: Sequence[Found]) -> list[str]:
    """The tables, line by line: windows that can be resolved, and fast loads."""
    lines: list[str] = []
    for name in FAMILIES:
        part = [row for row in rows if row.window.family == name]
        seen = [row for row in part if row.window.resolved]
        lines += [_TITLES[name], _header("called, proven, wrong")]
        lines += [_line(key, [row for row in seen if row.window.sensor == key]) for key in FAMILIES[name].sensors]
        lines += [_line(key, [row for row in seen if row.window.waveform == key]) for key in FAMILIES[name].waveforms]
        lines += [_line(f"the host {key}", [row for row in seen if row.window.host == key]) for key in KINDS]
        lines += [_line("all", seen), _line("loads of 1 to 200 ms", [row for row in part if row.window.fast]), ""]
    right = [row for row in rows if row.called and not row.wrong and not row.window.fast]
    errors = [(abs(row.error or 0.0), row.rel_stderr or 0.0) for row in right]
    lines.append(
        f"stated errors of those that are right: {within(errors, 1)} % within 1σ, {within(errors, 2)} % within 2σ"
    )
    cpu_ms = [1000 * row.cpu_s for row in rows]
    return [*lines, f"CPU per call: mean {np.mean(cpu_ms):.0f} ms, worst {max(cpu_ms):.0f} ms"]


def _header(what: str) -> str:
    return f"{what:24}{'':>8}" + "".join(f"{column:>15}" for column in COLUMNS)


def _line(name: str, rows: Sequence[Found]) -> str:
    cells = [[row for row in rows if row.window.column == column] for column in COLUMNS]
    return f"{name:24}{len(cells[0]):>8}" + "".join(f"{_cell(cell):>15}" for cell in cells)


def _cell(rows: Sequence[Found]) -> str:
    """Of fast loads how many, of all others how many per cent are called, and proven; and how many are wrong."""
    if not rows:
        return "-"
    called = [row for row in rows if row.called]
    proven, wrong = [row for row in called if row.proven], [row for row in called if row.wrong]
    if rows[0].window.fast:
        return f"{len(wrong)} {sum(row.proven for row in wrong)} {len(wrong)}"
    return f"{100 * len(called) / len(rows):.0f} {100 * len(proven) / len(rows):.0f} {len(wrong)}"


def within(errors: Sequence[tuple[float, float]], sigmas: int) -> str:
    """How many per cent of some (error, stated error) are within so many stated ones."""
    return f"{100 * float(np.mean([error <= sigmas * stderr for error, stderr in errors])):.0f}" if errors else "-"
