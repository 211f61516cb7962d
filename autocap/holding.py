"""While a cap is held: is it time to tune anew?"""

from collections.abc import Sequence

from autocap.drift import DriftWatch
from autocap.progress import Mark
from autocap.records import Measurement, Sample

Retune = float | str  # seconds, "auto" or "never"


class Hold:
    """From a decision until the next. reference: what is held, as measured; `None` where there is nothing to compare.

    settle_s: after since_s, until readings describe what is held. rest_s: no change is acted on for so long, so that a
    job that keeps changing is not searched all the time.
    """

    def __init__(
        self, retune: Retune, reference: Measurement | None, since_s: float, settle_s: float, rest_s: float
    ) -> None:
        self._due_s = since_s + retune if isinstance(retune, float) else None
        self._settled_s, self._rested_s = since_s + settle_s, since_s + rest_s
        self._drift = DriftWatch(reference) if retune == "auto" and reference is not None else None
        self._asked = False

    def ask(self) -> None:
        """Somebody asks to tune anew."""
        self._asked = True

    def feed(self, sample: Sample, marks: Sequence[Mark], *, paused: bool) -> str | None:
        """Why to tune anew now; `None` while there is no reason. paused: the job does not train, or did not."""
        if self._drift is not None and sample.t_s >= self._settled_s:
            changed = self._drift.feed(sample, marks, paused=paused)
            if changed is not None and sample.t_s >= self._rested_s:
                return changed
        if self._asked:
            return "it was asked for"
        if self._due_s is not None and sample.t_s >= self._due_s:
            return "the time that --retune gives has passed"
        return None
