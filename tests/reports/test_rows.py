"""What stands in a row is held against the baseline of its time, and what is said of a run agrees with its rows."""

from dataclasses import replace

import pytest

from autocap.events import BaselineMeasured, Decided, State, StateEntered, TrialStarted, Warned
from autocap.events.run import MetricInfo
from autocap.metrics import Rates
from autocap.reports.document import Table
from autocap.reports.rendering import present_run
from autocap.reports.run_document import run_document
from autocap.reports.summary.summarise import summarise
from autocap.reports.wording import run as wording
from autocap.reports.wording.events import Wording
from autocap.reports.wording.headline import headline
from tests.doubles.logs import status_after, until
from tests.doubles.told import FIRST, IN_TURN, SECOND, tally, told


def table(events: list) -> Table:
    return next(one for one in run_document(summarise(events), events).tables if one.heading == "Measured caps")


def test_energy_time_and_cost_of_a_row_are_against_the_same_baseline() -> None:
    base: tuple[float, float] | None = None
    for row in table(told()).rows:
        _, _, seconds, joules, energy, time, cost, remark = row
        if seconds == "–":
            continue
        period_s, energy_j = float(seconds.split()[0]), float(joules.split()[0])
        if remark.startswith("baseline"):
            base = period_s, energy_j
        assert float(energy) == pytest.approx(100 * (energy_j / base[1] - 1), abs=0.06)
        assert float(time) == pytest.approx(100 * (period_s / base[0] - 1), abs=0.06)
        eds = 1 + (float(energy) + float(time)) / 200
        assert float(cost.split()[0]) == pytest.approx(eds, abs=0.001), "as half the energy and half the time"


def test_a_job_tuned_anew_has_its_new_baseline_between_the_rows_and_shows_what_its_last_search_kept() -> None:
    anew = [StateEntered(t_s=900.0, state=State.BASELINE), BaselineMeasured(t_s=920.0, measurement=SECOND)]
    events = [event for event in told()[:-3] if not isinstance(event, Decided)]
    rows = table([*events, *anew]).rows
    assert [row[-1] for row in rows][-2:] == ["complete", "baseline, measured again"]


def test_with_many_trials_the_rows_that_are_left_out_are_counted_and_the_rest_keep_their_baseline() -> None:
    events = told()
    made = wording.trials(summarise(events), events, latest=2)
    assert [row[0] for row in made.rows] == ["260", "200", "160", "260", "160"]
    assert made.rows[0][1] == f"{SECOND.power_w:.1f}", "the baseline of what is shown, not the first"


def test_the_best_so_far_is_a_caps_pooled_value_not_its_luckiest_trial() -> None:
    status = status_after(until(told(), TrialStarted))
    assert min(trial.cost for trial in status.summary.trials if trial.cost) == pytest.approx(0.91)
    best = status.best
    assert (best.setting, best.cost) == ((160.0,), pytest.approx(0.92))


def test_the_best_so_far_is_of_this_search_and_within_the_limit_on_slowdown() -> None:
    searched = until(told(), TrialStarted)
    anew = [StateEntered(t_s=900.0, state=State.BASELINE), BaselineMeasured(t_s=920.0, measurement=FIRST)]
    assert status_after([*searched, *anew]).best is None
    within = status_after(until(told(MetricInfo(name="eds", k=2.0, max_slowdown=0.2)), TrialStarted)).best
    assert within.setting == (180,), "160 W takes 8 % more time, and windows here scatter by more than they say"
    assert status_after(until(told(MetricInfo(name="eds", k=2.0, max_slowdown=0.085)), TrialStarted)).best is None


def said(events: list, metric: MetricInfo | None = None) -> str:
    return headline(summarise(events))


def test_the_headline_says_what_changed_and_what_the_whole_run_saved() -> None:
    expected = "160 W instead of 260 W: 24 % less energy, 8 % more time; saved 67 Wh in this run, search included"
    assert said(told(emulated=False)) == expected
    price = MetricInfo(name="cost", energy_price=0.3)
    assert "; saved 67 Wh (0.020 at 0.3 per kWh) in this run, search included" in said(told(price, emulated=False))


@pytest.mark.parametrize(
    ("rates", "saved"),
    [
        (Rates(energy_price=0.3, currency="€", carbon_g_per_kwh=380.0), "67 Wh, 0.020 € and 25 g CO₂"),
        (Rates(energy_price=0.3, carbon_g_per_kwh=380.0), "67 Wh (0.020 at 0.3 per kWh) and 25 g CO₂"),
        (Rates(energy_price=300.0, currency="kr"), "67 Wh and 20 kr"),
        (Rates(carbon_g_per_kwh=38_000.0), "67 Wh and 2.5 kg CO₂"),
        (Rates(energy_price=0.0, currency="€", carbon_g_per_kwh=0.0), "67 Wh"),
        (Rates(energy_price=1e-9, currency="€"), "67 Wh and 6.7e-11 €"),
    ],
)
def test_the_headline_has_money_and_carbon_where_a_kilowatt_hour_has_them(rates: Rates, saved: str) -> None:
    started, *rest = told(emulated=False)
    assert said([replace(started, rates=rates), *rest]).endswith(f"; saved {saved} in this run, search included")


