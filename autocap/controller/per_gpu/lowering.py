"""A cap per GPU: which cards may go lower than the common cap, and how far.

In data-parallel training an iteration takes as long as the slowest card needs. At a common cap the more efficient cards
are done before it and wait, and a card that waits draws less than one that computes. So how much less a card draws than
caps make cards draw says how long it waits. With P ∝ c^q and t ∝ c^−ε near the common cap (both fitted to the search's
own trials), d the draw of card i at its cap, and u = d/c^q,

    busy share of card i    b with u / max u = b + w (1 − b)
    its own time            t = b T
    the cap at which it would take the time T₀ that the common cap needs    c (t/T₀)^(1/ε)

where w is what a waiting card draws of what it draws computing. It is not known; taken to be low, it makes b too large,
so that steps stop short of where the card would be the slowest; once they get nowhere, it is taken to be high. Draws
only say where to look. What is kept is decided by the job's own time and energy, measured in turn with the common cap.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import le

import numpy as np
from numpy.typing import NDArray

from autocap.controller.tuning import TUNING
from autocap.records import Cost, Measurement
from autocap.strategies.grid import CapGrid

Caps = tuple[float, ...]
Floats = NDArray[np.float64]

_LEAST_STEP_W = 1e-3
_GRACE = 1e-6  # relative, so that a target on the grid is not rounded up


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """How draw and time per iteration follow the cap: P ∝ c^draw, t ∝ c^−time."""

    draw: float
    time: float


def response(common_w: float, measured: Sequence[Measurement]) -> Response:
    """The response near a common cap, from windows at common caps; the usual one where they tell none.

    Straight lines in logarithms by weighted least squares. A window at a distance d in ln c counts for less the farther
    it is, as what it shows may be off the line by a curvature times d², besides its own error.
    """
    if len({window.setting for window in measured}) < 2:
        return Response(draw=TUNING.per_gpu_usual_draw, time=TUNING.per_gpu_usual_time)
    distances = np.log([window.setting[0] / common_w for window in measured])
    draws = [(window.of_gpus().power_w, window.of_gpus().power_rel_stderr) for window in measured]
    draw = _slope(distances, draws, curvature=TUNING.per_gpu_draw_curvature)
    times = [(window.period_s, window.period_rel_stderr) for window in measured]
    time = _slope(distances, times, curvature=TUNING.per_gpu_time_curvature)
    return Response(
        draw=float(np.clip(draw, TUNING.per_gpu_least_draw, TUNING.per_gpu_most_draw)),
        time=float(np.clip(-time, TUNING.per_gpu_least_time, TUNING.per_gpu_most_time)),
    )


def _slope(distances: Floats, measured: Sequence[tuple[float, float]], *, curvature: float) -> float:
    """measured: values with their relative errors."""
    values, errors = np.array(measured).T
    sigmas = np.hypot(np.maximum(errors, TUNING.per_gpu_least_error), curvature * distances**2)
    return float(np.polyfit(distances, np.log(values), 1, w=1 / sigmas)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What caps showed, measured in turn with the common cap.

    settings, draws_w: per device, watts. time: per iteration, over that at the common cap. accepted: whether time did
    not grow beyond noise.
    """

    settings: Caps
    draws_w: Caps
    time: Cost
    accepted: bool


