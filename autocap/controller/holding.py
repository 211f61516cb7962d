"""While a cap is held: is it time to measure again, or to tune anew?"""

from autocap.controller.actions import Keep, Kept, RevertForNow
from autocap.controller.tuning import TUNING
from autocap.measurement.drift import DriftWatch
from autocap.measurement.metering import Metered
from autocap.records import Measurement

Retune = float | str  # seconds, "auto" or "never"


class Hold:
    """From a decision until the next.

    reference: what is held, as measured. retune: as the user has it. settle_s: from the decision on, until readings
    describe what is held. rest_s: no change is acted on for so long, so that a job that keeps changing is not searched
    all the time. retry_s: tune anew after so long in any case, `None` for never. check_s: measure the baseline again
    after so long, `None` for never.
    """

    def __init__(
        self,
        reference: Measurement,
        since_s: float,
        *,
        retune: Retune = "never",
        settle_s: float,
        rest_s: float = 0.0,
        retry_s: float | None = None,
        check_s: float | None = None,
    ) -> None:
        dues = [retune if isinstance(retune, float) else None, retry_s]
        self._due_s = min((since_s + due for due in dues if due is not None), default=None)
        self._check_s = None if check_s is None else since_s + check_s
        self._settle_s, self._settled_s, self._rested_s = settle_s, since_s + settle_s, since_s + rest_s
        self._drift = DriftWatch(reference) if retune == "auto" else None
        self._asked = False

    def ask(self) -> None:
        """Somebody asks to tune anew."""
        self._asked = True

    def moved(self, reference: Measurement, now_s: float) -> None:
        """Other caps are held from now on. reference: what they show, or should."""
        self._settled_s = now_s + self._settle_s
        if self._drift is not None:
            self._drift = DriftWatch(reference)

    @property
    def is_calm(self) -> bool:
        """Whether a look now and then will do: a change can be told, or is not looked for."""
        return self._drift is None or self._drift.knows

    def check_due(self, metered: Metered) -> bool:
        """Whether to measure the baseline again now."""
        return self._check_s is not None and metered.t_s >= self._check_s and not metered.paused

    def why_anew(self, metered: Metered, changed: str | None = None) -> str | None:
        """Take in a sample; why to tune anew now, `None` while there is no reason. changed: why what counts the
        iterations says that the job is another one."""
        if self._drift is not None and metered.t_s >= self._settled_s:
            changed = self._drift.add(metered) or changed
            if changed is not None and metered.t_s >= self._rested_s:
                return changed
        if self._asked:
            return "it was asked for"
        if self._due_s is not None and metered.t_s >= self._due_s:
            return "it is time for another try"
        return None


class HoldPlan:
    """How long decisions are held, by the searches so far. retune: as the user has it. settle_s: of the sensor.
    decisions: so far, those of checks apart."""

    def __init__(self, retune: Retune, settle_s: float) -> None:
        self._retune, self._settle_s = retune, settle_s
        self.searches = self.decisions = 0
        self._searched_from_s = self._check_s = 0.0
        self._retry_s = TUNING.hold_retry_s

    def begin_search(self, baseline: Measurement, now_s: float, stretch: float = 1.0) -> None:
        """The baseline is looked at again so late for the first time that it costs a few thousandths at most. stretch:
        how many times as long as usual its trials are."""
        self.searches += 1
        self._searched_from_s, self._retry_s = now_s, stretch * TUNING.hold_retry_s
        window_s = max(baseline.duration_s, TUNING.hold_window_iterations * baseline.period_s)  # a rough one is shorter
        self._check_s = max(TUNING.hold_check_s, TUNING.hold_check_windows * window_s)

    def begin_check(self) -> None:
        """The next one follows after twice the time."""
        self._check_s *= 2

    def hold(self, decision: Kept, now_s: float, *, checked: bool) -> Hold:
        """What begins with a decision. checked: its caps held before, and were only checked."""
        anew = self._retune != "never"
        self.decisions += not checked
        return Hold(
            decision.reference,
            now_s,
            retune=self._retune,
            settle_s=self._settle_s,
            # The first change of what was decided is acted on at once; a job that keeps changing gets longer and longer
            # rests. A search that the job left behind, as while it warms up, decided nothing.
            rest_s=0.0 if checked else (self.decisions - 1) * (now_s - self._searched_from_s),
            retry_s=self._retry_s * 2**self.searches if anew and isinstance(decision, RevertForNow) else None,
            check_s=self._check_after_s(decision, anew=anew),
        )

    def _check_after_s(self, decision: Kept, *, anew: bool) -> float | None:
        """When what is held is first to be looked at again; `None` for never."""
        if not isinstance(decision, Keep):
            return None
        return decision.again_s or (self._check_s if anew else None)
