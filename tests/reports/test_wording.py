"""What a run says, from its events: each row is held against the baseline of its time, and what is said agrees
with its rows."""

import io
import math
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.config.option import TakenSetting
from autocap.devices.model import profiles
from autocap.events import (
    BaselineMeasured,
    Decided,
    DeviceFound,
    Event,
    LimitRestored,
    NodeMetered,
    ProgramFound,
    SettingsTaken,
    State,
    StateEntered,
    TrialStarted,
    Warned,
)
from autocap.events.run import MetricInfo
from autocap.metrics import Metric, Rates
from autocap.records import CapRange, GpuInfo, Sample
from autocap.reports import text
from autocap.reports.document import Table
from autocap.reports.live.terminal import PlainLines, Reporter
from autocap.reports.rendering import present_run
from autocap.reports.run_document import run_document
from autocap.reports.summary.record import BestCap, ParetoPoint, Summary
from autocap.reports.summary.summarise import summarise
from autocap.reports.wording import run as wording
from autocap.reports.wording.events import Wording
from autocap.reports.wording.granted import remarks
from autocap.reports.wording.headline import headline
from autocap.reports.wording.numbers import with_error
from autocap.runlog.directory import RunDirectory
from autocap.runlog.event_log import read_events
from autocap.session.recorder import Recorder
from autocap.testing.simulated.device import SimulatedMeter
from autocap.testing.simulated.job import SimulatedJob
from bench.simulation.jobs import tune
from tests.doubles.logs import announced, in_full, status_after, until
from tests.doubles.told import FIRST, IN_TURN, SECOND, tally, told


def lines(summary: Summary, width: int | None = None) -> list[str]:
    return text.lines(run_document(summary, EVENTS[summary.started_at]), width)


EVENTS: dict[str, list[Event]] = {}  # of each summary here


def _summary(events: list[Event], name: str) -> Summary:
    """Of a run that put its limits back as it ended."""
    gpus = [gpu for event in events if isinstance(event, DeviceFound) for gpu in event.gpus]
    back = [LimitRestored(t_s=events[-1].t_s, uuid=gpu.uuid, final=260.0, restored=True) for gpu in gpus]
    EVENTS[name] = events = [*events[:-1], *back, events[-1]]
    return replace(summarise(events), started_at=name)


@pytest.fixture(scope="module")
def summary() -> Summary:
    """A whole simulated job, as its run directory would tell it."""
    profile = profiles.load("quadro-rtx-6000/resnet50")
    config = TuneConfig(metric=Metric(name="eds", k=2.0))
    outcome = tune(SimulatedJob(profile=profile, iterations=900), config, "golden")
    return _summary(in_full(outcome), "job")


@pytest.mark.slow
def test_a_report_without_a_kept_cap_says_why_and_where_to_read_on(summary: Summary) -> None:
    put_back = Decided(t_s=800.0, setting=None, confirmed=False, reason="not better beyond its error: eds 1.00 ± 0.01")
    *before, end = EVENTS[summary.started_at]
    whole = "\n".join(lines(_summary([*before, put_back, end], "put back")))
    said = "no cap was kept, the limit found on arrival was put back: not better beyond its error: eds 1.00 ± 0.01"
    assert f"{said} (`autocap help no-cap-kept` goes through the reasons)" in whole


def test_a_cap_that_was_lost_before_the_end_of_the_job_is_not_said_to_be_kept(summary: Summary) -> None:
    lost = replace(summary, ended_because="node2: Slurm says: Killed")
    for one, kept in ((summary, ""), (lost, " until the tuning ended")):
        shown = lines(one)
        assert f"W{kept}: " in shown[0]
        assert any(line.startswith("kept ") and f" W{kept}: " in line for line in shown)
        assert any(line.endswith(f"kept, confirmed{kept}") for line in shown)


def test_what_was_only_predicted_is_shown_as_such_with_its_error(summary: Summary) -> None:
    one = ParetoPoint(setting=(100,), energy=0.7, energy_stderr=0.02, time=1.2, time_stderr=0.03, source="predicted")
    hoped = [replace(one, setting=(cap_w,)) for cap_w in range(100, 130)]
    best = BestCap(metric="edp", setting=(117.0,), cost=0.84, cost_stderr=0.02, source="predicted")
    shown = lines(replace(summary, best_by_metric=(best,), pareto=(*hoped, *summary.pareto)))
    assert ["edp", "117", "0.840", "±", "0.020", "predicted"] in [line.split() for line in shown]
    front = [line.split() for line in shown[shown.index(next(line for line in shown if "Pareto" in line)) + 2 :]]
    first = next(words for words in front if words[-1] == "predicted")
    assert " ".join(first) == "100 0.700 ± 0.020 1.20 ± 0.03 predicted"
    assert sum(words[-1] == "predicted" for words in front) <= 8
    assert sum(words[-1] == "measured" for words in front) == len(summary.pareto)


