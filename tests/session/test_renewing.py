"""One refusal by a neighbour costs a job no more of its tuning than it lasts: it is asked again, ever less often."""

from dataclasses import dataclass, field, replace

import pytest

from autocap import errors, events
from autocap.clock import VirtualClock
from autocap.controller.context import Action, SetCaps
from bench.faults.virtual import ARRIVALS_MW, play, usual
from tests.session.test_runner import Loop

LONG = replace(usual(), iterations=2400)
LENT = "gpu is lent to ada (PID 7); wait for it, or have that end"
TOLD = f"the job runs untuned for now: {LENT}; it is asked again in 30 s, and then ever less often"


@pytest.mark.parametrize(
    "kind", [errors.ActuatorDenied, errors.DeviceLocked, errors.DeviceShared, errors.LimitWithheld]
)
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
