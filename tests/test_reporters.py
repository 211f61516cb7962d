"""What a run says, from its events."""

import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autocap import profiles
from autocap.config import TuneConfig
from autocap.devices.simulated import SimulatedJob
from autocap.events import DeviceFound, MetricInfo, RunEnded, RunStarted, Warned
from autocap.metrics import Metric
from autocap.recorder import Recorder
from autocap.records import Sample
from autocap.reporters import terminal
from autocap.reporters.plain import PlainLines, Quiet
from autocap.reporters.summary import lines
from autocap.runlog import RunDirectory, read_events
from autocap.summarise import summarise
from autocap.summary import BestCap, ParetoPoint, Summary
from bench.jobs import tune


@pytest.fixture(scope="module")
def summary() -> Summary:
    """A whole simulated job, as its run directory would tell it."""
    profile = profiles.load("quadro-rtx-6000/resnet50")
    config = TuneConfig(metric=Metric(name="eds", k=2.0))
    outcome = tune(SimulatedJob(profile=profile, iterations=900), config, "golden")
    start = RunStarted(
        t_s=0.0,
        autocap_version="0",
        mode="run",
        command=("python", "train.py"),
        pid=1,
        started_at="2026-01-01T00:00:00+00:00",
        metric=MetricInfo(name="eds", k=2.0),
        strategy="golden",
        strategy_options=(),
    )
    found = DeviceFound(t_s=0.0, kind="simulated", emulated=True, gpus=outcome.device.gpus, original_w=(260.0,))
    end = RunEnded(t_s=outcome.wall_s, ended_because="the job ended", exit_status=0)
    return summarise([start, found, *outcome.log.events, end])


def test_the_report_shows_every_trial_the_kept_cap_and_the_net_saving_with_errors(summary: Summary) -> None:
    text = "\n".join(lines(summary))
    for trial in summary.trials:
        assert f"{trial.cost:.4f} ± {trial.cost_stderr:.4f}" in text
    assert summary.chosen is not None
    assert f"kept {summary.chosen.cap_w[0]:g} W: energy -" in text
    assert "net of the search: -" in text


def test_emulated_power_is_labelled_wherever_it_is_shown(summary: Summary) -> None:
    shown = lines(summary)
    assert "EMULATED power: modelled, not measured" in shown[0]
    assert "W (emulated)" in shown[3]
    assert "J/iter (emulated)" in shown[3]
    assert any("J (emulated) over" in line for line in shown)


def test_every_metric_has_its_best_cap_and_each_point_of_the_front_says_where_it_is_from(summary: Summary) -> None:
    shown = lines(summary)
    for best in summary.best_by_metric:
        assert [best.metric, f"{best.cap_w[0]:g}"] in [line.split()[:2] for line in shown]
    front = [line.split() for line in shown[shown.index(next(line for line in shown if "Pareto" in line)) + 1 :]]
    assert [float(words[0]) for words in front] == [point.cap_w[0] for point in summary.pareto]
    assert {words[-1] for words in front} == {"measured"}, "golden section predicts nothing"


def test_what_was_only_predicted_is_shown_as_such_with_its_error(summary: Summary) -> None:
    hoped = [
        ParetoPoint(cap_w=(cap_w,), energy=0.7, energy_stderr=0.02, time=1.2, time_stderr=0.03, source="predicted")
        for cap_w in range(100, 130)
    ]
    best = BestCap(metric="edp", cap_w=(117.0,), cost=0.84, cost_stderr=0.02, source="predicted")
    shown = lines(replace(summary, best_by_metric=(best,), pareto=(*hoped, *summary.pareto)))
    assert ["edp", "117", "0.840", "±", "0.020", "predicted"] in [line.split() for line in shown]
    front = [line.split() for line in shown[shown.index(next(line for line in shown if "Pareto" in line)) + 1 :]]
    assert next(words for words in front if words[-1] == "predicted") == [
        *("100", "W", "0.700", "±", "0.020", "1.20", "±", "0.03", "predicted")
    ]
    assert sum(words[-1] == "predicted" for words in front) <= 8
    assert sum(words[-1] == "measured" for words in front) == len(summary.pareto)


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(summary: Summary, width: int) -> None:
    table = [line for line in lines(summary, width) if "±" in line and "kept 1" not in line and "net" not in line]
    assert table
    assert max(map(len, table)) <= width


def test_plain_lines_begin_with_our_name_and_hold_no_colour(summary: Summary) -> None:
    stream = io.StringIO()
    reporter = terminal.for_stream(stream, quiet=False)
    reporter.say(lines(summary))
    assert all(line.startswith("autocap:") for line in stream.getvalue().splitlines())
    assert "\x1b" not in stream.getvalue()


class Gone(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_terminal_that_has_gone_away_is_no_reason_to_stop(summary: Summary) -> None:
    PlainLines(Gone()).say(["hello"])


def test_quiet_is_quiet() -> None:
    stream = io.StringIO()
    terminal.for_stream(stream, quiet=True).say(["hello"])
    assert stream.getvalue() == ""


class Broken(Quiet):
    """A view that has a fault."""

    def sample(self, sample: Sample) -> None:
        raise KeyError("column")


def test_a_reporter_that_fails_is_heard_no_more_and_the_run_is_recorded_all_the_same(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, False, None, datetime.now(UTC)) as directory:
        recorder = Recorder(directory, Broken())
        for t_s in (1.0, 2.0):
            recorder.sample(Sample(t_s=t_s, readings=()))
    assert [event.text for event in recorder.events if isinstance(event, Warned)] == [
        "Broken fails and shows nothing from here on: KeyError('column')"
    ]
    assert len(read_events(tmp_path)) == 1
