"""Has the workload changed since the cap was chosen? Cumulative sums over time and energy per iteration.

Page's test (E. S. Page, Continuous inspection schemes, Biometrika 1954), both ways, on the logarithm of each quantity
over its reference. An allowance of half the smallest change that matters is taken off every iteration, so that the few
percent of a warming card never add up.
"""

import math
from collections import Counter, deque
from collections.abc import Sequence
from itertools import pairwise

from autocap.knobs import POWER_LIMIT, Knob
from autocap.measurement.metering import EnergyCurve, Metered
from autocap.measurement.tuning import TUNING
from autocap.metrics import ratios
from autocap.progress import Mark
from autocap.records import Measurement, Reading

_REMEMBERED = 100  # blocks
_MISSED = 4.0  # squares of a usual size that the largest of a few is worth, about


class CumulativeSum:
    """One quantity. `add` takes ln(value / reference) over some iterations; `level` is in units of the alarm.

    error: relative standard error of the reference: what it may be off by is no change.
    """

    def __init__(self, error: float = 0.0) -> None:
        self._allowance = max(TUNING.drift_allowance, TUNING.drift_reference_sigmas * error)
        self._up = self._down = self._square = self._largest = 0.0
        self._before: float | None = None
        self._blocks = 0
        self._since_up = self._since_down = 0

    def add(self, deviation: float, iterations: float) -> None:
        deviation = min(max(deviation, -TUNING.drift_iteration_most), TUNING.drift_iteration_most)
        if self._before is not None:
            # Successive differences: a change adds to them once only, so the largest is left out.
            square = iterations * (deviation - self._before) ** 2 / 2
            self._square, self._largest = self._square + square, max(self._largest, square)
            self._blocks += 1
        self._before = deviation
        self._up = max(0.0, self._up + min(iterations * (deviation - self._allowance), TUNING.drift_block_most))
        self._down = max(0.0, self._down - max(iterations * (deviation + self._allowance), -TUNING.drift_block_most))
        self._since_up = self._since_up + 1 if self._up else 0
        self._since_down = self._since_down + 1 if self._down else 0

    def is_beyond(self, deviation: float) -> bool:
        """Whether this is more than allowed, in the direction in which more of it was."""
        return (deviation if self._up > self._down else -deviation) > self._allowance

    @property
    def blocks(self) -> int:
        """Since the change seems to have begun, as calls of `add`; at least 1."""
        return max(1, self._since_up if self._up > self._down else self._since_down)

    @property
    def knows(self) -> bool:
        """Whether the usual scatter is known, so that something may be told from it."""
        return self._blocks >= TUNING.drift_fewest_blocks

    @property
    def level(self) -> float:
        """1 or more is an alarm."""
        if not self.knows:
            return 0.0
        variance = (self._square - self._largest) / (self._blocks - 1) * (1 + _MISSED / self._blocks)
        # About exp(2 · allowance · alarm / variance) iterations lie between two false alarms.
        return max(self._up, self._down) / max(TUNING.drift_alarm, TUNING.drift_noise_alarm * variance)


class StillPower:
    """Whether a device's power was read again and again without a change: a sensor that sticks shows nothing of what an
    iteration takes. Where that lasts for long, either its readings are gaps, or power really is so even."""

    def __init__(self) -> None:
        self._before: dict[int, Reading] = {}
        self._moved_s: dict[int, float] = {}
        self._read: Counter[int] = Counter()
        self._still: Counter[int] = Counter()

    def add(self, readings: Sequence[Reading]) -> None:
        for place, reading in enumerate(readings):
            before = self._before.get(place)
            if before is not None and reading.t_s <= before.t_s:
                continue
            same = before is not None and reading.power_w == before.power_w
            self._moved_s[place] = self._moved_s[place] if same else reading.t_s
            self._read[place] += 1
            self._still[place] += same
            self._before[place] = reading

    def begin(self) -> bool:
        """Count anew. Whether more than a third of some device's readings since were like those before, for no longer
        than a sensor sticks unnoticed."""
        stuck = any(
            TUNING.sensor_sticks_every * self._still[place] > read
            and self._before[place].t_s - self._moved_s[place] < TUNING.sensor_sticks_unnoticed_s
            for place, read in self._read.items()
        )
        self._read.clear()
        self._still.clear()
        return stuck


