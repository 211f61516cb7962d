"""What a run says, from its events."""

import io
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from autocap.config import TuneConfig
from autocap.config.option import TakenSetting
from autocap.devices.model import profiles
from autocap.devices.simulated.device import SimulatedMeter
from autocap.devices.simulated.job import SimulatedJob
from autocap.events import Decided, DeviceFound, Event, LimitRestored, NodeMetered, ProgramFound, SettingsTaken, Warned
from autocap.metrics import Metric
from autocap.records import Sample
from autocap.reports import text
from autocap.reports.live.plain import PlainLines, Reporter
from autocap.reports.run_document import run_document
from autocap.reports.summary.record import BestCap, ParetoPoint, Summary
from autocap.reports.summary.summarise import summarise
from autocap.reports.wording.events import Wording
from autocap.runlog.directory import RunDirectory
from autocap.runlog.event_log import read_events
from autocap.session.recorder import Recorder
from bench.simulation.jobs import tune
from tests.doubles.logs import in_full


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
