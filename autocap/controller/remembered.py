"""What an earlier run of the same job says of its best cap: that one is held from the first second, and believed once
the job shows there what it showed then."""

from collections.abc import Sequence
from dataclasses import dataclass

from autocap.measurement.batches import as_at
from autocap.measurement.drift import differences
from autocap.records import Measurement, Trial, TrialState, same_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """cap_w: the common cap, watts. at_cap: what it showed then; baseline: what the limits found on arrival did."""

    setting: float
    at_cap: Measurement
    baseline: Measurement

    @classmethod
    def of(cls, setting: float | None, history: Sequence[Trial], original_w: tuple[float, ...]) -> "Remembered | None":
        """What the trials of earlier runs, oldest first, say of a cap, watts; `None` where they miss that cap, or the
        limits that were found on arrival now."""
        known: dict[float, Measurement] = {}
        for trial in history:
            if (
                trial.state is TrialState.COMPLETE
                and trial.measurement is not None
                and not trial.measurement.is_relative
            ):
                known[trial.setting] = trial.measurement
        arrival = [one for one in known.values() if same_limits(one.setting, original_w)]
        if setting is None or setting not in known or not arrival or len(known[setting].setting) != len(original_w):
            return None
        return cls(setting=setting, at_cap=known[setting], baseline=arrival[-1])

    def doubt(self, seen: Measurement) -> str | None:
        """What is another now at the cap, as `+12 % time`; `None` where the job does what it did."""
        return differences(self.at_cap, seen)

    def baseline_beside(self, seen: Measurement) -> Measurement:
        """What the limits found on arrival should show now, given what the cap does."""
        return as_at(self.baseline, self.at_cap, seen)
