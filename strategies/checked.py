"""A strategy at arm's length: whoever wrote it, all of `Strategy`'s interface, and nothing that the job would feel."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from autocap.errors import AutocapError, StrategyError
from autocap.records import Prediction, Trial, TrialLength, TrialState
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid


@contextmanager
def _arms_length() -> Iterator[None]:
    try:
        yield
    except AutocapError as error:
        raise StrategyError(f"the strategy failed: {error}") from error
    except Exception as error:  # a plug-in may raise anything
        raise StrategyError(f"the strategy failed: {type(error).__name__}: {error}") from error


class CheckedStrategy:
    """What a strategy lacks is as `Strategy` has it by default; where it raises anything, or answers what it may not,
    there is a StrategyError. build: makes it. grid: the caps that it may ask for."""

    @_arms_length()
    def __init__(self, build: Callable[[], StrategyLike], grid: CapGrid) -> None:
        self._strategy, self._grid, self._measured_w = build(), grid, set[float]()
        self.trial_length: TrialLength | None = getattr(self._strategy, "trial_length", None)

    @_arms_length()
    def ask(self) -> float | None:
        setting = self._strategy.ask()
        if setting is not None and setting not in self._grid:
            raise StrategyError(f"it asked for {self._said(setting)}, which is not on its grid")
        return None if setting is None else float(setting)

    @_arms_length()
    def tell(self, trial: Trial) -> None:
        if trial.state is TrialState.COMPLETE:
            self._measured_w.add(trial.setting)
        self._strategy.tell(trial)

    @_arms_length()
    def recommend(self) -> float | None:
        setting = self._strategy.recommend()
        if setting is not None and setting not in self._measured_w:
            raise StrategyError(f"it recommended {self._said(setting)}, which was never measured to the end")
        return None if setting is None else float(setting)

    @_arms_length()
    def explain(self) -> str | None:
        explain: Callable[[], object] = getattr(self._strategy, "explain", lambda: None)
        text = explain()
        return None if text is None else str(text)

    @_arms_length()
    def predict(self) -> tuple[Prediction, ...]:
        return self._checked(getattr(self._strategy, "predict", tuple))

    @_arms_length()
    def expect(self) -> tuple[Prediction, ...]:
        return self._checked(getattr(self._strategy, "expect", getattr(self._strategy, "predict", tuple)))

    def _checked(self, predict: Callable[[], Iterable[Prediction]]) -> tuple[Prediction, ...]:
        found = tuple(predict())
        for one in found:
            if not isinstance(one, Prediction) or one.setting not in self._grid:
                raise StrategyError(f"it predicted {one!r}, which is no Prediction of a cap on its grid")
        return found

    def _said(self, setting: object) -> str:
        """What it took for a setting."""
        if self._grid.knob.is_power_limit:
            return f"{setting!r} W"
        return self._grid.text(setting) if isinstance(setting, float) else repr(setting)

    @_arms_length()
    def expected_loss(self) -> tuple[float, float] | None:
        expected: Callable[[], tuple[float, float] | None] = getattr(self._strategy, "expected_loss", lambda: None)
        return expected()

    @property
    @_arms_length()
    def expected_trials(self) -> int | None:
        expected = getattr(self._strategy, "expected_trials", None)
        return None if expected is None else int(expected)
