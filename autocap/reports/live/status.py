"""Where a run stands, folded from its events (and samples, where they are at hand): what the live views and the
exporter show. Arithmetic on measurements is left to `summarise`.
"""

import math

from autocap import events
from autocap.errors import RunDirectoryError
from autocap.events import (
    Decided,
    DeviceFound,
    Event,
    LastTotals,
    ProgressFound,
    RunStarted,
    State,
    Tally,
    TrialEnded,
    TrialStarted,
)
from autocap.events.settled import settled
from autocap.knobs import POWER_LIMIT, Knob
from autocap.measurement.energy import EnergyMeter, gpus_power_w, node_power_w
from autocap.records import Sample, TrialState
from autocap.reports.document import Table
from autocap.reports.summary.gains import TIME, costs_by_cap
from autocap.reports.summary.record import MEASURED, BestCap, Summary
from autocap.reports.summary.summarise import measured_trials, metric_in, summarise
from autocap.reports.wording.headline import headline
from autocap.reports.wording.run import trials


class Status:
    """One run as it goes on.

    state: `None` before the first. started, device, progress, trial, decided: what was announced last; trial: the one
    under way, decided: the end of the search that goes on.
    settings: what each device is set to. power_w: draw of each, watts; without samples `None`.
    energies_j: what each has used since the first sample, joules. total_w: draw of all devices, watts: the present one,
    or the mean between the last two tallies. node_w: draw of the whole machine, where that counts. period_s: seconds
    per iteration between the last two tallies that counted any. tally: the last. version: grows with every event.
    """

    def __init__(self) -> None:
        self.started: RunStarted | None = None
        self.device: DeviceFound | None = None
        self.state: State | None = None
        self.trial: TrialStarted | None = None
        self.decided: Decided | None = None
        self.progress: ProgressFound | None = None
        self.settings: tuple[float | None, ...] = ()
        self.power_w: tuple[float | None, ...] = ()
        self.energies_j: tuple[float, ...] = ()
        self.total_w: float | None = None
        self.node_w: float | None = None
        self.period_s: float | None = None
        self.tally: Tally | None = None
        self.version = 0
        self._meters: tuple[EnergyMeter, ...] = ()
        self._events: list[Event] = []
        self._last_totals = LastTotals()
        self._summary: tuple[int, Summary | None] = (-1, None)
        self._paused_in: State | None = None
        self._search_began = 0  # of the events, the first of the search that goes on
        self._tried = 0  # in the search that goes on
        self._expected: int | None = None  # trials, in all of it

    @property
    def knob(self) -> Knob:
        """What is turned, as far as is known."""
        return POWER_LIMIT if self.device is None else self.device.knob

    @property
    def emulated(self) -> bool:
        """Whether power is modelled, and is to be labelled so."""
        return self.device is not None and self.device.emulated

    @property
    def summary(self) -> Summary | None:
        """The summary so far; `None` before the first event, and of a run whose metric this version does not know."""
        if self._summary[0] != self.version:
            try:
                self._summary = (self.version, summarise(self._events))
            except RunDirectoryError:
                self._summary = (self.version, None)
        return self._summary[1]

    @property
    def headline(self) -> str:
        """What the run has come to by now, in one sentence; nothing before the first event."""
        return "" if self.summary is None else headline(self.summary)

    def rows(self, most: int) -> Table | None:
        """The table of the report, with so many of its latest rows; `None` before there is a baseline."""
        summary = self.summary
        return None if summary is None or summary.baseline is None else trials(summary, self._events, most)

    @property
    def time_ratio(self) -> float | None:
        """Time per iteration by now over the first baseline's; `None` where one of both is not known."""
        base = None if self.summary is None else self.summary.baseline
        return None if base is None or self.period_s is None else self.period_s / base.period_s

    @property
    def by_proxy(self) -> bool:
        """Whether a proxy stands for the iterations, so that their time is known only against the baseline's."""
        return self.progress is not None and self.progress.confidence == "low"

    @property
    def best(self) -> BestCap | None:
        """The best of the caps that were tried to the end in this search, by all of its trials together; `None` where
        there is none, or none that is surely within the limit on slowdown."""
        if self.summary is None or self.summary.baseline is None:
            return None
        metric, of_search = metric_in(self.summary), self._events[self._search_began :]
        ended = [event.trial for event in settled(of_search) if isinstance(event, TrialEnded)]
        tried = {one.measurement.setting for one in ended if one.measurement and one.state is TrialState.COMPLETE}
        costs = costs_by_cap(measured_trials(of_search), self.summary.baseline, {metric.name: metric})
        limit = math.inf if metric.max_slowdown is None else 1 + metric.max_slowdown
        found = [
            BestCap(metric=metric.name, setting=one.setting, cost=cost.value, cost_stderr=cost.stderr, source=MEASURED)
            for one in costs
            if one.setting in tried and one.setting != self.summary.baseline.setting
            if one.costs[TIME].value + 2 * one.costs[TIME].stderr <= limit
            for cost in (one.costs[metric.name],)
        ]
        return min(found, key=lambda one: one.cost, default=None)

    @property
    def searched(self) -> float | None:
        """How far the search has come, 0 to 1, its confirmation included; `None` where it is not known."""
        if self.decided is not None:
            return 1.0
        if self.state is State.CONFIRMING:
            return 1 - 1 / (self._tried + 2)
        if self._expected is None:
            return None if self._tried or self.trial else 0.0
        return self._tried / (max(self._expected, self._tried + 1) + 1)

    @property
    def saved_share(self) -> float | None:
        """Energy saved so far, net of the search, as a share of what as many iterations at the baseline use."""
        versus = self.summary.versus_baseline if self.summary else None
        if versus is None or versus.net_energy_j is None or self.tally is None:
            return None
        return -versus.net_energy_j / (self.tally.counted_j - self.tally.paused_j - versus.net_energy_j)

    def event(self, event: Event) -> None:
        """Take in one event, in order."""
        self.version += 1
        self._keep(event)
        match event:
            case events.RunStarted():
                self.started = event
            case events.DeviceFound(original=original_w):
                self.device, self.settings = event, original_w
                self._meters = tuple(EnergyMeter() for _ in event.gpus)
                self.energies_j = (0.0,) * len(event.gpus)
            case events.StateEntered(state=state):
                self._enter(state)
            case events.CapSet(setting=settings):
                self.settings = settings
            case events.LimitRestored(uuid=uuid, final=final_w):
                self._put_back(uuid, final_w)
            case events.ProgressFound():
                self.progress = event
            case events.TrialStarted(expected=expected):
                self.trial, self._expected = event, expected
            case events.TrialEnded():
                self.trial, self._tried = None, self._tried + 1
            case events.Decided():
                self.decided = event
            case events.Tally():
                self._count(event)

    def sample(self, sample: Sample) -> None:
        """Take in one sample: the present draw, limits and energy."""
        readings = sample.readings
        self.power_w = tuple(reading.power_w for reading in readings)
        knob = self.knob
        values = (one.requested_w if knob.is_power_limit else one.knob_value for one in readings)
        self.settings = tuple(map(knob.setting_or_none, values))
        self.total_w, self.node_w = gpus_power_w(sample), node_power_w(sample)
        for meter, reading in zip(self._meters, readings, strict=False):
            meter.add(Sample(t_s=sample.t_s, readings=(reading,)))
        self.energies_j = tuple(meter.energy_j for meter in self._meters)

    def _keep(self, event: Event) -> None:
        """All but superseded tallies, which would be most of a long run's events."""
        if self._last_totals.replaces(event):
            self._events.pop()
        self._events.append(event)

    def _enter(self, state: State) -> None:
        if state is State.PAUSED:
            self._paused_in = self._paused_in or self.state
        elif state is State.BASELINE and self._paused_in is not State.BASELINE:  # of the first search, or of one anew
            self._tried, self.decided, self.trial = 0, None, None
            self._search_began = len(self._events)
        if state is not State.PAUSED:
            self._paused_in = None
        self.state = state

    def _put_back(self, uuid: str, final_w: float | None) -> None:
        if self.device is not None and len(self.settings) == len(self.device.gpus):
            uuids = [gpu.uuid for gpu in self.device.gpus]
            self.settings = tuple(
                final_w if one == uuid else setting for one, setting in zip(uuids, self.settings, strict=True)
            )

    def _count(self, tally: Tally) -> None:
        before = self.tally
        since_s, since_j = (before.elapsed_s, before.energy_j) if before else (0.0, 0.0)
        counted, counted_s = (before.iterations, before.counted_s) if before else (0.0, 0.0)
        if not self.power_w and tally.elapsed_s > since_s:
            self.total_w = (tally.energy_j - since_j) / (tally.elapsed_s - since_s)
        if tally.iterations > counted and tally.counted_s > counted_s:
            self.period_s = (tally.counted_s - counted_s) / (tally.iterations - counted)
        self.tally = tally
