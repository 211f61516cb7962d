"""While a cap is held: is it time to measure again, or to tune anew?"""

from collections.abc import Sequence
from dataclasses import dataclass

from autocap.measurement.drift import DriftWatch
from autocap.progress import Mark
from autocap.records import Measurement, Sample

Retune = float | str  # seconds, "auto" or "never"

_CHECK_S, _CHECK_WINDOWS = 900.0, 150.0  # first check after as long, or as many times the baseline's window


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRules:
    """When holding ends.

    retune: as the user has it. settle_s: from the decision on, until readings describe what is held. rest_s: no change
    is acted on for so long, so that a job that keeps changing is not searched all the time. retry_s: tune anew after
    so long in any case, `None` for never. check_s: measure the baseline again after so long, `None` for never.
    """

    retune: Retune = "never"
    settle_s: float
    rest_s: float
    retry_s: float | None
    check_s: float | None


def first_check_s(baseline: Measurement) -> float:
    """When to look at the baseline again for the first time: late enough that it costs a few thousandths at most."""
    return max(_CHECK_S, _CHECK_WINDOWS * baseline.duration_s)


class Hold:
    """From a decision until the next.

    reference: what is held, as measured; `None` where there is nothing to compare.
    """

    def __init__(self, rules: HoldRules, reference: Measurement | None, since_s: float) -> None:
        dues = [rules.retune if isinstance(rules.retune, float) else None, rules.retry_s]
        self._due_s = min((since_s + due for due in dues if due is not None), default=None)
        self._check_s = None if rules.check_s is None else since_s + rules.check_s
        self._settled_s, self._rested_s = since_s + rules.settle_s, since_s + rules.rest_s
        self._drift = DriftWatch(reference) if rules.retune == "auto" and reference is not None else None
        self._asked = False

    def ask(self) -> None:
        """Somebody asks to tune anew."""
        self._asked = True

    def check_due(self, t_s: float, *, paused: bool) -> bool:
        """Whether to measure the baseline again now."""
        return self._check_s is not None and t_s >= self._check_s and not paused

    def feed(self, sample: Sample, marks: Sequence[Mark], *, paused: bool) -> str | None:
        """Why to tune anew now; `None` while there is no reason. paused: the job does not train, or did not."""
        if self._drift is not None and sample.t_s >= self._settled_s:
            changed = self._drift.feed(sample, marks, paused=paused)
            if changed is not None and sample.t_s >= self._rested_s:
                return changed
        if self._asked:
            return "it was asked for"
        if self._due_s is not None and sample.t_s >= self._due_s:
            return "it is time for another try"
        return None