def test_the_headline_claims_nothing_that_could_not_be_measured() -> None:
    def changed(**changes: float) -> str:
        events = told(emulated=False)
        place = next(place for place, event in enumerate(events) if isinstance(event, Decided))
        events[place] = replace(events[place], measurement=replace(IN_TURN, setting=(160.0,), **changes))
        return said(events)

    assert "0 W: no change in energy beyond 0.6 %, 8 % more time;" in changed(period_s=0.56)
    assert "0 W: 24 % less energy, no change in time beyond 0.6 %;" in changed(energy_per_iteration_j=83.0)
    assert "time not known (+7.7 ± 45.2 %);" in changed(period_s=0.56, period_rel_stderr=0.42)
    assert "0.9 % more time" in changed(energy_per_iteration_j=83.0, period_s=0.5247, period_rel_stderr=0.001)


@pytest.mark.parametrize(
    ("joules", "sentence"),
    [
        (108.9, "; in this run, search included, nothing saved or lost beyond 0.5 % of its energy"),
        (112.0, "; used 8.3 Wh more in this run, search included"),
        (50.0, "; saved 0.16 kWh in this run, search included"),
    ],
)
def test_what_the_run_saved_is_said_with_its_sign_or_not_at_all(joules: float, sentence: str) -> None:
    last = replace(tally(5600.0, 10_000.0), energy_j=joules * 1e4, counted_j=joules * 1e4)
    assert said([*told(emulated=False)[:-3], last]).endswith(sentence)


def test_without_a_kept_cap_nothing_is_claimed() -> None:
    started, *rest = told()
    events = [replace(started, rates=Rates(energy_price=0.3, currency="€", carbon_g_per_kwh=380.0)), *rest]
    place = next(place for place, event in enumerate(events) if isinstance(event, Decided))
    events[place] = Decided(t_s=160.0, setting=None, confirmed=False, reason="no better")
    assert said(events) == "No cap was kept"
    assert said(events[:3]) == "Nothing decided yet"


def test_eds_is_explained_with_the_users_k_where_the_search_begins_and_in_the_report() -> None:
    words, events = Wording(), told(MetricInfo(name="eds", k=4.0, max_slowdown=0.05))
    lines = [line for event in events if (line := words.line(event)) is not None]
    meaning = "75 % energy + 25 % time, each as a share of the baseline's; lower is better"
    assert f"searching for the cap with the lowest eds k=4, at most 5 % slower ({meaning})" in lines
    aim = run_document(summarise(events), events).aim
    assert f"minimising eds k=4, at most 5 % slower ({meaning}) with strategy golden" in aim


def test_each_state_is_said_once_a_search_and_a_pause_not_at_all() -> None:
    words, told_of = Wording(), []
    for state in (
        State.WAITING, State.BASELINE, State.PAUSED, State.BASELINE, State.SEARCHING, State.PAUSED, State.SEARCHING,
        State.CONFIRMING, State.PAUSED, State.CONFIRMING, State.SEARCHING, State.CONFIRMING, State.HOLDING,
        State.PAUSED, State.BASELINE, State.SEARCHING,
    ):  # fmt: skip
        told_of.append(words.line(StateEntered(t_s=1.0, state=state)))
    assert [line.split()[0] for line in told_of if line] == [
        "waiting", "measuring", "searching", "confirming", "measuring", "searching",
    ]  # fmt: skip


def test_a_search_anew_after_a_pause_begins_at_nothing_too() -> None:
    status = status_after([*until(told(), Decided), StateEntered(t_s=900.0, state=State.HOLDING)])
    for state in (State.PAUSED, State.BASELINE):
        status.event(StateEntered(t_s=901.0, state=state))
    assert status.decided is None


def test_what_was_expected_stands_among_the_details(tmp_path) -> None:
    report = present_run(tmp_path, told()).document
    expected = "eds 0.919 at 160 W; the best, 0.917, at 165 W"
    assert not any("expected" in remark for remark in report.remarks)
    assert ("expected", expected) in report.job
    decided = next(event for event in told() if isinstance(event, Decided))
    assert Wording().line(decided) == f"keeping 160 W, confirmed: {decided.reason}"


def test_result_json_does_not_depend_on_what_is_shown(tmp_path) -> None:
    warned = Warned(t_s=1.0, text="hot")
    result = present_run(tmp_path, [*told(), warned]).result
    assert result["baseline"]["energy_per_iteration_j"] == FIRST.energy_per_iteration_j
    assert "headline" not in result
