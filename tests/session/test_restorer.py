"""A limit that cannot be put back is tried again while the job goes on, and the run log says what became of it."""

from dataclasses import dataclass, field, replace

import pytest

from autocap.errors import GuardError
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits import Restored
from autocap.session.guarding import Restorer
from autocap.testing.nvml import Fault
from autocap.testing.nvml.machine import LOST
from bench.faults.virtual import Report, play, usual

LOST_AT_S, BACK_AT_S = 14.0, 16.0
FAILED = Restored(uuid="GPU-1", original_w=260.0, final_w=None, restored=False, note="no", failure="it is lost")
BACK = Restored(uuid="GPU-1", original_w=260.0, final_w=260.0, restored=True)
FOREIGN = Restored(uuid="GPU-1", original_w=260.0, final_w=210.0, restored=False, note="GPU-1: 210 W is somebody's")
OTHER = Restored(uuid="GPU-0", original_w=250.0, final_w=250.0, restored=True)


@dataclass
class Limits:
    """Gives those answers one after the other, the last one for ever."""

    answers: list[tuple[Restored, ...] | Exception | None]
    asked_s: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    now_s: float = 0.0

    def restore(self) -> tuple[Restored, ...] | None:
        self.asked_s.append(self.now_s)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def play(self, until_s: float, knob: Knob = POWER_LIMIT) -> None:
        """Ask for it at 0 s, then look every 0.1 s."""
        restorer = Restorer(self, lambda _t_s, text: self.said.append(text), knob)
        restorer.restore(0.0)
        for tick in range(round(10 * until_s)):
            self.now_s = tick / 10
            restorer.due(self.now_s)


def test_what_goes_back_at_once_is_not_tried_again_and_not_spoken_of():
    for answer in ((OTHER, BACK), (OTHER, FOREIGN), (), None):
        limits = Limits([answer])
        limits.play(300.0)
        assert (limits.asked_s, limits.said) == ([0.0], [])


def test_a_limit_that_is_refused_is_tried_at_growing_intervals_up_to_a_minute():
    limits = Limits([(OTHER, FAILED)])
    limits.play(300.0)
    assert limits.asked_s == pytest.approx([0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 123.5, 183.5, 243.5])
    assert limits.said == ["the limit of GPU-1 could not be put back yet (it is lost); it is tried again until it is"]


@pytest.mark.parametrize(
    ("after", "said"),
    [(BACK, "the limit of GPU-1 was put back after all: it is at 260 W again"), (FOREIGN, FOREIGN.note)],
)
def test_what_became_of_it_is_said_once_and_then_it_is_left_alone(after, said):
    limits = Limits([(OTHER, FAILED), (OTHER, FAILED), (OTHER, after)])
    limits.play(60.0)
    assert limits.asked_s == [0.0, 0.5, 1.5]
    assert limits.said[1:] == [said]


def test_a_guardian_that_fails_is_asked_again_too():
    limits = Limits([GuardError("no"), GuardError("no"), (BACK,)])
    limits.play(60.0)
    assert (limits.asked_s, limits.said) == ([0.0, 0.5, 1.5], ["the limits could not be put back yet: no"])


def _lost_and_back() -> Report:
    fault = Fault(code=LOST, times=None, gpu=1)

    def inject(stage):
        stage.clock.at(LOST_AT_S, lambda: stage.fail(fault))
        stage.clock.at(BACK_AT_S, stage.answer)

    return play(usual(), inject)


def test_a_gpu_that_is_lost_for_two_seconds_has_its_limit_back_soon_after_and_the_other_one_at_once():
    report = _lost_and_back()
    last_s = {gpu: max(t_s for t_s, one, _ in report.sets if one == gpu) for gpu in (0, 1)}
    assert report.limits_mw == report.expected_mw
    assert LOST_AT_S < last_s[0] < LOST_AT_S + 1.0
    assert BACK_AT_S < last_s[1] < BACK_AT_S + 3.0
    assert report.end_s > last_s[1] + 3.0  # not at the end of the job
    assert any("could not be put back yet" in text for text in report.said)
    assert any("was put back after all" in text for text in report.said)
    assert (report.status, report.raised, report.left_behind) == (0, None, ())


def test_another_knob_is_said_in_its_own_words():
    limits = Limits([(FAILED,), (replace(BACK, final_w=1.0),)])
    mode = Knob(name="mode", values=(0, 1, 2), labels=("quiet", "even", "eager"), faster=None)
    limits.play(60.0, mode)
    assert limits.said == [
        "the mode of GPU-1 could not be put back yet (it is lost); it is tried again until it is",
        "the mode of GPU-1 was put back after all: it is at even again",
    ]