class DriftWatch:
    """Watches what happens at a cap that is held; says why the workload is no longer the one measured.

    reference: what the cap, or the baseline, cost per iteration. lasts_s: how long a change must last after an alarm:
    for most of that time, as what others do on the machine passes.
    """

    def __init__(self, reference: Measurement, lasts_s: float = 0.0) -> None:
        self._reference = reference
        self._lasts_s = lasts_s
        self._begin()
        self._curve = EnergyCurve()
        self._from: tuple[float, float, float] | None = None  # t_s, energy_j, iterations of a mark
        self._longest_s = 0.0  # between two readings of power since then
        self._read_s = math.inf  # the last one
        self._still_power = StillPower()
        self._counted: Mark | None = None  # the last one
        self._owed = 0.0  # iterations that a stall may have left to be counted in a hurry,
        self._stalled_at = 0.0  # soon after this one
        self._latest: deque[tuple[float, float, float]] = deque(maxlen=_REMEMBERED)  # seconds, joules, iterations

    def _begin(self) -> None:
        """Know of no change."""
        self._time = CumulativeSum(self._reference.period_rel_stderr)
        self._energy = CumulativeSum(self._reference.energy_rel_stderr)
        self._alarm: CumulativeSum | None = None
        self._changed_s = self._usual_s = 0.0  # since then, in which what had changed was so, and was not

    @property
    def knows(self) -> bool:
        """Whether it has seen enough to tell a change."""
        return self._time.knows

    def add(self, metered: Metered) -> str | None:
        """The reason for an alarm; `None` while there is none."""
        self._note_stall(metered)
        if metered.sample.uncounted:
            self._counted = None
        if metered.sample.uncounted or metered.disturbed is not None or metered.paused or metered.pause_ended:
            self._from, self._curve = None, EnergyCurve()
            return None
        self._curve.add(metered)
        self._still_power.add(metered.sample.readings)
        self._longest_s = max(self._longest_s, metered.t_s - self._read_s)
        self._read_s = metered.t_s
        if not metered.marks:
            return None
        # By the mark's own time: the sample that brings it may come much later.
        mark = metered.marks[-1]
        now = (mark.t_s, self._curve.at(mark.t_s)[0], mark.iterations)
        if self._from is None:
            self._from, self._longest_s = now if mark.t_s >= (self._curve.start_s or 0.0) else None, 0.0
            self._still_power.begin()
            return None
        if any(before.iterations == after.iterations for before, after in pairwise(metered.marks)):  # a pause
            self._from, self._longest_s = now, 0.0
            self._still_power.begin()
            return None
        seconds, joules, iterations = (after - before for after, before in zip(now, self._from, strict=True))
        if seconds < TUNING.drift_block_s or iterations <= 0 or joules <= 0:
            return None
        if metered.gained.held and seconds < TUNING.drift_block_readings * self._longest_s:
            return None
        if (
            iterations < TUNING.drift_block_iterations
            and self._longest_s > TUNING.drift_readings_apart * self._reference.period_s
        ):
            return None  # how power runs within an iteration lies between two samples
        self._from, self._longest_s = now, 0.0
        self._curve.forget_before(mark.t_s)
        if self._still_power.begin() and metered.gained.held:
            joules = iterations * self._reference.energy_per_iteration_j  # as far as a sensor that sticks can tell
        ahead = iterations - seconds / self._reference.period_s
        if 0 < ahead <= self._owed and mark.iterations - self._stalled_at <= 2 * TUNING.drift_queued_iterations:
            self._owed -= ahead
            return None
        return self._block(seconds, joules, iterations)

    def _note_stall(self, metered: Metered) -> None:
        """A host that was held up counts all at once what the device has done meanwhile, or has waiting to be done: no
        more iterations than the stall has kept from being counted."""
        if not metered.marks:
            return
        mark, before = metered.marks[-1], self._counted
        self._counted = mark
        if metered.pause_ended and before is not None:
            missed = (mark.t_s - before.t_s) / self._reference.period_s - (mark.iterations - before.iterations)
            self._owed, self._stalled_at = min(max(0.0, missed), TUNING.drift_queued_iterations), mark.iterations

    def _block(self, seconds: float, joules: float, iterations: float) -> str | None:
        time = seconds / iterations / self._reference.period_s
        energy = joules / iterations / self._reference.energy_per_iteration_j
        deviations = {self._time: math.log(time), self._energy: math.log(energy)}
        for quantity, deviation in deviations.items():
            quantity.add(deviation, iterations)
        self._latest.append((seconds, joules, iterations))
        changed = self._alarm
        if changed is None:
            changed = max(deviations, key=lambda quantity: quantity.level)
            if changed.level < 1:
                return None
            self._alarm = changed
        elif changed.is_beyond(deviations[changed]):
            self._changed_s += seconds
        else:
            self._usual_s += seconds
        if self._changed_s + self._usual_s < self._lasts_s:
            return None
        if self._changed_s < self._usual_s:
            self._begin()
            return None
        sums = [sum(part) for part in zip(*list(self._latest)[-changed.blocks :], strict=True)]
        time = sums[0] / sums[2] / self._reference.period_s
        energy = sums[1] / sums[2] / self._reference.energy_per_iteration_j
        return (
            f"the workload has changed: {100 * (time - 1):+.0f} % time and {100 * (energy - 1):+.0f} % energy per "
            f"iteration over the last {sums[2]:.0f} iterations"
        )


