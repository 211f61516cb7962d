"""A limit that cannot be put back is tried again while the job goes on, and the run log says what became of it. One
refusal by a neighbour costs a job no more of its tuning than it lasts: it is asked again, ever less often."""

from dataclasses import dataclass, field, replace

import pytest

from autocap import errors, events
from autocap.clock import VirtualClock
from autocap.controller.context import Action, SetCaps
from autocap.errors import GuardError
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits import Restored
from autocap.session.guarding import Restorer
from autocap.testing.nvml import Fault
from autocap.testing.nvml.machine import LOST
from bench.faults.virtual import ARRIVALS_MW, Report, play, usual
from tests.session.test_runner import Loop

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


@pytest.mark.slow
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


LONG = replace(usual(), iterations=2400)
LENT = "gpu is lent to ada (PID 7); wait for it, or have that end"
TOLD = f"the job runs untuned for now: {LENT}; it is asked again in 30 s, and then ever less often"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [errors.SetterDenied, errors.DeviceLocked, errors.DeviceShared, errors.LimitWithheld])
def test_a_job_that_is_refused_at_its_start_is_tuned_once_the_neighbour_has_gone(
    kind: type[errors.AutocapError],
) -> None:
    report = play(LONG, lambda stage: None, refusals=[kind(LENT), kind("another reason")])
    assert report.said == (TOLD, "the limits may be set now, so the job is tuned after all", "the job ended")
    assert report.sets[0][0] > 90.0  # 30 s, and 60 s more
    assert report.limits_mw == ARRIVALS_MW
    assert report.kept_w is not None


def test_a_job_that_ends_before_it_is_lent_to_says_who_had_the_device() -> None:
    report = play(LONG, lambda stage: None, refusals=[errors.DeviceLocked(LENT)] * 100)
    assert (report.said, report.sets) == ((TOLD, LENT), ())
    assert (report.status, report.ended) == (0, True)


def test_what_no_time_mends_is_not_asked_again() -> None:
    report = play(LONG, lambda stage: None, refusals=[errors.LimitRefused("it takes none")])
    assert (report.said, report.sets) == (("the job runs untuned: it takes none", "it takes none"), ())


@dataclass
class Lent(Loop):
    """A loop whose limits are lent. ends_s: when leases end, or sets are denied. refused: what each asking for another
    raises."""

    renewable: bool = True
    ends_s: list[float] = field(default_factory=list)
    by: type[errors.AutocapError] = errors.LeaseEnded
    refused: list[Exception] = field(default_factory=list)

    def beat(self) -> bool:
        if self.ends_s and self.clock.now() >= self.ends_s[0]:
            self.ends_s.pop(0)
            raise self.by(f"the lease has ended: {LENT}")
        return False

    def renew(self) -> None:
        self.note("renew")
        if self.refused:
            raise self.refused.pop(0)

    def withhold(self, t_s: float) -> list[Action]:
        self.note("withhold")
        return []

    def lent_again(self, t_s: float) -> list[Action]:
        self.note("lent again")
        return [SetCaps(settings=self.settings)]

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.log if isinstance(event, events.Warned)]

    @property
    def done(self) -> list[str]:
        return [what for what, _ in self.story if what in ("renew", "withhold", "lent again", "set", "stop", "restore")]


@pytest.mark.slow
@pytest.mark.parametrize("by", [errors.LeaseEnded, errors.LimitWithheld])
def test_a_lease_that_ends_in_the_middle_is_asked_for_again_at_growing_intervals(by: type[errors.AutocapError]) -> None:
    refused = [errors.DeviceLocked("still"), errors.LimitWithheld("still")]
    loop = Lent(VirtualClock(), ends_s=[5.0], end_s=400.0, by=by, refused=refused)
    loop.run()
    assert loop.said == [
        TOLD.replace(LENT, f"the lease has ended: {LENT}"),
        "the limits are lent again; tuning goes on",
    ]
    assert loop.times("renew") == pytest.approx([35.0, 95.0, 215.0], abs=1.0)
    assert loop.done == ["withhold", "renew", "renew", "renew", "lent again", "set"]


def test_the_same_reason_is_said_once() -> None:
    loop = Lent(VirtualClock(), ends_s=[5.0, 50.0], end_s=100.0)
    loop.run()
    assert [text.startswith("the job runs untuned for now") for text in loop.said] == [True, False, False]


def test_where_another_limit_is_found_by_then_the_tuning_ends() -> None:
    loop = Lent(VirtualClock(), ends_s=[5.0], end_s=100.0, refused=[errors.GuardError("somebody else has changed it")])
    loop.run()
    assert loop.said[-1] == "tuning ended, the job goes on: somebody else has changed it"
    assert loop.done == ["withhold", "renew", "stop", "restore"]


def test_what_a_neighbour_sets_meanwhile_is_not_taken_for_a_change_of_ours() -> None:
    loop = Lent(VirtualClock(), ends_s=[5.0], end_s=60.0, changed_at_s=10.0, refused=[errors.DeviceLocked("still")] * 9)
    loop.run()
    assert len(loop.said) == 1
