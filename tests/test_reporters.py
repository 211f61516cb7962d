"""What a run says, from its events."""

import io

import pytest

from autocap import profiles
from autocap.config import TuneConfig
from autocap.devices.simulated import SimulatedJob
from autocap.events import DeviceFound, MetricInfo, RunEnded, RunStarted
from autocap.metrics import Metric
from autocap.reporters import terminal
from autocap.reporters.summary import lines, warnings
from autocap.summarise import summarise
from autocap.summary import Summary
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
    assert warnings(summary) == []


def test_emulated_power_is_labelled_wherever_it_is_shown(summary: Summary) -> None:
    shown = lines(summary)
    assert "EMULATED power: modelled, not measured" in shown[0]
    assert "W (emulated)" in shown[3]
    assert "J/iter (emulated)" in shown[3]
    assert any("J (emulated) over" in line for line in shown)


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(summary: Summary, width: int) -> None:
    table = [line for line in lines(summary, width) if "±" in line and "kept 1" not in line and "net" not in line]
    assert table
    assert max(map(len, table)) <= width


def test_plain_lines_begin_with_our_name_and_hold_no_colour(summary: Summary) -> None:
    stream = io.StringIO()
    reporter = terminal.for_stream(stream, quiet=False, job_output_is_ours_too=False)
    reporter.say(lines(summary))
    assert all(line.startswith("autocap:") for line in stream.getvalue().splitlines())
    assert "\x1b" not in stream.getvalue()


class Gone(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_a_terminal_that_has_gone_away_is_no_reason_to_stop(summary: Summary) -> None:
    terminal.PlainLines(Gone()).say(["hello"])


def test_quiet_is_quiet() -> None:
    stream = io.StringIO()
    terminal.for_stream(stream, quiet=True, job_output_is_ours_too=False).say(["hello"])
    assert stream.getvalue() == ""
