"""Events in words."""

import math

from autocap import events
from autocap.config.option import taken_words
from autocap.config.values import shown
from autocap.events import Event, State
from autocap.events.quote import CARBON
from autocap.events.search import PerGpuDecided, PerGpuTried
from autocap.events.sweep import DISCARDED, FinishedRun
from autocap.knobs import POWER_LIMIT, Knob
from autocap.metrics import ratios
from autocap.records import Measurement, Trial, TrialState
from autocap.reports.summary.books import VALUED
from autocap.reports.wording import granted
from autocap.reports.wording.numbers import (
    LOW_CONFIDENCE,
    ago,
    best_cap,
    counted_runs,
    ratio,
    times,
    with_error,
    with_unit,
)
from autocap.reports.wording.run import asked_for, explained


class Wording:
    """Puts events into words, and remembers what the words need: the metric's name, and whether power is emulated."""

    def __init__(self) -> None:
        self.metric, self._knob = "cost", POWER_LIMIT
        self._searching_for = "searching"
        self._entered: State | None = None
        self._paused_in: State | None = None
        self._said = set[State]()  # of this search
        self.power, self._noun, self._count = "", "GPU", 1
        self._baseline: Measurement | None = None
        self._ceiling_w: float | None = None  # of a budget
        self._metered_s: float | None = None
        self._found_w, self._left = "", False
        self._sweeps, self._runs_left = False, 0
        self._followed: str | None = None  # a value, of whose loss who decides has more to say
        self._money = "money"
        self._values: dict[str, float] = {}  # as they were said

    def line(self, event: Event) -> str | None:
        """The sentence for an event; `None` for one that is not worth a line."""
        said = self._line(event)
        return said if said is None or isinstance(event, events.Warned) else self._knob.said(said)

    def _line(self, event: Event) -> str | None:
        match event:
            case events.RunStarted(metric=metric):
                self.metric = metric.name
                self._followed = VALUED.get(metric.name)
                meaning = f" ({explained(metric)})" if metric.name == "eds" else ""
                self._searching_for = f"searching for the cap with the lowest {asked_for(metric)}{meaning}"
            case events.ProgramFound(name=name, program=program, plain=plain):
                other = "has none" if plain is None else f"gives {plain}"
                return f"command {shown(name)} is {program} here; sudo's own PATH {other}"
            case events.SettingsTaken(settings=settings):
                return f"settings taken: {taken_words(settings)}"
            case events.SetterChosen(name=name, where=where, reason=reason, node=node) if where:
                by = f"the helper at {where}" if name == "helper" else f"{name} at {where}"
                there = f" of {node}" if node else ""
                return f"limits{there} are set by {by}{f', as {reason}' if reason else ''}"
            case events.DeviceFound():
                return self._device(event)
            case events.Remembered():
                return self._remembered(event)
            case events.CardRecalled():
                return self._card(event)
            case events.NodeMetered(t_s=t_s) if self._metered_s in (None, t_s):
                self._metered_s = t_s  # announced again at the end, for its refresh period
                return _node(event)
            case events.IdleEstimated(power_w=power_w, seen_s=seen_s) if not self._sweeps:
                return f"at rest the node draws {power_w:.0f} W, as seen over {seen_s:.0f} s before the first iteration"
            case events.ProgressFound(kind=kind, confidence="low"):
                return f"iterations from {kind}, with {LOW_CONFIDENCE}: time is known only against the baseline's"
            case events.ProgressFound(kind=kind):
                return f"counting iterations from {kind}"
            case events.StateEntered(state=state):
                return self._state(state)
            case events.BaselineMeasured(measurement=m, rough=rough):
                self._baseline = m
                at = f" at {with_unit(m.setting, self._knob)}" if self._ceiling_w is not None else ""
                return f"baseline{at}{', roughly' if rough else ''}: {self._measured(m)}"
            case events.BaselineRefined(measurement=m):
                self._baseline = m
                return f"baseline: {self._measured(m)}"
            case events.TrialEnded(trial=trial):
                return self._trial(trial)
            case events.TrialWithdrawn():
                return f"warning: {withdrawn(event, self._knob)}"
            case events.WouldTry(settings=caps):
                tried = ", ".join(map(self._knob.text, caps)) or "nothing"
                return f"observing only: a search would begin with {tried}; no cap is set"
            case events.Decided(setting=None, reason=reason) if self._ceiling_w is not None:
                return f"no cap is kept, what the budget gives is held: {reason}"
            case events.Decided(setting=None, reason=reason):
                return f"no cap is kept, the limit found on arrival is put back: {reason}"
            case events.Decided(setting=setting, confirmed=confirmed, reason=reason) if setting is not None:
                return f"keeping {self._knob.text(setting)}, {'' if confirmed else 'not '}confirmed: {reason}"
            case events.Granted(ceiling_w=ceiling_w):
                self._ceiling_w = ceiling_w
                return granted.sentence(event, self._noun)
            case events.HeldMeasured(measurement=m):
                return f"{with_unit(m.setting, self._knob)}, held under the budget: {self._measured(m)}"
            case events.Sourced(kind=kind, source=source, currency=currency):
                self._money = currency or self._money
                return f"{_of_value(kind)} is read from {source}"
            case events.Quoted(kind=kind, value=value):
                return self._value(kind, value)
            case events.Followed(settings=settings, kind=kind, value=value, gain=gain, gain_stderr=gain_stderr):
                gained = f"{with_error(100 * gain, 100 * gain_stderr)} %"
                what = f"{with_unit(settings, self._knob)} at {self._per_kwh(kind, value)}"
                return f"following to {what}: {gained} of the baseline's cost less, as far as is known"
            case PerGpuTried(setting=setting, accepted=accepted, reason=reason):
                return f"{with_unit(setting, self._knob)} per GPU: {'' if accepted else 'refused: '}{reason}"
            case PerGpuDecided(setting=setting, kept=True, reason=reason):
                return f"keeping {with_unit(setting, self._knob)} per GPU, confirmed: {reason}"
            case PerGpuDecided(setting=setting, reason=reason):
                return f"keeping the common cap of {with_unit(setting, self._knob)}: {reason}"
            case events.Warned(text=text):
                return f"warning: {text}"
            case events.PluginEvent():
                return event.sentence(self.power)
            case events.SweepStarted():
                return self._sweep(event)
            case events.SweepRunEnded(finished=finished):
                return self._whole_run(finished)
            case events.LimitRestored(uuid=uuid, restored=False):
                return f"warning: the {self._knob.label} of {uuid} was not put back"
            case events.LimitRestored(restored=None, final=float(final_w)) if not self._left:
                self._left = True  # one ceiling for all
                return granted.left(final_w, self._found_w, self._noun)
        return None

    def _value(self, kind: str, value: float | None) -> str | None:
        """Nothing of one that has hardly changed."""
        before = self._values.get(kind)
        if value is None:
            self._values.pop(kind, None)
            return f"{_of_value(kind)} is not known any more" if before is not None and kind != self._followed else None
        if before is not None and abs(value - before) <= _WORTH * abs(before):
            return None
        self._values[kind] = value
        return f"{_of_value(kind)} is {self._per_kwh(kind, value)}"

    def _per_kwh(self, kind: str, value: float) -> str:
        return f"{value:.4g} {'g CO₂' if kind == CARBON else self._money} per kWh"

    def _state(self, state: State) -> str | None:
        """Nothing of a pause, nor of the state that goes on after it; and of each search every state once."""
        if state is State.PAUSED:
            self._paused_in = self._paused_in or self._entered
            return None
        before, goes_on = self._said, state is self._paused_in
        self._paused_in, self._entered = None, state
        if goes_on:
            return None
        if state in _NEW_SEARCH:
            before.clear()
        if state in before:
            return None
        before.add(state)
        if state is State.BASELINE and self._ceiling_w is not None:
            return "measuring the baseline at the limit found on arrival, as far as the budget gives it"
        return self._searching_for if state is State.SEARCHING else _STATES.get(state)

    def _device(self, event: events.DeviceFound) -> str:
        self.power, self._knob = "(emulated)" if event.emulated else "", event.knob
        gpu = event.gpus[0]
        self._noun, self._count = gpu.noun, len(event.gpus)
        count = f"{len(event.gpus)} × " if len(event.gpus) > 1 else ""
        limits = "/".join(dict.fromkeys("unknown" if at is None else event.knob.text(at) for at in event.original))
        self._found_w = limits
        label = "; its power is emulated, not measured" if event.emulated else ""
        return f"tuning {event.knob.of_device}{count}{gpu.name}, limit found on arrival {limits}{label}"

    def _remembered(self, event: events.Remembered) -> str:
        where = f"this {self._noun}" if self._count == 1 else f"{self._count} such {self._noun}s"
        best = best_cap(event.setting, self.metric, self._knob)
        return (
            f"remembered: {counted_runs(event.runs)} of this job on {where}, {best}, measured "
            f"{ago(event.age_s)}; --no-memory to begin without"
        )

    def _card(self, event: events.CardRecalled) -> str:
        known = []
        if event.jobs:
            where = f"this {self._noun}" if self._count == 1 else f"these {self._noun}s"
            if event.here < event.jobs:
                where = f"{self._noun}s of this model{f', {event.here} on {where}' * bool(event.here)}"
            known.append(f"{event.jobs} other job{'s' * (event.jobs != 1)} on {where}")
        if event.job_on:
            known.append(f"this job on {', '.join(event.job_on)}")
        what = "it" if event.jobs + len(event.job_on) == 1 else "they"
        how = "--no-memory and no --warm-start" if event.job_on else "--no-memory"  # either may have told of it
        return f"card: {'; '.join(known)}; the search begins from what {what} showed; {how} to begin without"

    def _sweep(self, event: events.SweepStarted) -> str:
        plan = event.plan
        self.power = "(emulated)" if plan.emulated else ""
        self._sweeps, self._runs_left = True, event.runs_left
        self._noun = plan.sets[0].gpus[0].noun
        label = "; power is emulated, not measured" if plan.emulated else ""
        caps = "; ".join(f"caps on GPU {one.label}: {len(one.caps_w)}" for one in plan.sets)
        return f"sweep of {plan.name}: {caps}; repeats: {plan.repeats}; runs to come: {event.runs_left}{label}"

    def _whole_run(self, finished: FinishedRun) -> str:
        run, used = finished.run, finished.used
        self._runs_left -= finished.trouble is None
        what = "warming up" if run.repeat == DISCARDED else f"run {run.repeat}"
        where = f"GPU {run.gpus} at {run.cap_w:g} W, {what}"
        if finished.trouble is not None:
            return f"{where}: does not count: {finished.trouble}"
        assert used is not None  # or it would be in trouble
        of_gpus = "" if used.node_j is None else f", {self._noun}s {used.gpus_j:.1f} J"
        power_w = used.counted_j / used.time_s
        result = f"{used.time_s:.2f} s, {power_w:.1f} W, {used.counted_j:.1f} J{of_gpus} {self.power}".rstrip()
        return f"{where}: {result}; {self._runs_left} to come"

    def _measured(self, m: Measurement) -> str:
        if m.is_relative:
            return self._compared(m, self._baseline or m)
        of_gpus = "" if m.gpu is None else f", {self._noun}s {m.gpu.energy_per_iteration_j:.2f} J/iteration"
        time, energy = map(_known, (m.period_rel_stderr, m.energy_rel_stderr))
        return (
            f"{m.period_s:.4f} s/iteration{time}, {m.energy_per_iteration_j:.2f} J/iteration{energy}{of_gpus} "
            f"{self.power}".rstrip()
        )

    def _compared(self, m: Measurement, baseline: Measurement) -> str:
        """Where nothing per iteration is known but ratios."""
        drawn = f"{m.power_w:.1f} W {self.power}".rstrip()
        if m is baseline:
            return f"{drawn}; time and energy per iteration are known only against this, with {LOW_CONFIDENCE}"
        time, energy = (times(ratio) for ratio in ratios(m, baseline).values())
        return f"{drawn}, time {time}, energy {energy} ({LOW_CONFIDENCE})"

    def _trial(self, trial: Trial) -> str:
        reason = f" ({trial.reason})" if trial.reason else ""
        if trial.measurement is None:
            return f"{self._knob.text(trial.setting)}: failed{reason}"
        verdict = " pruned" if trial.state is TrialState.PRUNED else ""
        cost = f"{self.metric} {ratio(trial.cost or 0.0, trial.cost_stderr)}"
        return f"{self._knob.text(trial.setting)}:{verdict} {cost}, {self._measured(trial.measurement)}{reason}"


def _known(rel_stderr: float) -> str:
    """The error where one is known."""
    return f" ± {100 * rel_stderr:.2f} %" if rel_stderr < math.inf else ""


def withdrawn(event: events.TrialWithdrawn, knob: Knob) -> str:
    """Which trials count no more, and why."""
    return f"what was measured at {knob.text(event.setting)} does not count: {event.reason}"


def _of_value(kind: str) -> str:
    return "the carbon of electricity" if kind == CARBON else "the energy price"


def _node(event: events.NodeMetered) -> str:
    counted = "as its meter reads it" if event.whole else "the GPUs' and this beside them"
    return f"energy is the whole node's, {counted}: {event.source}"


_STATES = {
    State.WAITING: "waiting for steady activity",
    State.BASELINE: "measuring the baseline at the limit found on arrival",
    State.CONFIRMING: "confirming the best cap against the baseline",
}
_WORTH = 0.1  # of the value that was said last: a smaller change is no news by itself
_NEW_SEARCH = (State.WAITING, State.BASELINE, State.HOLDING)  # what comes after them is said again
