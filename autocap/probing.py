"""The probe that is under way, and how to begin it anew after an interruption."""

from collections.abc import Callable, Sequence

from autocap.config import TuneConfig
from autocap.probe import Probe, ProbeResult, ProbeRules
from autocap.progress import Mark
from autocap.records import Cost, Measurement, Sample, SensorInfo
from autocap.window import Window


class Prober:
    """Measures one cap at a time by the rules of the run; at rest where nothing is to be measured."""

    def __init__(self, config: TuneConfig, sensor: SensorInfo) -> None:
        self._config, self._sensor = config, sensor
        self._build: Callable[[], Probe] | None = None
        self._probe: Probe | None = None

    @property
    def settle_s(self) -> float:
        """Seconds that are discarded after a cap was set."""
        return self._sensor.settle_s

    @property
    def resting(self) -> bool:
        """Whether nothing is measured."""
        return self._probe is None

    def start(
        self,
        caps_w: tuple[float, ...],
        cost: Callable[[Measurement], Cost],
        *,
        error: float = 1.0,
        hopeless: Callable[[Measurement, Cost], str | None] = lambda measurement, cost: None,
        window: Window | None = None,
    ) -> None:
        """Measure at these caps, watts. error: the error aimed at, of the target error; the rest as Probe has it."""
        rules = ProbeRules(
            settle_s=self._sensor.settle_s,
            target_stderr=self._config.target_stderr * error,
            limit_s=self._config.trial_s,
            min_batches=self._config.min_batches,
        )
        self._build = lambda: Probe(caps_w, rules, cost, hopeless)
        self._probe = Probe(caps_w, rules, cost, hopeless, window)

    def feed(self, sample: Sample, marks: Sequence[Mark], *, paused: bool) -> ProbeResult | None:
        """The result, once; `None` before, and while nothing is measured."""
        result = None if self._probe is None else self._probe.feed(sample, marks, paused=paused)
        if result is not None:
            self.rest()
        return result

    def cut(self, why: str) -> ProbeResult | None:
        """End the present measurement with what it has shown so far."""
        result = None if self._probe is None else self._probe.cut(why)
        self.rest()
        return result

    def again(self) -> None:
        """Begin the present measurement anew."""
        if self._build is not None:
            self._probe = self._build()

    def rest(self) -> None:
        """Measure nothing."""
        self._build = self._probe = None