def differences(before: Measurement, now: Measurement) -> str | None:
    """What two measurements of the same caps differ in, as `+12 % time and -7 % energy`; `None` where they agree."""
    told = [
        f"{100 * (ratio.value - 1):+.0f} % {what}"
        for what, ratio in ratios(now, before).items()
        if abs(ratio.value - 1) > max(TUNING.changed_least, TUNING.changed_sigmas * ratio.stderr / ratio.value)
    ]
    return " and ".join(told) or None


def sped_up(before: Measurement, now: Measurement) -> float:
    """How many times as fast as before the same caps are now: 1 where they are slower, or agree."""
    return max(1.0, before.period_s / now.period_s) if differences(before, now) is not None else 1.0


def impossible(found: Measurement, other: Measurement, knob: Knob = POWER_LIMIT) -> str | None:
    """Why a time per iteration cannot be beside that of another cap; `None` where it can. No card gets faster as its
    cap falls, nor slower as it rises, nor slower by far more than its cap falls. Of another knob only its order counts,
    where it has one."""
    time = ratios(found, other)["time"]
    margin = max(TUNING.changed_least, TUNING.changed_sigmas * time.stderr / time.value)
    fall = max(other.setting) / max(found.setting)
    least, most = sorted((1.0, fall**TUNING.impossible_exponent))
    if not knob.is_power_limit:
        least, most = (1.0, math.inf) if fall > 1 else (0.0, 1.0)
    if knob.ordered and fall != 1 and not least * (1 - margin) <= time.value <= most * (1 + margin):
        return f"{beside(found, other, knob)}, which no card does"
    return None


def beside(found: Measurement, other: Measurement, knob: Knob = POWER_LIMIT) -> str:
    """How many times as long an iteration takes as at another cap."""
    ratio, here, there = found.period_s / other.period_s, max(found.setting), max(other.setting)
    return f"an iteration at {knob.text(here)} takes {ratio:.2f} times as long as at {knob.text(there)}"


def changed_since(before: Measurement, now: Measurement, where: str) -> str | None:
    """Why two measurements of the same caps are of different workloads; `None` where they agree. where: at which caps,
    in words."""
    changed = differences(before, now)
    return None if changed is None else f"{where} the job has changed during the search: {changed} per iteration"
