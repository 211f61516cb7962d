"""A step that Slurm does not take as its controller has just begun anew is tried again, and told what was said."""

from collections.abc import Sequence

import pytest

from autocap.plugins.fleet.nodes.channel import FOR_S, EngineJob, RetriedChannels
from autocap.plugins.fleet.nodes.protocol import FromAgent, Hello, Lost, Message, Word

JOB = EngineJob(id="7", nodes=("node1", "node2"))
NO_MEMORY = "srun has ended with status 1: srun: error: Unable to create step: Memory required by task is not available"
HELLO = Hello(version=1, autocap_version="", node="node1", pid=1, boot_id="", clock_id="")
WORD = Word(number=1, interval_s=0.1, counted=True)


class Step:
    """One that is refused with a reason, says nothing where that is empty, or begins where there is none."""

    job, descriptors, pids = JOB, (), ()

    def __init__(self, why: str | None) -> None:
        self._heard: list[tuple[int, FromAgent]] = [(0, HELLO)] if why is None else [(0, Lost(why=why))] if why else []
        self.said: list[Message] = []
        self.left = False

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        self.said.append(message)

    def receive(self) -> list[tuple[int, FromAgent]]:
        heard, self._heard = self._heard, []
        return heard

    def leave(self) -> None:
        self.left = True


class Trial:
    """Looks every quarter of a second, until something is heard."""

    def __init__(self, *whys: str | None) -> None:
        self.now_s, self._whys = 0.0, list(whys)
        self.steps: list[Step] = []
        self.told: list[str] = []
        self.channel = RetriedChannels(self._opened, JOB, lambda: self.now_s, self.told.append)  # type: ignore[arg-type]
        self.channel.send(WORD)
        self.heard: list[tuple[int, FromAgent]] = []
        while not self.heard and self.now_s < 2 * FOR_S:
            self.now_s += 0.25
            self.heard = self.channel.receive()

    def _opened(self) -> list[Step]:
        self.steps.append(Step(self._whys.pop(0) if len(self._whys) > 1 else self._whys[0]))
        return self.steps[-1:]


@pytest.mark.parametrize(("first", "within_s"), [(NO_MEMORY, 3.0), ("", 16.0)])
def test_it_is_tried_again_and_said_once(first: str, within_s: float) -> None:
    trial = Trial(first, NO_MEMORY, None)
    assert trial.heard == [(0, HELLO)]
    assert trial.now_s <= within_s
    assert [step.left for step in trial.steps] == [True, True, False]
    assert trial.steps[-1].said == [WORD]
    assert len(trial.told) == 1
    assert trial.told[0].endswith("; it is tried again for a minute")


def test_after_a_minute_it_is_lost_with_the_last_reason() -> None:
    trial = Trial(NO_MEMORY)
    assert trial.heard == [(0, Lost(why=NO_MEMORY))]
    assert FOR_S <= trial.now_s <= FOR_S + 2


def test_what_passes_not_is_told_at_once() -> None:
    trial = Trial("srun has ended with status 1: Access/permission denied")
    assert (trial.now_s, trial.told) == (0.25, [])
