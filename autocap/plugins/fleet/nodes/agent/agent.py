"""What an agent does about each message, and when time has passed."""

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from autocap.clock import Clock
from autocap.errors import AutocapError, GuardError, LimitNotPermitted, LimitRefused
from autocap.limits import Restored, times
from autocap.limits.lease import Lease
from autocap.plugins.fleet.nodes.protocol import (
    Begin,
    Command,
    CommandKind,
    Done,
    Failed,
    Fault,
    FromAgent,
    Heartbeat,
    HeartbeatReply,
    JobEnded,
    Message,
    Note,
    Row,
    Rows,
    Settle,
)
from autocap.records import same_limit

if TYPE_CHECKING:
    from autocap.plugins.fleet.nodes.agent.preparing import NodeJob, Preparation

log = logging.getLogger(__name__)
_LOOK_S = 0.25  # whether the job is there
_SHORT_S, _SOON_S, _LATER_S = 0.5, 0.1, 1.0  # up to which interval rows are sent soon, else later
_EARLY_S, _WAITS_S = 0.03, 0.1  # so soon after a sample, what is due is done with it; so long before one, it waits
_EVERY_S = 0.05  # between two looks at a job that is told to end with us


class Agent:
    """The agent of a job on one node. say: sends a message. prepare: begins what a `Begin` asks for.

    is_leaving: it has nothing more to do. is_alone: as nobody speaks to it any more. Nothing is raised: whatever goes
    wrong is answered, or ends in `Failed`.
    """

    def __init__(
        self, number: int, clock: Clock, say: Callable[[FromAgent], None], prepare: Callable[[Begin], "Preparation"]
    ) -> None:
        self._number, self._clock, self._say, self._start = number, clock, say, prepare
        self._lease = Lease(clock.now(), restore_s=times.HOLDS_S, leave_s=times.ALONE_S)
        self._preparation: Preparation | None = None
        self._here: NodeJob | None = None
        self._word = Heartbeat(number=0, interval_s=_LATER_S, counted=True)
        self._done: Done | None = None  # the last one
        self._is_set, self._put_backs = False, 0
        self._caps_w: tuple[float, ...] = ()  # that should hold, once some are set
        self._rows: list[Row] = []
        self._first = 0  # the number of the first of them
        self._noted: set[str] = set()
        self._sample_s = self._beat_s = self._send_s = self._look_s = 0.0
        self._seen_s = 0.0  # when the job was last there
        self._due_s, self._still_s = math.inf, -math.inf  # when `due` was to be called; until when nothing is set
        self._again_s: float | None = None
        self._job_ended = False
        self.is_leaving = self.is_alone = False

    @property
    def next_s(self) -> float:
        """When `due` is to be called next, should nothing be heard before."""
        times_s = [self._lease.next_s]
        if self._preparation is not None:
            times_s.append(self._preparation.next_s)
        if self._here is not None:
            due_s = [self._beat_s]
            due_s += [] if self._job_ended else [self._look_s]
            due_s += [self._send_s] if self._rows else []
            due_s += [] if self._again_s is None else [self._again_s]
            times_s += [self._sample_s, *(one_s for one_s in due_s if not one_s <= self._sample_s <= one_s + _WAITS_S)]
        return min(times_s)

    def spoken(self) -> None:
        """The controller has said something, to whomever."""
        self._lease.word(self._clock.now())

    def hear(self, message: Message) -> None:
        """Do what a message asks for."""
        match message:
            case Heartbeat():
                self._obey(message)
            case Command():
                self._do(message)
            case Begin() if self._preparation is None and self._here is None:
                self._preparation = self._start(message)
            case Settle() if self._preparation is None and self._here is None:
                self._settle(message)

    def due(self) -> None:
        """Do what is due by now."""
        if self._clock.now() > self._due_s + times.WAS_STOPPED_S:
            self.spoken()  # it was we who were stopped: as long again, before nobody speaks to us
        try:
            self._do_what_is_due()
        except Exception as error:  # noqa: BLE001 - whatever it is, what was set is put back
            self.fail(error)
        self._due_s = self.next_s

    def fail(self, error: Exception) -> None:
        """Put the limits back, say why, and leave."""
        if not isinstance(error, AutocapError):
            log.error("an internal fault", exc_info=error)
        self.leave(str(error) if isinstance(error, AutocapError) else f"{type(error).__name__}: {error}")

    def told_to_end(self) -> None:
        """A signal asks for our end: put the limits back, and say whether it is the job's end as well, or ours alone.
        Waits for the job for a moment."""
        restored, end_s = self._put_last_back(), self._clock.now() + times.WITH_US_S
        while self._here is None or self._here.job.is_there():
            if self._here is None or self._clock.now() >= end_s:
                self._say(Failed(why="a signal has ended its agent", restored=restored))
                return
            self._clock.wait_until(self._clock.now() + _EVERY_S)
        if not self._job_ended:
            self._say(JobEnded(restored=restored))

    def stand_still(self) -> None:
        """The job is about to be suspended, and we with it: put the limits back, and set none before it goes on."""
        self._still_s = self._clock.now() + times.SUSPENDED_S
        if self._is_set:
            self._put_all_back()
            self._put_backs += 1

    def leave(self, why: str | None = None) -> None:
        """Put the limits back, and have nothing more to do. why: is told to the controller, where it is not gone."""
        restored = self._put_last_back()
        if why is not None:
            self._say(Failed(why=why, restored=restored))

    def _put_last_back(self) -> tuple[Restored, ...]:
        self.is_leaving = True
        try:
            return self._put_all_back()
        except Exception:
            log.exception("the limits could not be put back; it is tried again at the end, and by the watchdog")
            return ()

    def note(self, text: str) -> None:
        """Let the user know, once."""
        if text not in self._noted:
            self._noted.add(text)
            self._say(Note(text=text))

    def _obey(self, word: Heartbeat) -> None:
        heard_s = self._clock.now()
        if word.interval_s < self._word.interval_s:  # at once, rather than once the long one is over
            self._sample_s = min(self._sample_s, heard_s + word.interval_s)
            self._send_s = min(self._send_s, self._sample_s + _SOON_S)
        self._word = word
        if self._number < len(word.since):
            self._lease.heard(word.number - word.since[self._number])
        if self._here is not None and word.interval_s <= _SHORT_S:  # in step with the words: what goes with the answer
            was_just_now = self._sample_s - heard_s > word.interval_s / 2  # is of now, on all nodes
            self._sample_s = heard_s + (word.interval_s if was_just_now else 0.0)
            self.due()
        self._lease.answer(word.number, heard_s)
        said_s = self._clock.now()
        self._say(HeartbeatReply(number=word.number, heard_s=heard_s, said_s=said_s, put_backs=self._put_backs))

    def _do(self, do: Command) -> None:
        if self._done is not None and do.number <= self._done.number:
            if do.number == self._done.number:
                self._say(self._done)
            return
        now_s = self._clock.now()
        if do.what is CommandKind.SET and (self._lease.is_lapsed(now_s) or now_s < self._still_s):
            return  # who can hear us asks again
        self._done = self._attempt(do)
        self._say(self._done)

    def _attempt(self, do: Command) -> Done:
        restored: tuple[Restored, ...] = ()
        try:
            match do.what:
                case CommandKind.REHEARSE:
                    self._ready().rehearse()
                case CommandKind.SET:
                    self._again_s, here = None, self._ready()
                    self._is_set, self._caps_w = True, do.caps_w
                    here.set_caps(do.caps_w)
                case CommandKind.RESTORE:
                    restored = self._put_all_back()
                case CommandKind.END:
                    restored = self._put_all_back()
                    self.is_leaving = True
                case _:
                    assert_never(do.what)
        except Exception as error:  # noqa: BLE001 - the controller is to know, whatever it is
            return Done(number=do.number, fault=_fault(error), why=str(error) or type(error).__name__)
        return Done(number=do.number, restored=restored)

    def _settle(self, asked: Settle) -> None:
        from autocap.plugins.fleet.nodes.agent.settling import settled

        try:
            self._say(Done(number=0, restored=settled(asked, self._clock)))
            self.is_leaving = True
        except Exception as error:  # noqa: BLE001 - the controller is to know, whatever it is
            self.fail(error)

    def _ready(self) -> "NodeJob":
        if self._here is None:
            raise GuardError("the job's devices are not known on this node yet, so no limit is set there")
        if self._job_ended:
            raise GuardError("the job has ended on this node, so no limit is set there any more")
        return self._here

    def _put_all_back(self) -> tuple[Restored, ...]:
        self._again_s, self._caps_w = None, ()
        restored = () if self._here is None else self._here.restore()
        self._is_set = any(one.failure is not None for one in restored)
        if self._is_set:
            self._again_s = self._clock.now() + times.PUT_BACK_AGAIN_S
        return restored

    def _do_what_is_due(self) -> None:
        now_s = self._clock.now()
        if self._here is not None and now_s + _EARLY_S >= self._beat_s:  # before anything that may take long
            self._beat(self._here, now_s)
        if self._lease.lapses(now_s) and self._is_set:
            self._put_all_back()
            self._put_backs += 1
        if self._lease.is_over(now_s):
            self.is_alone = True
            self.leave()
            return
        if self._again_s is not None and now_s >= self._again_s:
            self._put_all_back()
        if self._preparation is not None and now_s >= self._preparation.next_s:
            self._prepare(self._preparation)
        elif self._here is not None:
            self._look_after(self._here, now_s)

    def _beat(self, here: "NodeJob", now_s: float) -> None:
        self._beat_s = now_s + times.BEAT_APART_S
        self._put_backs += here.beat()

    def _prepare(self, preparation: "Preparation") -> None:
        self._here = preparation.step()
        if self._here is None:
            return
        self._preparation = None
        self._say(self._here.found())
        now_s = self._clock.now()
        self._sample_s = self._beat_s = self._look_s = self._seen_s = self._send_s = now_s

    def _look_after(self, here: "NodeJob", now_s: float) -> None:
        if not self._job_ended and now_s + _EARLY_S >= self._look_s:
            self._look_s = now_s + _LOOK_S
            self._look(here, now_s)
        if now_s >= self._sample_s:
            self._rows.append(row := here.read(counted=self._word.counted))
            if self._strays(row):  # who guards the limits knows whether it was they who put one back
                self._beat(here, now_s)
            for note in here.notes():
                self.note(note)
            self._sample_s += self._word.interval_s
            if self._sample_s < (now_s := self._clock.now()):  # late by a whole interval: skip
                self._sample_s = now_s + self._word.interval_s
        if self._rows and now_s + _EARLY_S >= self._send_s:
            self._send_s = now_s + (_SOON_S if self._word.interval_s <= _SHORT_S else _LATER_S)
            self._say(Rows(first=self._first, rows=tuple(self._rows), put_backs=self._put_backs))
            self._first += len(self._rows)
            self._rows = []

    def _strays(self, row: Row) -> bool:
        """Whether a limit is another than should hold."""
        return any(
            one.requested_w is not None and not same_limit(one.requested_w, cap_w)
            for one, cap_w in zip(row.readings, self._caps_w, strict=False)
        )

    def _look(self, here: "NodeJob", now_s: float) -> None:
        if here.job.is_there():
            self._seen_s = now_s
        elif now_s - self._seen_s >= times.JOB_GONE_S:
            self._job_ended = True
            self._say(JobEnded(restored=self._put_all_back()))


def _fault(error: Exception) -> Fault:
    from autocap.limits import ForeignLimit

    match error:
        case LimitNotPermitted():
            return Fault.NOT_PERMITTED
        case LimitRefused():
            return Fault.REFUSED
        case ForeignLimit():
            return Fault.FOREIGN
    return Fault.GUARD
