"""What is held once it is decided, until there is something to measure or it is time to tune anew: under ceilings that
others set, as the manager of a power budget does, and by values that move.

What was decided is held as far as the ceiling allows it. Below it, the best cap by all that is known of the job's curve
is held at once, without another search; and so it is where the search was done under a lower ceiling than there is now.
What is held so is measured meanwhile, which costs the job nothing and makes the curve better where that counts: again
and again until it is known well, as others' shares depend on it.

Where the controller is, with what belongs to each phase, and which may follow which:
Waiting → Baseline → Exploring → Holding; Waiting → Exploring where a rough baseline does; Baseline → Waiting when it
cannot be measured, → Observing where nothing may be set; Exploring → Baseline when the job has changed; Holding →
Exploring to check what is held, → Baseline to tune anew; any → Done. When, the plan says (`plan`).
"""

import math
from dataclasses import dataclass, replace
from typing import assert_never

from autocap import events
from autocap.controller.context import Keep, KeepByCurve, Kept, Revert, RevertForNow, StepContext
from autocap.controller.exploration import Exploration
from autocap.controller.following import Following
from autocap.controller.ranking import Confirm
from autocap.controller.search import Search
from autocap.controller.steps import BaselineAgain, CheckDue, Happened, JobSeemsChanged, SearchStep, TryCap, ValueMoved
from autocap.controller.tuning import TUNING
from autocap.controller.waiting import Baseline, Waiting
from autocap.events import State
from autocap.knobs import TOLERANCE_W
from autocap.measurement.batches import pool
from autocap.measurement.drift import DriftWatch
from autocap.measurement.metering import Metered
from autocap.measurement.probe import ProbeRules
from autocap.measurement.prober import Prober
from autocap.records import Measurement, same_limits

Retune = float | str  # seconds, "auto" or "never"


