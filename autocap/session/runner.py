"""The only loop: take a sample at an absolute deadline, feed it, carry out the actions, pass the events on.

Whatever goes wrong here ends the tuning and never the job: the limits are put back, one warning is announced, and the
loop goes on waiting for the job.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from enum import Enum, auto
from functools import partial
from typing import TypeVar, assert_never

from autocap import events
from autocap.clock import Clock
from autocap.controller.context import Action, Announce, SetCaps
from autocap.errors import (
    AutocapError,
    GuardError,
    LeaseEnded,
    LimitClamped,
    LimitIgnored,
    LimitNotEnforced,
    LimitOutside,
    LimitRefused,
    LimitWithheld,
    SetterUnavailable,
)
from autocap.job.signals import SignalClock
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits.background_call import done_aside
from autocap.limits.guard import LimitSetter, PeerGuardian
from autocap.limits.times import BEAT_APART_S, BEAT_S, DRIVER_AT_END_S
from autocap.records import Sample
from autocap.session.guarding import LENT_AGAIN, PASSING, Asking, Restorer, untuned_for_now
from autocap.session.limit_watch import LimitWatch, TakenCaps
from autocap.session.pricing import BudgetLink, News, PriceLink
from autocap.session.roles import Among, Budget, Decider, Inbox, Job, NoInbox, Order, Sampler, Sink

log = logging.getLogger(__name__)
_R = TypeVar("_R")
_TURN_S = 0.05  # the work is awaited for so long, then signals are, in turns


def attended(work: Callable[[], _R], clock: Clock, turn: Callable[[int | None], None]) -> _R:
    """What work yields or raises that calls into drivers, each of which may take seconds to answer: it is done in a
    thread. turn: told each signal, or of none, again and again while it is not done; what that raises leaves the work
    to itself. Where time is not real, it is merely done."""
    if not isinstance(clock, SignalClock):
        return work()
    return done_aside(work, lambda: turn(clock.wait_until(clock.now() + _TURN_S)), _TURN_S)


# Who loses the caps so often can measure no trial to its end: the search would begin each of them anew for ever.
_MOST_INTERRUPTIONS, _WITHIN_S = 10, 600.0
_LOOK_AGAIN_S = 0.1  # whether somebody else has changed a limit
_PUT_BACK = "autocap, or what guards its limits, was stopped for a while; the limits were put back meanwhile"
_RELOADED = "the driver was loaded again, at which every limit falls back to the default; the caps are set again"
_SOMEBODY = "somebody else"  # in what is said of a limit that another has set
_LONG_S = 1.0  # of reading or setting the devices, for that to be why limits were put back
_SLOW_SET_S = 3.0  # which neither firmware that is slow to enforce a limit takes, nor a helper that makes wait


def follow(job: Job, clock: Clock, inbox: Inbox) -> int:
    """Await a job that is not tuned; its exit status."""
    while (status := follow_until(math.inf, job, clock, inbox)) is None:
        pass
    return status


def follow_until(until_s: float, job: Job, clock: Clock, inbox: Inbox) -> int | None:
    """The same, but for some time: `None` once it has passed, and no signal has asked for the end of the tuning."""
    while (status := job.poll()) is None:
        if clock.now() >= until_s:
            return None
        signum = clock.wait_until(min(clock.now() + BEAT_S, until_s))
        orders = [] if signum is None else [inbox.receive(signum, clock.now())]
        if Order.STOP_TUNING in (*orders, inbox.due(clock.now())):
            until_s = math.inf
    return status


class _CalledOff(Exception):
    """An order came while limits were being set, at which they were put back."""


class LoopMode(Enum):
    """What the loop still does beside waiting for the job; one leads only to the next, but for WITHHELD."""

    TUNING = auto()
    WITHHELD = auto()  # others have the limits for now, and they are asked for again; back to TUNING
    OBSERVING = auto()  # the limits were put back; the job is still measured
    BLIND = auto()  # the device cannot be read either


class Runner:
    """Runs one tuning to the end of its job.

    setter: `None` under --observe. budget: that the job runs under. pace: seconds until samples are next asked for,
    asked after each time. prices: of energy, as they change. attends: setting limits may wait for a driver, and
    signals, beats and samples do not wait for that. reloads: how often the driver was seen to have been loaded again.
    knob: that is turned. setters: others that are known to set limits and run here, with their PIDs.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        sampler: Sampler,
        controller: Decider,
        job: Job,
        sink: Sink,
        pace: Callable[[], float],
        setter: LimitSetter | None,
        budget: Budget | None = None,
        inbox: Inbox | None = None,
        prices: News | None = None,
        attends: bool = False,
        reloads: Callable[[], int] = lambda: 0,
        knob: Knob = POWER_LIMIT,
        setters: Callable[[], Sequence[tuple[str, int]]] = lambda: (),
    ) -> None:
        self._clock, self._sampler, self._controller, self._job = clock, sampler, controller, job
        self._sink, self._pace, self._setter = sink, pace, setter
        self._inbox = inbox or NoInbox()
        self._watch = LimitWatch(sampler.gpus, controller.settings, knob)
        self._of_limits = knob.is_power_limit
        self._taken = TakenCaps(self._watch.steps)
        self._found_w = controller.settings  # at first
        self._asked_w: tuple[float, ...] = ()  # last
        self._mode = LoopMode.TUNING
        self._ended_because: str | None = None
        self._next_s = self._next_beat_s = clock.now()
        self._attends = attends
        self._orders: list[Order] = []  # that came while limits were being set
        self._put_back = False  # limits were, meanwhile
        self._is_slow = False  # to set limits, as was said
        self._interrupted_s: deque[float] = deque(maxlen=_MOST_INTERRUPTIONS)
        self._reloads, self._reloads_seen, self._setters = reloads, reloads(), setters
        self._called_s = 0.0  # that the devices were longest read or set for since the last beat
        self._asking: Asking | None = None  # while others have the limits
        self._withheld: set[str] = set()  # why they were withheld, as it was said
        self._restorer = None if setter is None else Restorer(setter, self._warn, knob)
        self._link, self._prices = BudgetLink(budget, controller), PriceLink(prices, controller)

    @property
    def ended_because(self) -> str:
        """Why the tuning ended: the first cause."""
        return self._ended_because or self._controller.ended_because or events.JOB_ENDED

    def run(self) -> int:
        """Loop until the job has ended; its exit status."""
        self._next_s = self._clock.now()
        while (status := self._job.poll()) is None:
            wake_s = self._next_s
            if self._setter is not None:
                wake_s = min(wake_s, self._next_beat_s + BEAT_S - BEAT_APART_S)
            signum = self._clock.wait_until(wake_s)
            now_s = self._clock.now()
            if signum is not None:
                self._obey(self._inbox.receive(signum, now_s), now_s)
            self._obey(self._inbox.due(now_s), now_s)
            self._beat(now_s)  # before anything that may take long: we may be late already
            if self._restorer is not None:
                self._restorer.due(now_s)
            self._renew(now_s)
            self._safely(lambda: self._prices.heed(self._clock.now()))
            if signum is None and now_s >= self._next_s:
                self._take_samples()
                self._plan_sample()
        self._safely(lambda: self._controller.close(self._clock.now()))
        return status

    def stop(self) -> None:
        """Tune no more, as a signal asked before the loop."""
        self._obey(Order.STOP_TUNING, self._clock.now())

    def _plan_sample(self) -> None:
        interval_s, now_s = self._interval_s(), self._clock.now()
        self._next_s += interval_s
        if self._next_s < now_s:  # late by a whole interval: skip, rather than hurry after it
            self._next_s = now_s + interval_s

    def _interval_s(self) -> float:
        """Until the next sample; soon where a limit seems to have been changed."""
        return min(self._pace(), _LOOK_AGAIN_S) if self._watch.suspects else self._pace()

    def _take_samples(self) -> None:
        if self._mode is LoopMode.BLIND:
            return

        def step() -> list[Action]:
            with self._timed():
                samples = iter(self._sampler.samples())
                sample = next(samples, None)
            if sample is None:
                self._note()
            while sample is not None:
                for action in self._take(sample):
                    self._act(action)
                sample = next(samples, None)
            return []

        self._safely(step)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Inside, the devices are read or set; where the loop does not wait for them, no time of theirs is lost."""
        began_s = self._clock.now()
        try:
            yield
        finally:
            if not self._attends:
                self._called_s = max(self._called_s, self._clock.now() - began_s)

    def _take(self, sample: Sample) -> list[Action]:
        self._note()
        self._sink.sample(sample)
        if self._mode is LoopMode.TUNING:
            changed = self._watch.change(sample.readings, self._controller.settings)
            if changed is not None:  # step aside: ours go where they still stand
                self._give_up(changed, LoopMode.OBSERVING)
            elif (steps := self._watch.taken_in_steps()) is not None:
                for action in self._heed_steps(steps):
                    self._act(action)
        return self._controller.feed(sample)

    def _note(self) -> None:
        for note in self._sampler.notes():
            self._warn(self._clock.now(), note)

    def _heed_steps(self, why: str) -> list[Action]:
        """Devices have made other limits of ours."""
        return self._go_on_among(self._taken.among, why, f"{why}; pass only caps that it takes as they are")

    def _go_on_among(self, among: Among, why: str, otherwise: str) -> list[Action]:
        """otherwise: why tuning ends where no other caps will do."""
        actions = self._controller.stepped(self._clock.now(), among, why)
        if actions is None:
            self._give_up(otherwise, LoopMode.OBSERVING)
        return actions or []

    def _beat(self, now_s: float) -> None:
        setter = self._setter
        if setter is None or (now_s < self._next_beat_s and not self._watch.suspects):
            return  # who guards the limits knows whether it was they who changed one
        self._next_beat_s = now_s + BEAT_APART_S
        called_s, self._called_s = self._called_s, 0.0

        def beat() -> list[Action]:
            put_back, self._put_back = setter.beat() or self._put_back, False
            if not put_back:
                return self._link.heed(now_s) if self._mode is LoopMode.TUNING else []
            before, self._reloads_seen = self._reloads_seen, self._reloads()
            took = f"a call to the device took {called_s:.1f} s; the limits were put back meanwhile"
            slow = took if called_s > _LONG_S else _PUT_BACK
            if self._reloads_seen != before:  # what is there now is not even the limit found
                self._set_caps(self._controller.settings)
                slow = _RELOADED
            self._warn(now_s, slow)
            self._interrupted_s.append(now_s)
            if len(self._interrupted_s) == _MOST_INTERRUPTIONS and now_s - self._interrupted_s[0] < _WITHIN_S:
                if called_s > _LONG_S:
                    raise GuardError(
                        f"calls to the device took seconds {_MOST_INTERRUPTIONS} times within {_WITHIN_S:g} s, so no "
                        "trial can be measured; update the driver"
                    )
                raise GuardError(
                    f"autocap was stopped or got no CPU {_MOST_INTERRUPTIONS} times within {_WITHIN_S:g} s, so no "
                    "trial can be measured; run it where it has a CPU now and then"
                )
            return [*self._link.heed(now_s), *self._controller.interrupted(now_s)]

        self._safely(beat)

    def _obey(self, order: Order, now_s: float) -> None:
        match order:
            case Order.NOTHING:
                pass
            case Order.STOP_TUNING:
                self._give_up(events.ASKED, LoopMode.OBSERVING, quietly=True)
            case Order.RESUME:
                self._safely(lambda: self._controller.interrupted(now_s))
            case Order.RETUNE:
                self._safely(lambda: self._controller.retune(now_s))
            case _:
                assert_never(order)

    def _safely(self, step: Callable[[], list[Action]]) -> None:
        """Carry out what a step decides; any fault ends the tuning, not the job."""
        try:
            for action in step():
                self._act(action)
        except _CalledOff:
            orders, self._orders = self._orders, []
            for order in orders:
                self._obey(order, self._clock.now())
        except (LeaseEnded, LimitWithheld) as error:
            self._await_limits(str(error))
        except (LimitOutside, LimitClamped, LimitIgnored, LimitNotEnforced) as error:
            self._heed_range(error)
        except (GuardError, LimitRefused) as error:  # the device can be read all the same
            log.debug("tuning ends", exc_info=True)
            self._give_up(str(error), LoopMode.OBSERVING)
        except AutocapError as error:
            log.debug("tuning ends", exc_info=True)
            self._give_up(str(error), LoopMode.BLIND)
        except Exception as error:  # noqa: BLE001 - the job must not feel a fault of ours
            if self._restorer is not None and self._mode is LoopMode.TUNING:
                self._restorer.restore(self._clock.now())  # before a disk has to take the traceback
            self._give_up(self._sink.reason(error), LoopMode.BLIND)

    def _heed_range(self, error: LimitOutside | LimitClamped | LimitIgnored | LimitNotEnforced) -> None:
        """A device takes no limit so low, or is held at a lower one: go on among the other caps; else tuning ends."""
        asked_w, taken, why = max(self._asked_w, default=math.inf), self._taken, str(error)
        among: Among | None = None
        if isinstance(error, LimitOutside):
            among = partial(taken.above_refused, refused_w=asked_w, set_caps=self._set_all)
        elif isinstance(error, LimitNotEnforced):
            taken.most_w, among = error.found_w, taken.among
            why = f"something outside autocap holds a device at {error.found_w:g} W, so no cap above that is tried"
        elif asked_w < error.found_w < min(self._found_w):
            taken.least_w, among = error.found_w, taken.among
            why = f"a device takes no limit below {error.found_w:g} W: it made that of {asked_w:g} W"
        if among is None or not self._of_limits or self._mode is not LoopMode.TUNING:
            self._give_up(str(error), LoopMode.OBSERVING)
        else:
            self._safely(partial(self._go_on_among, among, why, str(error)))

    def _set_all(self, setting: float) -> None:
        self._set_caps((setting,) * len(self._sampler.gpus))

    def _act(self, action: Action) -> None:
        match action:
            case Announce(event=event):
                self._sink.event(event)
            case SetCaps(settings=settings):
                if self._setter is not None and self._mode is not LoopMode.WITHHELD:
                    self._asked_w = settings
                    self._set_caps(settings)
                    self._sink.event(events.CapSet(t_s=self._clock.now(), setting=settings))
            case _:
                assert_never(action)

    def _set_caps(self, settings: Sequence[float]) -> None:
        """Raises as `LimitSetter.set_caps`, and _CalledOff."""
        setter, began_s = self._setter, self._clock.now()
        assert setter is not None
        try:
            # By others: they may have to be waited for.
            with nullcontext() if isinstance(setter, PeerGuardian) else self._timed():
                if self._attends:
                    attended(lambda: setter.set_caps(settings), self._clock, partial(self._meanwhile, setter, began_s))
                else:
                    setter.set_caps(settings)
        except AutocapError:
            if not self._orders:
                raise
        if self._orders:
            raise _CalledOff
        took_s = self._clock.now() - began_s
        if took_s > _SLOW_SET_S and not self._is_slow:
            self._is_slow = True
            self._warn(self._clock.now(), f"setting a limit took {took_s:.1f} s; the job was not held up meanwhile")

    def _meanwhile(self, setter: LimitSetter, began_s: float, signum: int | None) -> None:
        """While limits are being set: hear signals, beat, and read, which is only recorded. Raises _CalledOff once the
        job has ended, and the driver does not answer."""
        now_s = self._clock.now()
        orders = [] if signum is None else [self._inbox.receive(signum, now_s)]
        orders.append(self._inbox.due(now_s))
        self._orders += [order for order in orders if order is not Order.NOTHING]
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + BEAT_APART_S
            with suppress(AutocapError):  # which the set meets as well
                self._put_back = setter.beat() or self._put_back
        if now_s >= self._next_s:
            with suppress(AutocapError):  # which comes again
                for sample in self._sampler.samples():
                    self._sink.sample(sample)
            self._plan_sample()
        if now_s - began_s > DRIVER_AT_END_S and self._job.poll() is not None:
            raise _CalledOff

    def _await_limits(self, why: str) -> None:
        """Whoever lends the limits does not for now, and has put them back: go on without, and ask again."""
        if self._mode is not LoopMode.TUNING:
            return
        now_s = self._clock.now()
        may_be_lent = self._setter is not None and self._setter.renewable
        actions = self._controller.withhold(now_s) if may_be_lent else None
        if actions is None:
            self._give_up(why, LoopMode.OBSERVING)
            return
        if why not in self._withheld:
            self._withheld.add(why)
            self._warn(now_s, untuned_for_now(why))
        self._asking, self._mode = Asking(now_s), LoopMode.WITHHELD
        for action in actions:
            self._act(action)

    def _renew(self, now_s: float) -> None:
        """Ask for limits that are withheld, once it is time to."""
        setter, asking = self._setter, self._asking
        if self._mode is not LoopMode.WITHHELD or setter is None or asking is None or now_s < asking.again_s:
            return

        def renew() -> list[Action]:
            try:
                setter.renew()
            except (*PASSING, SetterUnavailable) as error:
                log.debug("limits are withheld still: %s", error)
                asking.refused(self._clock.now())
                return []
            self._mode = LoopMode.TUNING
            self._warn(self._clock.now(), LENT_AGAIN)
            return self._controller.lent_again(self._clock.now())

        self._safely(renew)

    def _give_up(self, why: str, mode: LoopMode, *, quietly: bool = False) -> None:
        """Put the limits back and tune no more. mode: what still can be done."""
        now_s = self._clock.now()
        # A fault that stays is said once; and where the job is told to end with us, what else ends is no news.
        quietly = quietly or self._ended_because in (why, events.ASKED)
        self._ended_because = self._ended_because or why
        self._mode = LoopMode.BLIND if self._mode is LoopMode.BLIND else mode
        actions = self._controller.stop(now_s, why)
        if self._restorer is not None:
            self._restorer.restore(now_s)
        if not quietly:
            self._warn(now_s, f"tuning ended, the job goes on: {why}")
            self._name_setters(now_s, why)
        for action in actions:
            if isinstance(action, Announce):
                self._sink.event(action.event)

    def _name_setters(self, now_s: float, why: str) -> None:
        """Who may have set a limit that is somebody else's, where one is seen; also where that was said by a helper."""
        found = self._setters() if _SOMEBODY in why else ()
        if found:
            named = " and ".join(f"{name} (PID {pid})" for name, pid in found)
            runs = "run" if len(found) > 1 else "runs"
            self._warn(now_s, f"{named} {runs} here, and may have set it; have only one of them set limits")

    def _warn(self, t_s: float, text: str) -> None:
        self._sink.event(events.Warned(t_s=t_s, text=text))
