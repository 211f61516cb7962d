"""When the baseline is measured again during a search, so that a slow drift of the machine cancels."""

from autocap.controller.tuning import TUNING


class Revisits:
    """stretch: how many times as long as usual trials are. now_s: when the baseline was measured.
    patience: so many times as long as usual the first look may wait."""

    def __init__(self, stretch: float, now_s: float, patience: float = 1.0) -> None:
        self._every_s, self._measured_s = stretch * TUNING.revisit_every_s, now_s
        self._trials = 0  # since
        self._patience = patience  # grows while the baseline stays where it is
        self._looks = 0

    def due(self, now_s: float) -> bool:
        aged_s = now_s - self._measured_s
        return max(self._trials / TUNING.revisit_every_trials, aged_s / self._every_s) >= self._patience

    def tried(self, *, may_wander: bool = False) -> None:
        """A trial has ended. may_wander: the machine may, so that the baseline is looked at before the next one."""
        self._trials += 1
        if may_wander and self._looks < TUNING.revisit_fewest:
            self._patience = 1 / TUNING.revisit_every_trials

    def made(self, now_s: float, moved: float | None) -> None:
        """The baseline was looked at. moved: by how much of itself it is another one; `None` where it was not seen."""
        self._trials, self._measured_s = 0, now_s
        if moved is not None:
            self._looks += 1
            usual = 1.0 if moved < TUNING.revisit_wanders else 1 / TUNING.revisit_every_trials
            self._patience = 2 * self._patience if moved < TUNING.revisit_still else usual
