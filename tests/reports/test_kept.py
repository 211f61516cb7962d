"""What is kept and gained with a cap per GPU, as results and reports have it."""

from dataclasses import replace

import pytest

from autocap.events import BaselineMeasured, CapSet, Decided, DeviceFound, Event, State, StateEntered, TrialEnded
from autocap.events.search import PerGpuDecided, PerGpuTried
from autocap.records import CapRange, GpuInfo, Measurement
from autocap.reports import text
from autocap.reports.figures.caps import of_run
from autocap.reports.run_document import run_document
from autocap.reports.summary.summarise import summarise
from autocap.reports.wording.events import Wording
from tests.doubles.feeds import measurement, trial_of
from tests.doubles.logs import STARTED

COMMON_W, OWN_W = (200.0, 200.0), (200.0, 180.0)
RANGE = CapRange(min_w=100.0, max_w=260.0, default_w=260.0)
GPUS = tuple(GpuInfo(index=index, uuid=f"GPU-{index}", name="Test", cap_range=RANGE) for index in range(2))


def window(caps_w: tuple[float, ...], energy_j: float, period_s: float) -> Measurement:
    return replace(measurement(energy_j, period_s, energy_error=0.001, period_error=0.001), setting=caps_w)


BASELINE = window((260.0, 260.0), 100.0, 0.5)
TRIAL = trial_of(window(COMMON_W, 80.0, 0.52), 0.9)
DECIDED = Decided(
    t_s=60.0,
    setting=200.0,
    confirmed=True,
    reason="better",
    measurement=window(COMMON_W, 80.0, 0.52),
    baseline=BASELINE,
)
SEARCHED: list[Event] = [
    STARTED,
    DeviceFound(t_s=0.1, kind="simulated", emulated=True, gpus=GPUS, original=(260.0, 260.0)),
    StateEntered(t_s=1.0, state=State.BASELINE),
    BaselineMeasured(t_s=20.0, measurement=BASELINE),
    StateEntered(t_s=20.0, state=State.SEARCHING),
    TrialEnded(t_s=40.0, trial=TRIAL),
    StateEntered(t_s=40.0, state=State.CONFIRMING),
    DECIDED,
    StateEntered(t_s=60.0, state=State.SEARCHING),
]
TRIED = PerGpuTried(
    t_s=90.0,
    setting=OWN_W,
    accepted=True,
    reason="energy -3.00 ± 0.10 %",
    cost=0.88,
    cost_stderr=0.01,
    measurement=window(OWN_W, 77.6, 0.52),
)
KEPT = PerGpuDecided(
    t_s=120.0,
    setting=OWN_W,
    kept=True,
    reason="energy -3.00 ± 0.14 %, time +0.00 ± 0.14 %, against the common cap",
    measurement=window(OWN_W, 78.57, 0.53),  # the machine is slower and warmer by then
    common=window(COMMON_W, 81.0, 0.53),
    as_confirmed=window(OWN_W, 77.6, 0.52),
)
UNDONE = PerGpuDecided(t_s=120.0, setting=COMMON_W, kept=False, reason="no GPU waits")


def test_kept_caps_per_gpu_are_what_is_chosen_and_held_against_the_baseline_of_the_common_cap() -> None:
    summary = summarise([*SEARCHED, TRIED, KEPT])
    assert summary.chosen.setting == OWN_W
    assert summary.versus_baseline.energy_pct == pytest.approx(-22.4)
    assert summary.versus_baseline.time_pct == pytest.approx(4.0)
    assert summary.versus_common.energy_pct == pytest.approx(-3.0)
    assert summary.versus_common.energy_stderr_pct == pytest.approx(0.97 * 0.1 * 2**0.5)
    assert [trial.setting for trial in summary.trials] == [COMMON_W, OWN_W]


def test_where_it_was_undone_the_common_cap_is_chosen_and_nothing_claimed() -> None:
    summary = summarise([*SEARCHED, UNDONE])
    assert summary.chosen.setting == COMMON_W
    assert summary.versus_common.energy_pct is None
    assert "no cap per GPU was kept: no GPU waits" in text.lines(run_document(summary, []))


def test_caps_per_gpu_that_were_looked_at_again_stay_chosen() -> None:
    again = replace(DECIDED, t_s=900.0, reason="still better", measurement=window(OWN_W, 77.0, 0.52))
    summary = summarise([*SEARCHED, KEPT, StateEntered(t_s=880.0, state=State.CONFIRMING), again])
    assert summary.chosen.setting == OWN_W
    assert summary.versus_common is not None
    put_back = replace(again, setting=None, confirmed=False, measurement=None, baseline=None)
    gone = summarise([*SEARCHED, KEPT, put_back])
    assert (gone.chosen, gone.versus_common) == (None, None)


def test_a_job_tuned_anew_claims_nothing_of_the_caps_before() -> None:
    anew = StateEntered(t_s=200.0, state=State.BASELINE)
    assert summarise([*SEARCHED, KEPT, anew]).versus_common is None


def test_the_report_names_every_cap_and_the_saving_over_the_common_one() -> None:
    assert (
        "caps per GPU 200/180 W: energy (emulated) -3.00 ± 0.14 %, time +0.00 ± 0.14 %, eds -1.50 ± 0.10 % per "
        "iteration, against the common cap"
    ) in text.lines(run_document(summarise([*SEARCHED, TRIED, KEPT]), []), width=200)


def test_a_cap_per_gpu_is_no_point_of_the_curve_over_the_common_cap() -> None:
    log = [*SEARCHED, TRIED, KEPT, CapSet(t_s=120.0, setting=OWN_W)]
    curve = of_run(summarise(log), log)
    assert [one.setting for one in curve.measured] == [COMMON_W, (260.0, 260.0)]


def test_each_step_has_a_sentence() -> None:
    words = Wording()
    assert words.line(TRIED) == "200/180 W per GPU: energy -3.00 ± 0.10 %"
    assert words.line(replace(TRIED, accepted=False, reason="slower")) == "200/180 W per GPU: refused: slower"
    kept = words.line(KEPT)
    assert kept.startswith("keeping 200/180 W per GPU, confirmed: energy -3.00 ± 0.14 %")
    assert words.line(UNDONE) == "keeping the common cap of 200 W: no GPU waits"