class Gone(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_terminal_that_has_gone_away_is_no_reason_to_stop(summary: Summary) -> None:
    PlainLines(Gone()).say(["hello"])


class Broken(Reporter):
    """A view that has a fault."""

    def sample(self, sample: Sample) -> None:
        raise KeyError("column")


def test_a_reporter_that_fails_is_heard_no_more_and_the_run_is_recorded_all_the_same(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, False, datetime.now(UTC)) as directory:
        recorder = Recorder(directory, Broken())
        for t_s in (1.0, 2.0):
            recorder.sample(Sample(t_s=t_s, readings=()))
    assert [event.text for event in recorder.events if isinstance(event, Warned)] == [
        "Broken fails and shows nothing from here on: internal fault: KeyError: 'column'; its traceback is in "
        f"{tmp_path / 'internal-fault.txt'}"
    ]
    assert len(read_events(tmp_path)) == 1


@pytest.fixture(scope="module")
def of_node() -> Summary:
    """The same for the whole node, by its meter, with 300 W around the GPU."""
    profile = profiles.load("quadro-rtx-6000/resnet50")
    job = SimulatedJob(profile=profile, iterations=900, start_s=5.0)
    config, meter = TuneConfig(metric=Metric(name="energy")), partial(SimulatedMeter, rest_w=300.0)
    outcome = tune(job, config, "golden", meter=meter)
    metered = NodeMetered(t_s=0.0, source="ipmi", whole=True, refresh_s=0.1, idle_w=None, standard_idle_w=200.0)
    started, found, *events, _ = in_full(outcome)
    return _summary([started, found, metered, *events], "node")


def test_a_search_that_the_end_of_the_job_cuts_short_has_no_failed_trial_and_claims_nothing() -> None:
    profile = profiles.load("quadro-rtx-6000/resnet50")
    for end_s, said in (
        (6.0, "search would have; no cap was measured yet; "),
        (13.0, "search would have; the best so far was 175 W ("),
    ):
        config = TuneConfig(metric=Metric(name="eds", k=2.0))
        outcome = tune(SimulatedJob(profile=profile), config, "golden", end_s=end_s)
        events = in_full(outcome, ended_because="SIGTERM")
        whole = "\n".join(lines(_summary(events, f"cut short at {end_s} s")))
        assert "no cap was kept, the limit found on arrival was put back: the job ended about" in whole
        assert said in whole
        assert "failed" not in whole
        assert "net of the search" not in whole


@pytest.mark.slow
def test_the_idle_share_and_energy_as_on_another_machine_are_lines_of_their_own(of_node) -> None:
    assert of_node.node.idle_w == pytest.approx(320.0, rel=0.01)  # 20 W of the card
    whole = "\n".join(lines(of_node))
    assert f"at rest the node draws {of_node.node.idle_w:.0f} W, by the lowest 2 % of 5 s before the first" in whole
    assert "as on a machine that draws 200 W at rest: " in whole
    (kept,) = (line for line in whole.splitlines() if line.startswith("kept "))
    assert kept.count("energy") == 1, "which is the metric as well"


def test_what_is_counted_is_said_when_it_begins() -> None:
    words = Wording()
    metered = NodeMetered(t_s=0.0, source="350 W", whole=False, refresh_s=0.0, idle_w=None, standard_idle_w=None)
    assert words.line(metered) == "energy is the whole node's, the GPUs' and this beside them: 350 W"


def test_settings_are_told_source_by_source() -> None:
    pairs = (("k", "2"), ("wait", "9"))
    here = [TakenSetting(name=name, value=value, source="./autocap.toml") for name, value in pairs]
    long = TakenSetting(name="strategy", value="x" * 70, source="AUTOCAP_STRATEGY")
    said = Wording().line(SettingsTaken(t_s=0.0, settings=(here[0], long, here[1])))
    assert said == f"settings taken: k 2, wait 9 from ./autocap.toml; strategy {'x' * 60}… from AUTOCAP_STRATEGY"


def test_the_program_is_named_where_sudos_path_gives_another() -> None:
    found = ProgramFound(t_s=0.0, name="python", program="/v/bin/python", plain="/usr/bin/python")
    words = Wording()
    assert words.line(found) == "command 'python' is /v/bin/python here; sudo's own PATH gives /usr/bin/python"
    assert words.line(replace(found, plain=None)) == "command 'python' is /v/bin/python here; sudo's own PATH has none"


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


def headline_of(events: list, metric: MetricInfo | None = None) -> str:
    return headline(summarise(events))


def test_the_headline_says_what_changed_and_what_the_whole_run_saved() -> None:
    expected = "160 W instead of 260 W: 24 % less energy, 8 % more time; saved 67 Wh in this run, search included"
    assert headline_of(told(emulated=False)) == expected
    price = MetricInfo(name="cost", energy_price=0.3)
    assert "; saved 67 Wh (0.020 at 0.3 per kWh) in this run, search included" in headline_of(
        told(price, emulated=False)
    )


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
    assert headline_of([replace(started, rates=rates), *rest]).endswith(f"; saved {saved} in this run, search included")


def test_the_headline_claims_nothing_that_could_not_be_measured() -> None:
    def changed(**changes: float) -> str:
        events = told(emulated=False)
        place = next(place for place, event in enumerate(events) if isinstance(event, Decided))
        events[place] = replace(events[place], measurement=replace(IN_TURN, setting=(160.0,), **changes))
        return headline_of(events)

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
    assert headline_of([*told(emulated=False)[:-3], last]).endswith(sentence)


def test_without_a_kept_cap_nothing_is_claimed() -> None:
    started, *rest = told()
    events = [replace(started, rates=Rates(energy_price=0.3, currency="€", carbon_g_per_kwh=380.0)), *rest]
    place = next(place for place, event in enumerate(events) if isinstance(event, Decided))
    events[place] = Decided(t_s=160.0, setting=None, confirmed=False, reason="no better")
    assert headline_of(events) == "No cap was kept"
    assert headline_of(events[:3]) == "Nothing decided yet"


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


JOB = SimulatedJob(profile=profiles.load("quadro-rtx-6000/resnet50"))


def sentences(log: list[events.Event]) -> list[str]:
    wording = Wording()
    return [line for line in map(wording.line, log) if line is not None]


@pytest.mark.slow
def test_a_search_under_a_ceiling_says_what_was_given_and_what_its_baseline_was() -> None:
    outcome = tune(JOB, TuneConfig(metric=Metric(name="edp")), "model", grants=[(0.0, 160.0)], end_s=200.0)
    lines = sentences(outcome.log.events)
    assert lines[0] == "the budget gives up to 160 W per GPU"
    assert any(line.startswith("baseline at 160 W, roughly: ") for line in lines)
    baseline = announced(outcome, events.BaselineMeasured)[0].measurement
    assert remarks(outcome.log.events, [260.0], baseline) == [
        "the budget gave each device at most 160 W, at the end 160 W",
        "the baseline is that of 160 W, the most that the budget gave then, and not of the limit found on arrival",
    ]


@pytest.mark.slow
def test_what_was_held_for_the_budget_is_told_with_the_slowdown_that_it_meant() -> None:
    grants = [(110.0, 140.0), (120.0, 110.0), (180.0, None)]
    outcome = tune(JOB, TuneConfig(metric=Metric(name="edp")), "model", grants=grants, end_s=200.0)
    lines = sentences(outcome.log.events)
    assert lines[-2] == "the budget sets no ceiling any more"
    assert lines[-1].startswith("110 W, held under the budget: ")
    baseline = announced(outcome, events.BaselineMeasured)[-1].measurement
    given, held = remarks(outcome.log.events, [260.0], baseline)
    assert given == "the budget gave each device at most 110–140 W, at the end no limit"
    assert held.startswith("measured at 110 W while the budget held it there: time +")


@pytest.mark.slow
def test_a_cap_by_the_curve_alone_is_not_called_confirmed() -> None:
    outcome = tune(JOB, TuneConfig(metric=Metric(name="edp")), "model", grants=[(10.0, 150.0)], end_s=200.0)
    said = "keeping 150 W, not confirmed: the best up to 150 W"
    assert any(line.startswith(said) for line in sentences(outcome.log.events))


def test_of_a_run_under_no_budget_nothing_is_said() -> None:
    assert remarks([], [260.0], None) == []


def test_what_a_job_leaves_to_a_budget_that_goes_on_is_one_plain_sentence() -> None:
    kind = CapRange(min_w=100.0, max_w=260.0, default_w=260.0)
    gpus = tuple(GpuInfo(index=place, uuid=f"GPU-{place}", name="x", cap_range=kind) for place in range(2))
    lines = sentences([
        events.DeviceFound(t_s=0.0, kind="nvml", emulated=False, gpus=gpus, original=(260.0, 250.0)),
        *(events.LimitRestored(t_s=9.0, uuid=gpu.uuid, final=150.0, restored=None) for gpu in gpus),
        events.LimitRestored(t_s=9.0, uuid="of another node", final=None, restored=None),
    ])  # fmt: skip
    said = "the budget goes on: it gives each GPU up to 150 W now, and puts 260 W/250 W back when it ends"
    assert lines[1:] == [said]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1.29876, 0.0011, "1.2988 ± 0.0011"),
        (1.29876, 0.0034, "1.299 ± 0.003"),
        (0.183421, 0.0000731, "0.18342 ± 0.00007"),
        (12.3456, 0.15, "12.35 ± 0.15"),
        (123.4, 41.0, "123 ± 41"),
        (1.5, 0.0, "1.5"),
        (1.5, math.inf, "1.5"),
    ],
)
def test_a_value_has_as_many_digits_as_its_error_deserves(value: float, error: float, text: str) -> None:
    assert with_error(value, error) == text
