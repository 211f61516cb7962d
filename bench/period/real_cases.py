"""What the detector makes of real-like signals, and the tables of it."""

import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autocap.progress.period import PeriodEstimate, Verdict, detect
from bench.period.evidence import within
from bench.period.real_signals import FAMILIES, WINDOWS_S, Family, Recording

_NEAR = 0.03
_MULTIPLES = 4
_SEEN = "Real-like signals in windows of 20, 40 and 60 s: steps that can be seen"
_UNSEEN = "Real-like signals in which no step can be seen: whatever is called is wrong"
_HEADER = (
    "windows",
    "called",
    "right",
    "of 2x",
    "of 3x",
    "of 4x",
    "refused",
    "wrong",
    "verified",
    "in 1σ %",
    "in 2σ %",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRow:
    """What the detector made of one signal.

    called: whether it is said to be periodic; period_s, rel_stderr: as said, `None` otherwise. true_s: the mean step
    realised in what it looked at, `None` where no period is to be found. multiple: of true_s, the nearest up to 4.
    error: relative, against that multiple. verified: whether it says that a second witness bears it out.
    """

    family: str
    window_s: float
    number: int
    seed: int
    called: bool
    period_s: float | None
    rel_stderr: float | None
    true_s: float | None
    multiple: int
    error: float | None
    verified: bool
    cpu_s: float
    reason: str

    @property
    def right(self) -> bool:
        return self.called and self.error is not None and abs(self.error) < _NEAR

    @property
    def wrong(self) -> bool:
        return self.called and not self.right


def rows(seeds: range, repeats: int, names: Container[str], *, known: bool = False) -> Iterator[RealRow]:
    """`repeats` signals of each window and family among the names, each with random numbers of its own. known: whether
    the sensor is."""
    for seed in seeds:
        for place, family in enumerate(FAMILIES):
            if family.name not in names:
                continue
            for length, window_s in enumerate(WINDOWS_S):
                for number in range(repeats):
                    rng = np.random.default_rng([seed, 4, place, length, number])
                    recording = family.record(number, window_s, rng)
                    begin_s = time.process_time()
                    estimate = look(recording, known=known)
                    cpu_s = time.process_time() - begin_s
                    yield _row(family, recording, estimate, window_s, number, seed, cpu_s)


def look(recording: Recording, *, known: bool = False) -> PeriodEstimate:
    """The detector's word, as `autocap period` asks for it: what a reading averages over is not in a log. known: as a
    run asks, whose device says what its readings average over."""
    signal = recording.signal
    return detect(
        signal.t_s,
        signal.power_w,
        update_s=recording.update_s,
        window_s=recording.window_s if known else 0.0,
        counted=recording.counted,
        witnesses=recording.witnesses,
    )


def _row(
    family: Family,
    recording: Recording,
    estimate: PeriodEstimate,
    window_s: float,
    number: int,
    seed: int,
    cpu_s: float,
) -> RealRow:
    called = estimate.verdict is Verdict.PERIODIC
    true_s, multiple, error = None, 0, None
    if called and family.steps and estimate.period_s is not None:
        true_s = recording.signal.mean_iteration_s(estimate.start_s, estimate.end_s)
        multiple = min(max(1, round(estimate.period_s / true_s)), _MULTIPLES)
        error = estimate.period_s / (multiple * true_s) - 1.0
    return RealRow(
        family=family.name,
        window_s=window_s,
        number=number,
        seed=seed,
        called=called,
        period_s=estimate.period_s if called else None,
        rel_stderr=estimate.rel_stderr if called else None,
        true_s=true_s,
        multiple=multiple,
        error=error,
        verified=called and estimate.verified,
        cpu_s=cpu_s,
        reason=estimate.reason,
    )


def report(rows: Sequence[RealRow]) -> list[str]:
    """The tables, line by line."""
    lines = []
    for steps, title in ((True, _SEEN), (False, _UNSEEN)):
        names = [family.name for family in FAMILIES if family.steps is steps]
        part = [row for row in rows if row.family in names]
        if part:
            lines += [title, *_table([*_by_family(part), *_by_window(part), ("all", part)]), ""]
    cpu_ms = [1000 * row.cpu_s for row in rows]
    return [*lines, f"CPU per call: mean {np.mean(cpu_ms):.0f} ms, worst {max(cpu_ms):.0f} ms"]


def _by_family(rows: Sequence[RealRow]) -> list[tuple[str, list[RealRow]]]:
    names = dict.fromkeys(row.family for row in rows)
    return [(name, [row for row in rows if row.family == name]) for name in names]


def _by_window(rows: Sequence[RealRow]) -> list[tuple[str, list[RealRow]]]:
    return [(f"{window_s:g} s", [row for row in rows if row.window_s == window_s]) for window_s in WINDOWS_S]


def _table(groups: Sequence[tuple[str, Sequence[RealRow]]]) -> list[str]:
    lines = [f"{'':28}" + "".join(f"{title:>9}" for title in _HEADER)]
    return lines + [f"{name:28}" + "".join(f"{cell:>9}" for cell in _cells(rows)) for name, rows in groups]


def _cells(rows: Sequence[RealRow]) -> list[str]:
    called = [row for row in rows if row.called]
    right, wrong = [row for row in rows if row.right], [row for row in rows if row.wrong]
    counts = [len(rows), len(called), len(right)]
    counts += [sum(row.multiple == multiple for row in right) for multiple in (2, 3, 4)]
    counts += [len(rows) - len(called), len(wrong), sum(row.verified for row in wrong)]
    errors = [(abs(row.error or 0.0), row.rel_stderr or 0.0) for row in right]
    return [*map(str, counts), within(errors, 1), within(errors, 2)]