class Hold:
    """From a decision until the next.

    reference: what is held, as measured. retune: as the user has it. settle_s: from the decision on, until readings
    describe what is held. rest_s: no change is acted on for so long, so that a job that keeps changing is not searched
    all the time. retry_s: tune anew after so long in any case, `None` for never. check_s: measure the baseline again
    after so long, `None` for never. lasts_s: how long a change must last.
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
        lasts_s: float = 0.0,
    ) -> None:
        dues = [retune if isinstance(retune, float) else None, retry_s]
        self._due_s = min((since_s + due for due in dues if due is not None), default=None)
        self._check_s = None if check_s is None else since_s + check_s
        self._settle_s, self._settled_s, self._rested_s = settle_s, since_s + settle_s, since_s + rest_s
        self._lasts_s = lasts_s
        self._drift = DriftWatch(reference, lasts_s) if retune == "auto" else None
        self._asked = False

    def ask(self) -> None:
        """Somebody asks to tune anew."""
        self._asked = True

    def moved(self, reference: Measurement, now_s: float) -> None:
        """Other caps are held from now on. reference: what they show, or should."""
        self._settled_s = now_s + self._settle_s
        if self._drift is not None:
            self._drift = DriftWatch(reference, self._lasts_s)

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
    patient: whether a change must last, as it need not where a limit on slowdown may be broken meanwhile. decisions: so
    far, those of checks apart."""

    def __init__(self, retune: Retune, settle_s: float, *, patient: bool = True) -> None:
        self._retune, self._settle_s = retune, settle_s
        self._lasts = TUNING.hold_change_lasts if patient else 0.0
        self.searches = self.decisions = 0
        self._searched_from_s = self._search_s = self._check_s = 0.0
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
        if not checked:
            self.decisions += 1
            self._search_s = now_s - self._searched_from_s
        return Hold(
            decision.reference,
            now_s,
            retune=self._retune,
            settle_s=self._settle_s,
            # The first change of what was decided is acted on at once; a job that keeps changing gets longer and longer
            # rests. A search that the job left behind, as while it warms up, decided nothing.
            rest_s=0.0 if checked else (self.decisions - 1) * self._search_s,
            retry_s=self._retry_s * 2**self.searches if anew and isinstance(decision, RevertForNow) else None,
            check_s=self._check_after_s(decision, anew=anew),
            lasts_s=self._lasts * self._search_s,
        )

    def _check_after_s(self, decision: Kept, *, anew: bool) -> float | None:
        """When what is held is first to be looked at again; `None` for never."""
        if not isinstance(decision, Keep):
            return None
        return decision.again_s or (self._check_s if anew else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploring:
    """A cap is searched for and confirmed. held_w: the caps, watts per device, that are held and only measured again;
    `None` in a search."""

    exploration: Exploration
    held_w: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What was decided is held. settings: watts per device, as far as the ceiling allows."""

    exploration: Exploration
    hold: Hold
    decision: Kept
    settings: tuple[float, ...]


class Observing:
    """The job is measured, and nothing is set."""


class Done:
    """Nothing more is decided."""


Phase = Waiting | Baseline | Exploring | Holding | Observing | Done


Caps = tuple[float, ...]


class Ceiling:
    """Of all devices."""

    def __init__(self, context: StepContext, prober: Prober) -> None:
        self._context, self._prober = context, prober
        self._closely = False
        self._begun_w = 0.0  # the common cap at which the measurement of what is held began, or the last one did
        self._held_w: list[float] = []  # since then, at each sample that counts
        self._shown: list[Measurement] = []  # at the caps held now, not yet told

    def lacks_baseline(self, search: Search) -> bool:
        """Whether the limits found on arrival may hold, and the baseline was measured at lower ones."""
        return not self._context.is_bound and not same_limits(search.baseline.setting, self._context.uncapped_w)

    def held(self, decision: Kept, search: Search) -> Caps:
        """The caps, watts per device, that a decision comes to."""
        limits_w = self._context.uncapped_w
        match decision:
            case Keep(settings=settings) if self._context.allows(max(settings)) and not self._is_above(search):
                return settings
            case Revert() if same_limits(search.baseline.setting, limits_w):
                return limits_w
            case Keep() | Revert() | KeepByCurve():
                best_w = search.curve.best_w(max(limits_w), search.metric)
                most_w = limits_w
                if isinstance(decision, Keep) and not self._is_above(search):
                    most_w = decision.settings
                return tuple(min(best_w, setting) for setting in most_w)
            case _:
                assert_never(decision)

    def move(self, hold: Hold, search: Search, settings: Caps, *, closely: bool = False) -> None:
        """Hold these caps from now on, which no confirmation was for. closely: they are to be known better than trials
        know them."""
        self._context.set(settings)
        hold.moved(search.curve.expected(max(settings)), self._context.now_s)
        same = TUNING.ceiling_same_cap * self._begun_w if self._context.knob.is_power_limit else TOLERANCE_W
        if self._prober.busy and abs(settings[0] - self._begun_w) <= same:
            return  # a budget moves by a watt or two all the time
        self._prober.rest()
        self.tell()
        self._closely = closely
        self._measure(search, self._prober.rules)

    def take(self, hold: Hold, search: Search, metered: Metered) -> None:
        """Take in a sample while caps are held; where that ends their measurement, they are known."""
        if self._prober.collecting:
            self._held_w.append(self._context.decided_w[0])
        result = self._prober.add(metered)
        if result is None:
            return
        if result.measurement is not None:
            self._note(hold, search, result.measurement)
        if not self._prober.busy:
            self.tell()

    def tell(self) -> None:
        """Announce what was measured of the caps held last, as they are held no more, or known well."""
        if self._shown:
            self._context.announce(events.HeldMeasured(t_s=self._context.now_s, measurement=pool(self._shown)))
        self._shown = []

    def _note(self, hold: Hold, search: Search, shown: Measurement) -> None:
        if self._closely:
            search.note_closely(shown)
        else:
            mean_w = sum(self._held_w) / len(self._held_w) if self._held_w else self._begun_w
            shown = replace(shown, setting=self._context.every(mean_w))
            search.note(shown)
        hold.moved(shown, self._context.now_s)
        self._shown.append(shown)
        if not self._closely:
            self._measure(search, replace(self._prober.rules, settle_s=0.0))

    def _measure(self, search: Search, rules: ProbeRules) -> None:
        """What is held: once with a close look, else again and again until its time is known well. One cap for all
        devices is."""
        settings = self._context.decided_w
        self._held_w = []
        if self._closely:
            rules = replace(rules, target_stderr=TUNING.close_look_error, limit_s=TUNING.close_look_s)
            known = search.is_close(settings[0], self._context.now_s - TUNING.close_look_every_s)
        else:  # nobody else's share depends on it where there is no ceiling
            known = self._context.ceiling_w == math.inf or search.knows(settings[0], TUNING.ceiling_known_error)
        if len(set(settings)) == 1 and not known:
            self._begun_w = settings[0]
            self._prober.start(settings, search.cost, rules)

    def _is_above(self, search: Search) -> bool:
        """Whether more may hold now than the search knew of."""
        limits = zip(search.baseline.setting, self._context.uncapped_w, strict=True)
        return any(now_w > known_w + TOLERANCE_W for known_w, now_w in limits)


class CapHold:
    """plan: how long decisions are held."""

    def __init__(self, plan: HoldPlan, context: StepContext, prober: Prober, following: Following) -> None:
        self.plan, self._context, self._following = plan, context, following
        self._ceiling = Ceiling(context, prober)

    def lacks_baseline(self, search: Search) -> bool:
        """Whether the limits found on arrival may hold, and the baseline was measured at lower ones."""
        return self._ceiling.lacks_baseline(search)

    def hold(self, phase: Exploring, decision: Kept) -> Holding:
        """What a search or a check has come to."""
        exploration, checked = phase.exploration, phase.held_w is not None
        exploration.settle()
        decision = self._following.settled(exploration, decision, checked=checked)
        settings = self._ceiling.held(decision, exploration.search)
        self._context.set(settings)
        self._context.enter(State.HOLDING)
        hold = self.plan.hold(decision, self._context.now_s, checked=checked)
        if isinstance(decision, KeepByCurve):
            self._ceiling.move(hold, exploration.search, settings)
        elif self._following.follows and len(set(settings)) == 1:
            self._ceiling.move(hold, exploration.search, settings, closely=True)
        return Holding(exploration=exploration, hold=hold, decision=decision, settings=settings)

    def take(self, holding: Holding, metered: Metered, changed: str | None) -> Happened | None:
        """Take in a sample; what has happened by it. changed: why what counts the iterations says that the job is
        another one."""
        exploration, hold = holding.exploration, holding.hold
        self._ceiling.take(hold, exploration.search, metered)
        why = hold.why_anew(metered, changed)
        if why is not None:
            return JobSeemsChanged(why=why, sure=True)
        wanted = None if metered.paused else self._following.look(exploration, holding.settings)
        if wanted is not None:
            return ValueMoved(wanted=wanted)
        may_check = exploration.is_anchored and not isinstance(holding.decision, Revert)
        return CheckDue() if may_check and hold.check_due(metered) else None

    def check(self, holding: Holding, other: Confirm | None = None) -> Exploring:
        """What is held is measured again, or another cap that is to be."""
        exploration = holding.exploration
        self.tell()
        if other is None:
            self.plan.begin_check()
            self._following.before_check(exploration)
            exploration.check(holding.settings)
        else:
            begun = self._following.begun(other.setting) if exploration.is_anchored else None
            exploration.check(self._context.every(other.setting), other.window_error, begun)
        return Exploring(exploration=exploration, held_w=holding.settings)

    def search_on(self, holding: Holding, step: SearchStep) -> Exploring:
        """The strategy wants more than what was decided before: a cap tried, or, as the ceiling has risen, another
        search."""
        if isinstance(step, TryCap | BaselineAgain):
            self.tell()
            holding.exploration.before = holding.decision
            return Exploring(exploration=holding.exploration, held_w=holding.settings)
        holding.exploration.search.restrict(self._context.ceiling_w)
        return Exploring(exploration=holding.exploration)

    def is_unwanted(self, phase: Exploring) -> bool:
        """Whether a cap is being confirmed that is not wanted any more, as the value is another one."""
        return phase.held_w is not None and not self._following.rethink(phase.exploration, phase.held_w)

    def as_before(self, phase: Exploring) -> Holding:
        """What was held before a confirmation, which stops."""
        held_w = phase.held_w or self._context.uncapped_w
        self._following.stopped(phase.exploration.stop_confirming())
        return self.hold(phase, self._expected(phase.exploration.search, held_w))

    def tell(self) -> None:
        """Announce what was measured of the caps held last, as they are held no more."""
        self._ceiling.tell()

    def limited(self, holding: Holding) -> Holding:
        """The ceiling has moved: hold what was decided as far as it allows."""
        settings = self._ceiling.held(holding.decision, holding.exploration.search)
        if settings == holding.settings:
            return holding
        self._ceiling.move(holding.hold, holding.exploration.search, settings)
        return replace(holding, settings=settings)

    def move(self, holding: Holding, setting: float) -> Holding:
        """Another cap is best at the value in force, watts."""
        search, settings = holding.exploration.search, self._context.every(setting)
        self._ceiling.move(holding.hold, search, settings, closely=True)
        decision = holding.decision
        if not isinstance(decision, KeepByCurve):
            decision = self._expected(search, settings)
        return replace(holding, decision=decision, settings=settings)

    def _expected(self, search: Search, settings: tuple[float, ...]) -> Keep | Revert:
        """To hold these caps, watts per device, with what is expected there."""
        shown = search.curve.expected(max(settings))
        at_limit = same_limits(settings, self._context.uncapped_w)
        return Revert(reference=shown) if at_limit else Keep(settings=settings, reference=shown)