class Lowering:
    """The plan: `ask` for caps to try, `learn` what they showed; `best` is what was accepted last, at first the common
    cap, and again what was accepted before where it is refused later.

    Every cap is on the grid and at most the common one. Where caps were refused, what follows lies between them and the
    best: first with the slowest cards raised, then with only half of the cards lowered, and with the other half.
    """

    def __init__(self, common_w: float, devices: int, grid: CapGrid, near: Response) -> None:
        self.common_w: Caps = (common_w,) * devices
        self._accepted = [self.common_w]
        self._allowed_w = [setting for setting in grid if setting <= common_w]
        self._near = near
        self._refused: set[Caps] = set()
        self._next: list[Caps] = []
        self._trials = 0

    @property
    def best(self) -> Caps:
        """The caps accepted last."""
        return self._accepted[-1]

    @property
    def lowered(self) -> bool:
        """Whether anything below the common cap was accepted."""
        return self.best != self.common_w

    def ask(self) -> Caps | None:
        """The caps to try next, `None` when no card is left that seems to wait, or enough was tried."""
        while self._next and self._trials < TUNING.per_gpu_most_trials:
            settings = self._next.pop(0)
            if settings != self.best and not self._hopeless(settings):
                return settings
        return None

    def learn(self, shown: Shown) -> None:
        """Take in what caps showed; those of the common cap come first."""
        self._trials += shown.settings != self.common_w
        if shown.accepted:
            self._accepted += [shown.settings] if shown.settings != self.best else []
            for waiting in (TUNING.per_gpu_waiting_low, TUNING.per_gpu_waiting_high):
                lower_w = self._lower(shown, waiting)
                if lower_w != self.best:
                    break
            self._next = self._halves(shown, lower_w) if self._hopeless(lower_w) else [lower_w]
            return
        if self.lowered and shown.settings == self.best:  # refused when it was looked at again
            self._accepted.pop()
            self._next = []
        self._refused.add(shown.settings)
        self._next = self._next or self._back(shown)

    def _lower(self, shown: Shown, waiting: float) -> Caps:
        """Each card where it would just not be the slowest."""
        wanted_w = self._wanted(shown, max(self._loads(shown)), waiting)
        return tuple(map(min, wanted_w, shown.settings))

    def _back(self, shown: Shown) -> list[Caps]:
        """Something between what was refused and the best. One of the lowered cards must have become the slowest."""
        loads = self._loads(shown)
        slowest = max(self._lowered(shown.settings), key=lambda device: loads[device])
        between_w = map(max, self._wanted(shown, loads[slowest], TUNING.per_gpu_waiting_low), shown.settings)
        raised_w = list(map(min, between_w, self.best))
        if raised_w[slowest] == shown.settings[slowest]:
            raised_w[slowest] = self._on_grid(shown.settings[slowest] + _LEAST_STEP_W)
        return [tuple(raised_w), *self._halves(shown, shown.settings)]

    def _halves(self, shown: Shown, settings: Caps) -> list[Caps]:
        """Caps for only half of the cards that they lower, those that seem to wait longest, and for the other half."""
        loads = self._loads(shown)
        lowered = sorted(self._lowered(settings), key=lambda device: loads[device])
        middle = len(lowered) // 2
        return [
            tuple(settings[device] if device in half else setting for device, setting in enumerate(self.best))
            for half in (lowered[:middle], lowered[middle:])
        ]

    def _lowered(self, settings: Caps) -> list[int]:
        """The devices that caps lower from the best."""
        return [device for device, setting in enumerate(settings) if setting < self.best[device]]

    def _hopeless(self, settings: Caps) -> bool:
        """Whether no cap is higher than in a set that was refused: this one would be as well."""
        return any(all(map(le, settings, refused_w)) for refused_w in self._refused)

    def _wanted(self, shown: Shown, top: float, waiting: float) -> Caps:
        """The cap at which each card would take the time that the common cap needs. top: the load of the slowest.
        waiting: w."""
        beyond_noise = abs(shown.time.value - 1) > TUNING.per_gpu_sigmas * shown.time.stderr or not shown.accepted
        grown = shown.time.value if beyond_noise else 1.0
        wanted_w, farthest = [], TUNING.per_gpu_farthest_step
        for setting, load in zip(shown.settings, self._loads(shown), strict=True):
            busy = max(TUNING.per_gpu_least_busy, 1 - (1 - min(1.0, load / top)) / (1 - waiting))
            step = min(max(math.log(busy * grown) / self._near.time, -farthest), farthest)
            wanted_w.append(self._on_grid(setting * math.exp(step)))
        return tuple(wanted_w)

    def _loads(self, shown: Shown) -> list[float]:
        """How much each card draws of what cards draw at its cap, up to a common factor."""
        return [
            draw_w / setting**self._near.draw for draw_w, setting in zip(shown.draws_w, shown.settings, strict=True)
        ]

    def _on_grid(self, setting: float) -> float:
        """The lowest cap of the grid that is not below, or the common one."""
        return next((one_w for one_w in self._allowed_w if one_w >= setting * (1 - _GRACE)), self._allowed_w[-1])
