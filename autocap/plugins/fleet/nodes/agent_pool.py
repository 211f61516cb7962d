"""The agents of a job's nodes as the controller knows them: what they have said, who is silent, who is gone.

Nothing here waits, but `do`, for answers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Protocol

from autocap.clock import RunClock
from autocap.limits import times
from autocap.plugins.fleet.nodes.agents import Agent, Notes, machine
from autocap.plugins.fleet.nodes.channel import EngineJob
from autocap.plugins.fleet.nodes.protocol import (
    Begin,
    Command,
    CommandKind,
    Done,
    Failed,
    Found,
    Heartbeat,
    HeartbeatReply,
    Hello,
    JobEnded,
    Lost,
    Message,
    Note,
    Rows,
)
from autocap.plugins.fleet.nodes.sample_merger import SampleMerger

_OFTEN_S = 0.1  # samples that are taken so often ask for words as often
_LOOK_S = 0.002  # for an answer
_SURE_S, _SOUND_S = 0.005, 0.02  # clocks that are known so well need no more; an answer is waited for so long
_MOST_WORDS = 64  # unanswered


class Channel(Protocol):
    """Carries messages to the agents and back, and does not wait. job: whose agents they are, once that is known."""

    @property
    def job(self) -> EngineJob | None: ...

    @property
    def descriptors(self) -> Sequence[int]:
        """Those on which the agents may be heard."""

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        """Say something to some agents, or to all."""

    def receive(self) -> Sequence[tuple[int, Message]]:
        """What the agents have said since the last look, each with its number."""

    def leave(self) -> None:
        """End the agents and what carries their messages, and do not wait for it."""

    def close(self) -> None:
        """`leave`, and wait until nothing is left of it."""


class AgentPool:
    """channel: closed by whoever made it. names: of the nodes, by their agents' numbers; none where the channel is yet
    to tell of which job they are. pause: waits for some seconds.

    interval_s, counted: of `Heartbeat`; set them as they change. over: why the agents were ended; from then on nothing
    is said to them or heard of them. guarded: whether limits are set, so that they have to be set again after a
    silence.
    unheard: agents that have said nothing for so long that their limits are put back by themselves, and may yet be
    heard again; none before the first sample. was_put_back: whether an agent has put its limits back, until who guards
    them has taken that up.
    """

    def __init__(
        self,
        channel: Channel,
        clock: RunClock,
        names: Sequence[str],
        *,
        pause: Callable[[float], object],
        here: tuple[str, str] | None = None,
    ) -> None:
        self._channel, self._clock, self._pause = channel, clock, pause
        self._here = machine() if here is None else here
        now_s = clock.now()
        self.agents = [Agent(number=number, name=name, said_s=now_s) for number, name in enumerate(names)]
        self.interval_s, self.counted = 0.1, True
        self.merger: SampleMerger | None = None  # once all have found their devices
        self._begun = False
        self._numbers = count(1)
        self._words: dict[int, float] = {}
        self._last_word: tuple[float, bool] | None = None
        self._next_word_s = self._tended_s = now_s
        self.was_put_back = self.guarded = False
        self.unheard: dict[int, float] = {}  # when each had last said anything
        self._notes = Notes()
        self.over: str | None = None
        self._last_answers: dict[int, Done] = {}
        self._patience_s = times.BEGINNING_S

    def begin(self, begin: Begin) -> None:
        """Have all look for their devices; said once."""
        if not self._begun and self.agents:
            self._begun = True
            self._channel.send(begin)
            for agent in self.agents:
                agent.said_s = self._clock.now()

    def expect_rows(self) -> None:
        """Whoever says nothing for STALLED_S from now on is stalled."""
        if self._patience_s != times.STALLED_S:
            self._patience_s, now_s = times.STALLED_S, self._clock.now()
            for agent in self.agents:
                agent.said_s = now_s

    @property
    def job(self) -> str | None:
        """The job's id, once it is known."""
        return None if self._channel.job is None else self._channel.job.id

    def held(self, agent: Agent) -> int | None:
        """How many GPUs its engine says the job was given on an agent's node; `None` where it does not."""
        return None if self._channel.job is None else self._channel.job.held(agent.name)

    @property
    def found(self) -> tuple[Found, ...] | None:
        """What all agents have found; `None` until all have."""
        found = tuple(agent.found for agent in self.agents if agent.found is not None)
        return found if found and len(found) == len(self.agents) else None

    @property
    def trouble(self) -> str | None:
        """Why the job cannot be tuned any more on all its nodes; `None` while it can."""
        if self.over is not None:
            return self.over
        now_s = self._clock.now()
        for agent in self.agents:
            if agent.ended_s is not None:
                continue
            if agent.gone is not None:
                return f"{agent.name}: {agent.gone}"
            patience_s = times.BEGINNING_S if self._patience_s == times.BEGINNING_S else times.LOST_S
            if self._silence_s(agent) > patience_s:
                return (
                    f"nothing was heard from {agent.name} for {patience_s:g} s, so its limits are put back by "
                    "itself, and those of the other nodes as well"
                )
        for agent in self.agents:
            if agent.ended_s is not None and now_s - agent.ended_s > times.JOB_ENDING_S and not self.ended:
                return f"the job's processes on {agent.name} have ended, on other nodes they have not"
        return None

    @property
    def ending(self) -> bool:
        """Whether the job's processes have ended on a node: what the others do is no training in lock step any more."""
        return any(agent.ended_s is not None for agent in self.agents)

    @property
    def ended(self) -> bool:
        """Whether the job's processes have ended on all nodes."""
        return bool(self.agents) and all(agent.ended_s is not None for agent in self.agents)

    @property
    def silent(self) -> frozenset[int]:
        """Agents from which no rows are to be waited for."""
        return frozenset(
            agent.number
            for agent in self.agents
            if agent.gone is not None or agent.ended_s is not None or self._silence_s(agent) > times.NODE_SILENT_S
        )

    def wait_for(self, numbers: Iterable[int]) -> None:
        """Hold these for unheard, until they say something."""
        for number in numbers:
            self.unheard.setdefault(number, self.agents[number].said_s)

    def tend(self) -> None:
        """Take in what was said, and say a word where it is time to."""
        if self.over is not None:
            return
        now_s = self._clock.now()
        away = now_s - self._tended_s > times.AWAY_S
        self._listen()
        if away:  # it was we who were
            for agent in self.agents:
                agent.said_s = max(agent.said_s, now_s)
        self._tended_s = now_s
        self._see_who_is_silent()
        if self.agents and (now_s >= self._next_word_s or self._last_word != (self.interval_s, self.counted)):
            self._say_word(now_s)
            self._sound(now_s)

    def do(
        self,
        what: CommandKind,
        caps_w: Mapping[int, tuple[float, ...]] | None = None,
        *,
        to: Sequence[int],
        within_s: float = times.DEED_WITHIN_S,
    ) -> dict[int, Done]:
        """Have some agents do something, and ask again until each has answered or it takes too long; the answers.

        caps_w: of SET, watts, by agent.
        """
        if self.over is not None:
            return {}
        number = next(self._numbers)
        orders = [
            (Command(number=number, what=what, caps_w=caps), [one for one in to if (caps_w or {}).get(one, ()) == caps])
            for caps in sorted({(caps_w or {}).get(one, ()) for one in to})
        ]
        for one in to:
            self.agents[one].done = None
        end_s = self._clock.now() + within_s
        again_s, left = self._clock.now(), set(to)
        while left and (now_s := self._clock.now()) < end_s:
            if now_s >= again_s:
                again_s = now_s + times.DEED_AGAIN_S
                for order, whose in orders:
                    if missing := [one for one in whose if one in left]:
                        self._channel.send(order, missing)
            self._pause(_LOOK_S)
            self.tend()
            left = {one for one in left if self._is_awaited(one, number)}
        answers = {one: self.agents[one].done for one in to}
        return {one: done for one, done in answers.items() if done is not None and done.number == number}

    def end(self, why: str) -> dict[int, Done]:
        """Have all that hear put back and leave, once, and with them what carries the messages; their answers."""
        if self.over is None:
            self._last_answers = self.do(CommandKind.END, to=self.reachable)
            self.over = why
            self._channel.leave()
        return self._last_answers

    @property
    def reachable(self) -> list[int]:
        """Agents that may hear us."""
        return [agent.number for agent in self.agents if agent.gone is None]

    def now(self) -> float:
        """Seconds on the run's clock."""
        return self._clock.now()

    def note(self, text: str) -> None:
        """Let the user know."""
        self._notes.add(text)

    def notes(self) -> tuple[str, ...]:
        """What agents have to say to the user; each is returned once, and what all nodes say in one sentence."""
        may_speak = () if self.over is not None else [agent.name for agent in self.agents if agent.gone is None]
        return self._notes.take(may_speak, self._clock.now())

    def _listen(self) -> None:
        heard = self._channel.receive()
        if not self.agents and self._channel.job is not None:
            now_s, names = self._clock.now(), self._channel.job.nodes
            self.agents = [Agent(number=number, name=name, said_s=now_s) for number, name in enumerate(names)]
        for number, message in heard:
            self._take(self.agents[number], message)

    def _see_who_is_silent(self) -> None:
        if self._patience_s != times.BEGINNING_S:
            self.wait_for(
                agent.number
                for agent in self.agents
                if agent.gone is None and agent.ended_s is None and self._silence_s(agent) > times.STALLED_S
            )
        for number, said_s in list(self.unheard.items()):
            agent = self.agents[number]
            if agent.said_s > said_s or agent.gone is not None:
                del self.unheard[number]
                self.was_put_back |= self.guarded and not self.unheard
                self._notes.add(
                    f"{agent.name}: nothing was heard from its agent for {agent.said_s - said_s:.1f} s"
                    + ("; the limits of all nodes were put back meanwhile" if self.guarded else "")
                )

    def _sound(self, said_s: float) -> None:
        """Wait a moment for the answers of those whose clocks are not known well: one that lies about until the next
        look says little of when it came."""
        unsure = [agent for agent in self.agents if agent.gone is None and agent.offset.error_s(said_s) > _SURE_S]
        while self._clock.now() < said_s + _SOUND_S and any(agent.answered_s < said_s for agent in unsure):
            self._pause(_LOOK_S / 2)
            self._listen()

    def _is_awaited(self, one: int, number: int) -> bool:
        agent = self.agents[one]
        given_up = agent.gone is not None or self._silence_s(agent) > self._patience_s
        return not given_up and (agent.done is None or agent.done.number != number)

    def _silence_s(self, agent: Agent) -> float:
        """For how long an agent has said nothing, while it was looked."""
        return self._tended_s - agent.said_s if agent.found is not None else 0.0

    def _say_word(self, now_s: float) -> None:
        number = next(self._numbers)
        self._last_word = (self.interval_s, self.counted)
        apart_s = times.OFTEN_WORD_S if self.interval_s <= _OFTEN_S else times.WORD_S
        self._next_word_s = max(self._next_word_s + apart_s, now_s + apart_s / 2)  # who looks as often misses none
        self._words[number] = now_s
        if len(self._words) > _MOST_WORDS:
            del self._words[next(iter(self._words))]
        since = tuple(number - agent.answered for agent in self.agents)
        self._channel.send(Heartbeat(number=number, interval_s=self.interval_s, counted=self.counted, since=since))

    def _take(self, agent: Agent, message: Message) -> None:
        now_s = agent.said_s = self._clock.now()
        match message:
            case Hello():
                agent.greet(message, self._here, self._clock.origin_s)
            case Found():
                agent.found = agent.found or message
                if (every := self.found) is not None and self.merger is None:
                    self.merger = SampleMerger([len(each.gpus) for each in every])
            case Rows(first=first, rows=rows, put_backs=put_backs):
                self._note_put_backs(agent, put_backs)
                if self.merger is not None and agent.offset.is_known:
                    self.merger.add(agent.number, first, rows, agent.offset.ahead_s)
            case HeartbeatReply(number=number, heard_s=heard_s, said_s=said_s, put_backs=put_backs):
                self._note_put_backs(agent, put_backs)
                if number in self._words:
                    agent.answered, agent.answered_s = number, self._words[number]
                    agent.offset.exchanged(self._words[number], heard_s, said_s, now_s)
            case Done():
                agent.done = message
            case Note(text=text):
                self._notes.said(agent.name, text, now_s)
            case JobEnded(restored=restored):
                agent.ended_s = now_s if agent.ended_s is None else agent.ended_s
                agent.restored = restored
            case Failed(why=why, restored=restored):
                agent.gone = agent.gone or why
                agent.restored = restored
            case Lost(why=why):
                agent.gone = agent.gone or why
            case _:  # what only agents are told
                pass

    def _note_put_backs(self, agent: Agent, put_backs: int) -> None:
        if put_backs > agent.put_backs:
            agent.put_backs, self.was_put_back = put_backs, True
