"""The state machine: samples go in, actions come out. It owns no clock, thread, file or device.

WAITING → BASELINE → SEARCHING → CONFIRMING → HOLDING → DONE; PAUSED within any of them while the job does not train.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from autocap import events
from autocap.config import TuneConfig
from autocap.controller import steps
from autocap.controller.context import Action, Announce, KeepByCurve, SetCaps, StepContext
from autocap.controller.ending import Ending
from autocap.controller.following import Deadline, Following
from autocap.controller.holding import CapHold, Done, Exploring, Holding, HoldPlan, Observing, Phase
from autocap.controller.intake import Intake, Pace
from autocap.controller.known_curve import KnownCurve
from autocap.controller.plan import Facts, next_step
from autocap.controller.ranking import Confirm, Move
from autocap.controller.search import NewStrategy
from autocap.controller.search_factory import SearchFactory
from autocap.controller.steps import CeilingMoved, During, Happened, SearchStep, Step
from autocap.controller.waiting import Baseline, Proving, Remembered, Waiting
from autocap.errors import StrategyError
from autocap.events import State
from autocap.events.quote import Quote
from autocap.measurement.metering import IdleWatch, Metered
from autocap.measurement.prober import Prober
from autocap.measurement.window import Window
from autocap.progress import EXACT, Progress
from autocap.records import Sample, SensorInfo
from autocap.strategies.grid import CapGrid

OnSteps = Callable[[Sequence[float]], tuple[float, ...]]


class Controller:
    """Decides which caps to set, from nothing but the samples it is fed.

    original_w: the limits found on arrival, one per device. grid: the common caps to search among.
    new_strategy: builds the strategy once the baseline is known, from that, the trials of the searches before and the
    caps that it may ask for.
    idle: what was seen of the machine at rest before. remembered: of an earlier run; `None` where nothing is. finish_s:
    by when the job is to be done, on the run's clock. usual_iterations: of the whole job when it ran before, by
    what counts them.
    """

    def __init__(
        self,
        *,
        config: TuneConfig,
        sensor: SensorInfo,
        original_w: tuple[float, ...],
        grid: CapGrid,
        progress: Progress,
        new_strategy: NewStrategy,
        idle: IdleWatch | None = None,
        remembered: Remembered | None = None,
        finish_s: float | None = None,
        usual_iterations: Callable[[str], float | None] = lambda progress: None,
    ) -> None:
        self._config, self._progress = config, progress
        self.ended_because: str | None = None  # why the tuning ended before the job did
        self._started = self._withheld = False
        self._context = StepContext(original_w, grid.knob)
        self._proving = Proving(config, progress, self._context, sensor, grid)
        self._phase: Phase = Waiting.first(config, progress, self._context, self._proving, sensor, remembered)
        self._intake, self._pace = Intake(progress, self._context, idle or IdleWatch()), Pace(sensor)
        self._prober = Prober(config, sensor)
        deadline = Deadline(config, finish_s, self._intake, self._context)
        self._following = Following(config, self._context, sensor.settle_s, deadline)
        begin = self._following.begin
        self._factory = SearchFactory(config, sensor, grid, new_strategy, progress, self._context, self._prober, begin)
        self._grid = grid  # as it was asked for
        self._is_rough = False  # the baseline of the latest search
        self._baseline = Baseline(self._context, self._prober, progress)
        plan = HoldPlan(config.retune, sensor.settle_s, patient=config.metric.max_slowdown is None)
        self._keeping = CapHold(plan, self._context, self._prober, self._following)
        self._ending = Ending(config, self._context, self._intake, self._prober, progress, usual_iterations)

    @property
    def state(self) -> State:
        return self._context.shown

    @property
    def max_slowdown(self) -> float | None:
        """The largest slowdown that its user allows, 0.05 for 5 %."""
        return self._config.metric.max_slowdown

    @property
    def settings(self) -> tuple[float, ...]:
        """The limits that should hold now, watts, one per device."""
        return self._context.settings

    @property
    def interval_s(self) -> float:
        """How soon after the last sample the next one is needed, seconds."""
        calm = isinstance(self._phase, Holding) and self._phase.hold.is_calm and not self._prober.busy
        return self._pace.interval_s(
            held=calm or isinstance(self._phase, Observing | Done),
            follows_power=self._progress.follows_power,
            step_s=self._progress.step_s,
            iteration_s=0.0 if isinstance(self._phase, Waiting) else self._prober.rules.iteration_s,
        )

    @property
    def needs_count(self) -> bool:
        """Whether something is measured by the iterations that are counted now."""
        if isinstance(self._phase, Holding):
            return self._prober.busy or not self._phase.hold.is_calm
        return not isinstance(self._phase, Observing | Done)

    @property
    def is_steady(self) -> bool:
        """Whether what was decided is held, the job trains, and counters tell its iterations and its energy, so that
        nothing is missed without a sample for some seconds."""
        is_held = isinstance(self._phase, Holding) and self._context.shown is State.HOLDING and not self.needs_count
        counts = self._pace.counts and self._progress.kind in EXACT
        return is_held and counts and not self._following.follows

    def feed(self, sample: Sample) -> list[Action]:
        """Take in a sample; the actions it leads to, in order."""
        self._context.open(sample.t_s)
        self._pace.take(sample)
        if not self._started:
            self._started = True
            self._context.enter(State.WAITING)
            if isinstance(self._phase, Waiting):
                self._phase.begin()
        metered = self._intake.meter(sample)
        if self._intake.recounted is not None:
            self._count_anew(*self._intake.recounted)
        self._intake.tell(metered, waiting=isinstance(self._phase, Waiting))
        try:
            if not self._withheld:
                self._heed_long_pause(metered)
                if not self._context.is_aside:
                    self._advance(metered)
        except StrategyError as error:
            self._fail(self._context.knob.said(f"{error}; the limit found on arrival is kept"))
        self._intake.tally(due=False)
        return self._context.actions

    @property
    def curve(self) -> KnownCurve | None:
        """What is known of how time and energy follow the cap; `None` before anything was measured below the
        baseline."""
        if not isinstance(self._phase, Exploring | Holding) or not self._phase.exploration.search.seen:
            return None
        return self._phase.exploration.search.curve

    def grant(self, t_s: float, ceiling_w: float | None) -> list[Action]:
        """From now on no device may hold more than so many watts, `None` for no such ceiling: a trial above it ends,
        and what is held moves to what is best below it by what is known. A baseline that it prevented is measured once
        there is room for it. A knob that is no power limit is left alone. Raises ValueError for what is no ceiling."""
        if ceiling_w is not None and not 0 < ceiling_w < math.inf:
            raise ValueError(f"a ceiling is {ceiling_w} W; it must be finite and above 0 W, or none")
        self._context.open(t_s)
        before_w, limits_w = self._context.settings, self._context.uncapped_w
        self._context.grant(math.inf if ceiling_w is None else ceiling_w)
        self._context.announce(events.Granted(t_s=t_s, ceiling_w=ceiling_w))
        try:
            if self._context.knob.is_power_limit:
                self._go_on(self._ceiling_moved(limits_w))
        except StrategyError as error:
            self._fail(f"{error}; the limit found on arrival is kept")
        told = [action for action in self._context.actions if isinstance(action, Announce)]
        moved = self._context.settings != before_w and not self._config.observe
        return [*([SetCaps(settings=self._context.settings)] if moved else []), *told]

    def stepped(self, t_s: float, on_steps: OnSteps, why: str) -> list[Action]:
        """The devices were seen to take limits in steps: from now on only caps are asked for that all take as they are,
        and what was measured of others counts for nothing. on_steps: what becomes of caps, watts. why: in a sentence.
        """
        self._context.open(t_s)
        settings = on_steps(self._grid)
        if not settings:
            low_w, high_w = self._grid[0], self._grid[-1]
            self._fail(
                f"{why}; of the caps from {low_w:g} to {high_w:g} W that leaves none, so pass other --caps or bounds"
            )
        elif settings == tuple(self._factory.grid):
            self._context.warn(why)
        else:
            self._factory.grid = CapGrid(settings, self._grid.knob)
            self._go_on(steps.GridChanged(during=self._during, why=why))
            self._factory.history = self._factory.seen = ()
        return self._context.actions

    @property
    def _during(self) -> During:
        """What is under way, as far as the phase tells."""
        match self._phase:
            case Waiting():
                return During.WAIT
            case Baseline():
                return During.BASELINE
            case Exploring():
                return During.TRIAL
            case Holding():
                return During.HOLD
            case Observing() | Done():
                return During.NOTHING
            case _:
                assert_never(self._phase)

    def quote(self, t_s: float, kind: str, quote: Quote | None) -> list[Action]:
        """This is known from now on of what electricity costs or emits, `None` for nothing; to be said as well where an
        interval of it has passed. What follows comes with the next sample. Raises ValueError for another kind."""
        self._context.open(t_s)
        followed = self._following.follows
        self._following.quote(kind, quote, self._intake.value_changes)
        if isinstance(self._phase, Exploring) and self._following.follows:
            if not followed:
                search = self._phase.exploration.search
                search.rate(self._following.usual(search.first))
            elif self._keeping.is_unwanted(self._phase):
                self._go_on(steps.ValueMoved(wanted=None))
        return self._context.actions

    def _ceiling_moved(self, limits_w: tuple[float, ...]) -> CeilingMoved:
        """limits_w: that held without a cap until now."""
        match self._phase:
            case Exploring(exploration=exploration) if not self._keeping.lacks_baseline(exploration.search):
                return exploration.under_ceiling()
            case Holding(decision=KeepByCurve(), exploration=exploration) if exploration.is_unfinished:
                return CeilingMoved(during=During.HOLD, may_search_on=True)
        return CeilingMoved(during=self._during, other_limits=self._context.uncapped_w != limits_w)

    def interrupted(self, t_s: float) -> list[Action]:
        """The caps were put back meanwhile (the process was stopped): set them again, and begin the window anew."""
        self._context.open(t_s)
        self._prober.again()
        if isinstance(self._phase, Waiting):
            self._phase.again()
        self._context.set_again()
        return self._context.actions

    def withhold(self, t_s: float) -> list[Action]:
        """No limit may be set for a while, and those found on arrival hold: nothing is measured until `lent_again`."""
        self._context.open(t_s)
        self._withheld = True
        self._context.step_aside()
        return [action for action in self._context.actions if isinstance(action, Announce)]

    def lent_again(self, t_s: float) -> list[Action]:
        """Limits may be set again: go on, with the window that was under way begun anew."""
        self._context.open(t_s)
        self._withheld = False
        self._prober.again()
        if isinstance(self._phase, Waiting):
            self._phase.again()
        self._context.come_back()
        return self._context.actions

    def retune(self, t_s: float) -> list[Action]:
        """Somebody asks to tune anew: done from HOLDING, and not needed before."""
        self._context.open(t_s)
        if isinstance(self._phase, Holding):
            self._phase.hold.ask()
        else:
            self._context.warn(f"nothing to tune anew in the state {self.state}")
        return self._context.actions

    def stop(self, t_s: float, reason: str) -> list[Action]:
        """End the tuning, in whatever state it is; whoever calls this puts the limits found on arrival back."""
        self._context.open(t_s)
        if isinstance(self._phase, Done):
            return []
        if reason in (events.JOB_ENDED, events.ASKED) and not self._keeping.plan.decisions:
            self._ending.tell(self._phase, of_job=reason == events.JOB_ENDED)
        if isinstance(self._phase, Exploring):
            self._phase.exploration.abandon(reason)
        self._keeping.tell()
        self._context.decided_w = self._context.uncapped_w
        self._finish()
        return self._context.actions

    def close(self, t_s: float) -> list[Action]:
        """The job has ended: the last totals."""
        out = self.stop(t_s, events.JOB_ENDED)
        self._context.open(t_s)
        self._intake.tally()
        return out + self._context.actions

    def _heed_long_pause(self, metered: Metered) -> None:
        """A cap that is not kept yet slows down nothing but training: whatever the job does instead for long, or the
        end of a training that failed, has the limits found on arrival."""
        context = self._context
        if metered.marks:
            if context.is_aside:
                self._prober.resume()
            context.come_back()
        elif metered.long_pause and isinstance(self._phase, Exploring) and context.decided_w != self._phase.held_w:
            context.step_aside()

    def _count_anew(self, kind: str, before: str) -> None:
        """Begin anew, as iterations are counted by something else from now on."""
        if isinstance(self._phase, Done):
            return
        self._context.warn(
            f"iterations are counted by {kind} from now on, not by {before} any more, so all begins anew"
        )
        self._intake.begin_anew()
        self._factory.history = self._factory.seen = ()
        self._go_on(steps.CountedAnew())

    # What happens, and what is done about it.

    def _advance(self, metered: Metered) -> None:
        match self._phase:
            case Waiting():
                ready = self._phase.take(metered)
                if self._phase.baseline is not None:
                    self._factory.set_up(self._phase.baseline)
                self._go_on(ready)
            case Baseline():
                self._go_on(self._phase.take(metered))
            case Exploring() if self._progress.changed is not None:
                self._go_on(steps.JobSeemsChanged(why=self._progress.changed, sure=True))
            case Exploring(exploration=exploration):
                before = self._phase
                self._go_on(exploration.take(metered))
                if self._phase is before and self._ending.is_near(before):
                    self._go_on(steps.EndNear())
            case Holding():
                self._ending.hasten(self._phase.exploration.search)
                self._go_on(self._keeping.take(self._phase, metered, self._progress.changed))
            case Observing() | Done():
                pass
            case _:
                assert_never(self._phase)

    def _go_on(self, happened: Happened | None) -> None:
        """Do what is planned, until something takes its time."""
        while happened is not None:
            happened = self._carry_out(next_step(self._facts, happened))

    @property
    def _facts(self) -> Facts:
        """What the plan depends on."""
        facts = Facts(
            failed_baselines=self._baseline.failed,
            has_room=self._context.has_room,
            is_bound=self._context.is_bound,
            observes=self._config.observe,
            own_length=self._factory.has_own_length,
        )
        if not isinstance(self._phase, Exploring | Holding):
            return facts
        exploration = self._phase.exploration
        return replace(exploration.facts(facts), lacks_baseline=self._keeping.lacks_baseline(exploration.search))

    def _carry_out(self, step: Step) -> Happened | None:
        """Take a step; what came of it, where that is known at once."""
        if isinstance(step, SearchStep):
            if isinstance(self._phase, Holding):
                self._phase = self._keeping.search_on(self._phase, step)
            return self._exploring.exploration.carry_out(step)
        match step:
            case steps.Continue(why=why):
                if why is not None:
                    self._context.warn(why)
            case steps.RestartAtNewLimits():
                self._restart()
            case steps.KeepWaiting():
                if isinstance(self._phase, Waiting):
                    self._phase.insist()
            case steps.ResetAndWait(why=why):
                self._wait(why)
            case steps.BaselineAndSearch():
                self._measure_baseline(step.why, same_job=step.same_job)
            case steps.SetUpSearch(rough=rough):
                return self._set_up(rough=rough)
            case steps.Observe():
                self._observe()
            case steps.BeginSearch():
                return self._begin_search()
            case steps.Hold(decision=decision):
                self._phase = self._keeping.hold(self._exploring, decision)
            case steps.KeepUnconfirmed():
                decision = self._ending.keep(self._exploring.exploration)
                self._phase = self._keeping.hold(self._exploring, decision)
            case steps.HoldAsBefore():
                self._phase = self._keeping.as_before(self._exploring)
            case steps.HoldWithin():
                self._phase = self._keeping.limited(self._holding)
            case Move(setting=setting):
                self._phase = self._keeping.move(self._holding, setting)
            case Confirm():
                self._phase = self._keeping.check(self._holding, step)
            case steps.Check():
                self._phase = self._keeping.check(self._holding)
            case steps.End(why=why):
                self._fail(why)
            case _:
                assert_never(step)
        return None

    @property
    def _exploring(self) -> Exploring:
        assert isinstance(self._phase, Exploring), self._phase
        return self._phase

    @property
    def _holding(self) -> Holding:
        assert isinstance(self._phase, Holding), self._phase
        return self._phase

    def _restart(self) -> None:
        """At the limits that hold now without a cap."""
        if isinstance(self._phase, Waiting):
            self._phase.limited()
            return
        self._context.set(self._context.uncapped_w)
        if isinstance(self._phase, Baseline):
            self._phase.begin()

    def _wait(self, why: str | None) -> None:
        """For a steady job, at the limits found on arrival."""
        if why is not None:
            self._context.warn(why)
        self._prober.rest()
        self._context.set(self._context.uncapped_w)
        self._proving.end()
        self._phase = Waiting(self._config, self._progress, self._context, self._proving)
        self._context.enter(State.WAITING)

    def _measure_baseline(self, why: str | None, *, same_job: bool) -> None:
        """why: the search so far is given up, and its trials go to the next one as history."""
        steady: Window | None = None
        match self._phase:
            case Waiting() as waiting:
                steady = waiting.window
                self._prober.expect(waiting.iteration_s, self._progress.kind)
                self._intake.totals.open()
            case Exploring(exploration=exploration) | Holding(exploration=exploration) if why is not None:
                exploration.abandon(why)
                self._context.warn(f"tuning anew: {why}")
                search = exploration.search
                self._ending.leave(exploration)
                self._factory.history, self._factory.seen = search.history, search.seen if same_job else ()
                self._keeping.tell()
                self._prober.begin_anew()
                self._context.set(self._context.uncapped_w)
        self._phase = self._baseline
        self._context.enter(State.BASELINE)
        self._baseline.begin(steady)

    def _set_up(self, *, rough: bool) -> Happened:
        """rough: the baseline is known from a few iterations alone."""
        context, factory = self._context, self._factory
        if not rough and self._baseline.measured is not None:
            factory.set_up(self._baseline.measured)
        baseline = factory.search.first
        if rough:
            self._prober.expect(baseline.period_s, self._progress.kind)
            self._intake.totals.open()
            context.enter(State.BASELINE)
            context.announce(events.BaselineMeasured(t_s=context.now_s, measurement=baseline, rough=True))
        self._is_rough, objection = rough, factory.objection(self._intake.done)
        if objection is None:
            self._ending.hasten(factory.search)
            self._keeping.plan.begin_search(baseline, context.now_s, factory.duration.stretch)
        return steps.SearchSetUp(objection=objection)

    def _observe(self) -> None:
        first_w = self._factory.search.ask()
        self._context.announce(events.WouldTry(t_s=self._context.now_s, settings=() if first_w is None else (first_w,)))
        self._phase = Observing()
        self._context.enter(State.HOLDING)

    def _begin_search(self) -> Happened | None:
        totals = self._intake.totals
        since = totals.tally(self._context.now_s) if self._keeping.plan.searches > 1 else None
        exploration = self._factory.exploration(totals, since, rough=self._is_rough)
        self._phase = Exploring(exploration=exploration)
        return exploration.carry_out(steps.AskForCap())

    def _fail(self, why: str) -> None:
        self._context.warn(why)
        self.ended_because = why
        self._finish()

    def _finish(self) -> None:
        self._phase = Done()
        self._prober.rest()
        self._context.set(self._context.uncapped_w)
        self._context.enter(State.DONE)
