"""Guards the limits of all nodes at once.

Each agent has a guardian of its own, which puts the limits back whatever becomes of us or of the way to it. Here they
are told to set and to restore, and asked whether they live; once one of them does not, the tuning ends on all. While
one of them is not heard, all limits are as they were found.

Where agents are gone, new agents on their nodes put back what is left, and read. Slurm kills an agent together with its
watchdog where it kills a step as a whole, and then nobody is left on the node."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import islice

from autocap.clock import RunClock
from autocap.errors import EngineUnavailable, GuardError, LimitNotPermitted, LimitRefused
from autocap.limits import Restored
from autocap.limits.guard import PeerGuardian
from autocap.limits.times import BEGINNING_S, DEED_WITHIN_S, LOST_S, SETTLED_WITHIN_S
from autocap.plugins.fleet.nodes.agent_pool import AgentPool, Channel
from autocap.plugins.fleet.nodes.agents import Agent
from autocap.plugins.fleet.nodes.protocol import CommandKind, Done, Failed, Fault, Lost, Settle, Target

Reopen = Callable[[Sequence[str]], Channel]  # the way to new agents on some of the job's nodes, by their names
_LOOK_S = 0.02
_ERRORS = {Fault.REFUSED: LimitRefused, Fault.NOT_PERMITTED: LimitNotPermitted}  # any other is a GuardError


def settled(
    gone: Sequence[Agent], target: Target, reopen: Reopen, clock: RunClock, pause: Callable[[float], object]
) -> Mapping[int, tuple[Restored, ...]]:
    """What became of the limits of some agents' nodes, by the agents' numbers; those of which nothing is known are left
    out. Waits for it."""
    known: dict[int, tuple[Restored, ...]] = {}
    left = dict(enumerate(gone))
    try:
        channel = reopen([agent.name for agent in gone])
    except EngineUnavailable:
        return known
    with closing(channel):
        for place, agent in left.items():
            assert agent.found is not None  # its limits could not have been set else
            uuids = tuple(gpu.uuid for gpu in agent.found.gpus)
            order = Settle(target=target, kind=agent.found.kind, uuids=uuids, original_w=agent.found.original_w)
            channel.send(order, (place,))
        end_s = clock.now() + SETTLED_WITHIN_S
        while left and clock.now() < end_s:
            try:
                heard = channel.receive()
            except EngineUnavailable:
                break
            for place, message in heard:
                if isinstance(message, Done) and place in left:
                    known[left[place].number] = message.restored
                if isinstance(message, Done | Failed | Lost):
                    left.pop(place, None)
            pause(_LOOK_S)
    return known


class ClusterGuardian(PeerGuardian):
    """fleet: whose agents have all found their devices, and guard them. look: what became of the limits of nodes whose
    agents are gone, by their numbers; waits for it."""

    def __init__(
        self, fleet: AgentPool, look: Callable[[Sequence[Agent]], Mapping[int, tuple[Restored, ...]]] = lambda gone: {}
    ) -> None:
        every = fleet.found or ()
        super().__init__([gpu.uuid for found in every for gpu in found.gpus])
        self.original_w = tuple(limit_w for found in every for limit_w in found.original_w)
        self._fleet, self._look = fleet, look
        self._gave_up = self._is_ending = False
        self._late_s: float | None = None  # since when a cap is not set, as an agent that speaks has not answered
        fleet.guarded, self._is_paused = True, False  # paused: as an agent is not heard

    def _end(self) -> None:
        self._fleet.do(CommandKind.END, to=self._fleet.reachable)

    def rehearse(self) -> None:
        self._carry_out(CommandKind.REHEARSE)

    def _set(self, caps_w: tuple[float, ...]) -> None:
        left_w = iter(caps_w)
        sizes = ((agent.number, 0 if agent.found is None else len(agent.found.gpus)) for agent in self._fleet.agents)
        self._carry_out(CommandKind.SET, {number: tuple(islice(left_w, size)) for number, size in sizes})

    def _listen(self) -> bool:
        """Once the job has ended on a node, the limits of the others are put back, for good; while an agent is not
        heard, they are as well."""
        self._fleet.tend()
        trouble = self._fleet.trouble
        if trouble is None and self._fleet.ending and not self._is_ending:
            self._is_ending = True
            self._fleet.do(CommandKind.RESTORE, to=self._fleet.reachable)
        if trouble is not None and not self._gave_up:
            self._gave_up = True
            raise GuardError(trouble)
        if self._gave_up or self._is_ending:
            return False
        self._pause()
        if self._is_paused:
            return False
        self._put_back, self._fleet.was_put_back = self._fleet.was_put_back, False
        return True

    def restore(self) -> tuple[Restored, ...]:
        """Have all limits put back; what became of each. Where an agent is gone, its node is looked at anew."""
        fleet = self._fleet
        if (trouble := fleet.trouble) is None:
            answers = fleet.do(CommandKind.RESTORE, to=fleet.reachable)
        else:
            self._gave_up = True
            answers = fleet.end(trouble)
            for number, answer in answers.items():
                fleet.agents[number].restored = answer.restored or fleet.agents[number].restored
            gone = [agent for agent in fleet.agents if not agent.restored]
            for number, restored in (self._look(gone) if gone else {}).items():
                fleet.agents[number].restored = restored
        return tuple(
            one
            for agent in fleet.agents
            for one in _restored(agent, answers.get(agent.number), is_asked=fleet.over is None)
        )

    def _pause(self) -> None:
        """While agents are not heard, have the limits of all others put back."""
        fleet, was_paused = self._fleet, self._is_paused
        self._is_paused = bool(fleet.unheard)
        if self._is_paused and not was_paused:
            fleet.do(CommandKind.RESTORE, to=[number for number in fleet.reachable if number not in fleet.unheard])

    def _carry_out(self, what: CommandKind, caps_w: Mapping[int, tuple[float, ...]] | None = None) -> None:
        fleet = self._fleet
        every = [agent.number for agent in fleet.agents if agent.ended_s is None]
        if self._is_ending:
            raise GuardError("the job has ended on a node, so no limit is set on the others any more")
        if what is CommandKind.SET and self._is_paused:  # it is asked for again once they are heard
            return
        within_s = DEED_WITHIN_S if what is CommandKind.SET else BEGINNING_S
        answers = fleet.do(what, caps_w, to=every, within_s=within_s)
        if fleet.merger is not None:
            fleet.merger.drop_before(fleet.now())
        late = [
            agent
            for agent in (fleet.agents[number] for number in every)
            if agent.number not in answers and agent.gone is None and agent.ended_s is None
        ]
        if what is CommandKind.SET and late and fleet.trouble is None and self._is_put_off(late):
            return
        self._late_s = None
        for agent in (fleet.agents[number] for number in every):
            answer = answers.get(agent.number)
            if agent.ended_s is not None:  # meanwhile: its limits are back
                continue
            if answer is None:
                why = agent.gone or "its agent has not answered in time"
                raise GuardError(f"{agent.name}: {why}; the limits of all nodes are put back")
            if answer.fault is not None:
                raise _ERRORS.get(answer.fault, GuardError)(f"{agent.name}: {answer.why}")

    def _is_put_off(self, late: Sequence[Agent]) -> bool:
        """Have caps that some agents have not set in time set again once heard; where they are, for a minute."""
        fleet = self._fleet
        if silent := [agent.number for agent in late if agent.number in fleet.silent]:
            fleet.wait_for(silent)
            self._pause()
            return True
        self._late_s = fleet.now() if self._late_s is None else self._late_s
        if fleet.now() - self._late_s >= LOST_S:
            return False
        names = ", ".join(agent.name for agent in late)
        fleet.note(
            f"{names}: a cap was not set within {DEED_WITHIN_S:g} s; the limits of all nodes were put back, to try "
            "again"
        )
        fleet.do(CommandKind.RESTORE, to=fleet.reachable)
        fleet.was_put_back = True  # as if: caps are to be set once more
        return True


def _restored(agent: Agent, answer: Done | None, *, is_asked: bool) -> tuple[Restored, ...]:
    """What became of the limits of one node. is_asked: whether it can be asked again."""
    if answer is not None and answer.restored:
        return answer.restored
    if agent.restored:
        return agent.restored
    is_asked = is_asked and agent.gone is None and agent.ended_s is None
    assert agent.found is not None
    failure = ((answer and answer.why) or f"{agent.name} has not answered") if is_asked else None
    note = f"{agent.name} puts back its limits by itself; what became of them is not known here"
    return tuple(
        Restored(
            uuid=gpu.uuid,
            original_w=limit_w,
            final_w=None,
            restored=False if is_asked else None,
            note=note if number == 0 else None,  # once a node
            failure=failure,
        )
        for number, (gpu, limit_w) in enumerate(zip(agent.found.gpus, agent.found.original_w, strict=True))
    )
