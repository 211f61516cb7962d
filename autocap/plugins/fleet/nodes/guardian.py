"""Guards the limits of all nodes at once: to a session what `autocap.limits.Guardian` is.

Each agent has a guardian of its own, which puts the limits back whatever becomes of us or of the way to it. Here they
are told to set and to restore, and asked whether they live; once one of them does not, the tuning ends on all. While
one of them is not heard, all limits are as they were found.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Self

from autocap.errors import GuardError, LimitNotPermitted, LimitRefused
from autocap.limits import Restored
from autocap.limits.times import BEGINNING_S, DEED_WITHIN_S, LOST_S
from autocap.plugins.fleet.nodes.agents import Agent
from autocap.plugins.fleet.nodes.fleet import Fleet
from autocap.plugins.fleet.nodes.protocol import Deed, Done, Fault

_ERRORS = {Fault.REFUSED: LimitRefused, Fault.NOT_PERMITTED: LimitNotPermitted}  # any other is a GuardError


class ClusterGuardian:
    """fleet: whose agents have all found their devices, and guard them. look: what became of the limits of nodes whose
    agents are gone, by their numbers; waits for it."""

    def __init__(
        self, fleet: Fleet, look: Callable[[Sequence[Agent]], Mapping[int, tuple[Restored, ...]]] = lambda gone: {}
    ) -> None:
        self._fleet, self._look = fleet, look
        self._found = fleet.found or ()
        self._gave_up = self._is_ending = False
        self._late_s: float | None = None  # since when a cap is not set, as an agent that speaks has not answered
        fleet.guarded, self._is_paused = True, False  # paused: as an agent is not heard

    @property
    def original_w(self) -> tuple[float | None, ...]:
        """The limits found on arrival, watts, node by node."""
        return tuple(limit_w for found in self._found for limit_w in found.original_w)

    @property
    def notes(self) -> tuple[str, ...]:
        """They come with the samples."""
        return ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._fleet.do(Deed.END, to=self._fleet.reachable)

    def rehearse(self) -> None:
        """Have the limits requested that are there already. Raises as `set_caps`."""
        self._carry_out(Deed.REHEARSE, self.original_w)

    def set_caps(self, caps_w: Sequence[float]) -> None:
        """Have a cap requested of each device, watts, and see that it holds.

        Raises LimitRefused where a device does not take it, GuardError where it cannot be guarded, somebody else has
        changed a limit, or an agent does not answer.
        """
        self._carry_out(Deed.SET, caps_w)

    def beat(self) -> bool:
        """Say a word to all agents; whether limits were put back since the last time. Once the job has ended on a node,
        those of the others are put back, for good; while an agent is not heard, they are as well.

        Raises GuardError, once, where one of them is gone.
        """
        self._fleet.tend()
        trouble = self._fleet.trouble
        if trouble is None and self._fleet.ending and not self._is_ending:
            self._is_ending = True
            self._fleet.do(Deed.RESTORE, to=self._fleet.reachable)
        if trouble is not None and not self._gave_up:
            self._gave_up = True
            raise GuardError(trouble)
        if self._gave_up or self._is_ending:
            return False
        self._pause()
        return not self._is_paused and self._fleet.take_put_back()

    def restore(self) -> tuple[Restored, ...]:
        """Have all limits put back; what became of each. Where an agent is gone, its node is looked at anew."""
        fleet = self._fleet
        if (trouble := fleet.trouble) is None:
            answers = fleet.do(Deed.RESTORE, to=fleet.reachable)
        else:
            self._gave_up = True
            answers = fleet.end(trouble)
            gone = [agent for agent in fleet.agents if not (_answered(answers, agent) or agent.restored)]
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
            fleet.do(Deed.RESTORE, to=[number for number in fleet.reachable if number not in fleet.unheard])

    def _carry_out(self, what: Deed, caps_w: Sequence[float | None]) -> None:
        fleet, at, caps = self._fleet, 0, {}
        for agent, found in zip(fleet.agents, self._found, strict=True):
            size = len(found.gpus)
            caps[agent.number] = tuple(cap_w for cap_w in caps_w[at : at + size] if cap_w is not None)
            at += size
        if at != len(caps_w):
            raise ValueError(f"{len(caps_w)} caps for {at} guarded devices")
        every = [agent.number for agent in fleet.agents if agent.ended_s is None]
        if self._is_ending:
            raise GuardError("the job has ended on a node, so no limit is set on the others any more")
        if what is Deed.SET and self._is_paused:  # it is asked for again once they are heard
            return
        within_s = DEED_WITHIN_S if what is Deed.SET else BEGINNING_S
        answers = fleet.do(what, caps if what is Deed.SET else None, to=every, within_s=within_s)
        if fleet.joiner is not None:
            fleet.joiner.drop_before(fleet.now())
        late = [
            agent
            for agent in (fleet.agents[number] for number in every)
            if agent.number not in answers and agent.gone is None and agent.ended_s is None
        ]
        if what is Deed.SET and late and fleet.trouble is None and self._is_put_off(late):
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
        fleet.do(Deed.RESTORE, to=fleet.reachable)
        fleet.ask_again()
        return True


def _answered(answers: Mapping[int, Done], agent: Agent) -> tuple[Restored, ...]:
    return answers[agent.number].restored if agent.number in answers else ()


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
