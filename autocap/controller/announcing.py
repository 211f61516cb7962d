"""What a search tells of itself, and what it comes to."""

from autocap import events
from autocap.controller.comparison import Caps, Judgement
from autocap.controller.context import KeepByCurve, Revert, RevertForNow, StepContext
from autocap.controller.known_curve import KnownCurve
from autocap.controller.search import Search
from autocap.records import Measurement


class Announcer:
    """Announces in the context what comes of a search."""

    def __init__(self, search: Search, context: StepContext) -> None:
        self._search, self._context = search, context

    def trial(self, setting: float) -> None:
        """A trial begins at a cap, watts."""
        expected = self._search.expected_trials
        self._context.announce(events.TrialStarted(t_s=self._context.now_s, setting=setting, expected=expected))

    def predictions(self) -> None:
        """What the strategy predicts, if it does."""
        predictions = self._search.predictions()
        if predictions:
            self._context.announce(events.Predicted(t_s=self._context.now_s, caps=predictions))

    def kept(self, settings: Caps, found: Judgement) -> None:
        """Caps, watts per device, were confirmed."""
        self._context.announce(
            events.Decided(
                t_s=self._context.now_s,
                setting=max(settings),
                confirmed=True,
                reason=found.reason,
                measurement=found.measurement,
                baseline=found.baseline,
                expected=self._search.expectation(),
            )
        )

    def by_curve(self, curve: KnownCurve, best_w: float) -> KeepByCurve:
        """A cap, watts, is the best that may be held by what was measured."""
        most_w, text = max(self._context.uncapped_w), self._context.knob.text
        self._context.announce(
            events.Decided(
                t_s=self._context.now_s,
                setting=best_w,
                confirmed=False,
                reason=f"the best up to {text(most_w)} by the curve; the baseline is that of {text(curve.baseline_w)}",
                expected=self._search.expectation(),
            )
        )
        return KeepByCurve(reference=curve.expected(best_w))

    def put_back(self, reason: str, reference: Measurement, *, unsure: bool) -> Revert:
        """No cap is kept. unsure: a later search may find something better."""
        expected = self._search.expectation()
        self._context.announce(
            events.Decided(t_s=self._context.now_s, setting=None, confirmed=False, reason=reason, expected=expected)
        )
        return RevertForNow(reference=reference) if unsure else Revert(reference=reference)
