"""What is logged of a run, from its events; and a run directory, followed into a sink, and into an open run of the
training script."""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import FileIO
from itertools import pairwise
from pathlib import Path

import pytest

from autocap.events import DeviceFound, Event, State, StateEntered, TrialEnded, TrialWithdrawn
from autocap.knobs import Knob
from autocap.plugins.trackers.process import Joined
from autocap.plugins.trackers.rows import EMULATED, EVERY_S, PHASES, PREFIX, Rows, follow
from autocap.plugins.trackers.sink import Result, Row, Setting
from autocap.runlog.event_log import EVENTS, line_of, locked
from tests.doubles.logs import status_after
from tests.doubles.told import tally, told
from tests.doubles.waiting import eventually
from tests.reports.test_unsure import OF_AN_ITERATION, log, log_once


def taken(events: list[Event]) -> tuple[Rows, list[Row]]:
    """A log that is read at once, when the run is over."""
    rows = Rows()
    return rows, [row for event in events for row in rows.take(event)]


def of(rows: list[Row], key: str) -> list[float]:
    return [row.numbers[f"{PREFIX}{key}"] for row in rows if f"{PREFIX}{key}" in row.numbers]


def test_of_modelled_power_every_key_says_so() -> None:
    for emulated in (True, False):
        rows, found = taken(told(emulated=emulated))
        keys = [*rows.result.row.numbers, *rows.result.words, *(key for row in found for key in row.numbers)]
        assert {key.startswith(PREFIX + EMULATED) for key in keys} == {emulated}
        assert {key.startswith(PREFIX) for key in keys} == {True}


def test_that_a_trial_does_not_count_any_more_is_logged_as_well() -> None:
    log = told(emulated=False)
    gone = TrialWithdrawn(t_s=log[-1].t_s, setting=160.0, since_s=0.0, reason="it was miscounted")
    _, found = taken([*log[:-1], gone, log[-1]])
    assert of(found, "trial/withdrawn_cap_w") == [160.0]


def test_a_trial_is_logged_with_its_errors_and_one_that_failed_is_not() -> None:
    log = told(emulated=False)
    _, found = taken(log)
    measured = [event.trial for event in log if isinstance(event, TrialEnded) and event.trial.measurement is not None]
    assert of(found, "trial/number") == [1.0, 2.0, 3.0, 4.0, 6.0]
    assert of(found, "trial/cap_w") == [trial.setting for trial in measured]
    assert of(found, "trial/metric") == [trial.cost for trial in measured]
    assert of(found, "trial/metric_stderr") == [trial.cost_stderr for trial in measured]
    assert of(found, "trial/pruned") == [0.0, 0.0, 1.0, 0.0, 0.0]
    windows = [trial.measurement for trial in measured if trial.measurement is not None]
    errors_j = [one.energy_per_iteration_j * one.energy_rel_stderr for one in windows]
    assert of(found, "trial/energy_per_iteration_stderr_j") == pytest.approx(errors_j)


def test_power_and_time_are_means_between_two_tallies_and_told_once_each() -> None:
    rows, found = taken(told(emulated=False))
    found += rows.now()
    assert of(found, "power_w") == pytest.approx([170.0, 170.0, 85.0 * 9740 / 5470])
    assert of(found, "time_per_iteration_s") == pytest.approx([0.5, 0.5, 5470 / 9740])


def test_a_log_that_is_read_late_tells_what_was_when_at_most_once_a_second() -> None:
    rows, found = taken(told(emulated=False))
    stands = [(row.t_s, row.numbers[f"{PREFIX}phase"]) for row in found if f"{PREFIX}phase" in row.numbers]
    places = {PHASES[int(place)] for _, place in stands}
    assert {State.BASELINE, State.SEARCHING, State.CONFIRMING, State.HOLDING} <= places
    times_s = [t_s for t_s, _ in stands]
    assert all(later - earlier >= EVERY_S for earlier, later in pairwise(times_s))
    (last,) = rows.now()  # what changed with the end
    assert last.numbers[f"{PREFIX}phase"] == PHASES.index(State.DONE)
    assert last.numbers[f"{PREFIX}cap_w"] == 260.0
    assert list(rows.now()) == []


def test_a_state_that_changes_all_the_time_does_not_flood_a_tracker() -> None:
    log = told()[:3]
    log += [StateEntered(t_s=2.0 + n / 100, state=(State.PAUSED, State.HOLDING)[n % 2]) for n in range(1000)]
    _, found = taken(log)
    assert 5 <= len(found) <= 11


def test_the_end_has_the_numbers_of_the_report_and_its_sentences() -> None:
    log = told(emulated=False)
    rows, _ = taken(log)
    result, summary = rows.result, status_after(log).summary
    numbers = {key.removeprefix(PREFIX): value for key, value in result.row.numbers.items()}
    assert (numbers["kept_cap_w"], numbers["versus_baseline/energy_pct"]) == (160.0, summary.versus_baseline.energy_pct)
    assert numbers["versus_baseline/energy_stderr_pct"] == summary.versus_baseline.energy_stderr_pct
    assert numbers["totals/energy_j"] == summary.totals.energy_j
    assert result.words["autocap/kept"] == "160 W"
    assert result.words["autocap/headline"].startswith("160 W instead of 260 W: 24 % less energy")
    assert result.words["autocap/verdict"].startswith("kept 160 W: energy -23.9 ± ")
    assert not result.killed


def test_of_a_killed_run_is_told_how_far_it_came() -> None:
    rows, _ = taken(told()[:8])
    assert rows.result.killed
    assert rows.result.words["autocap/emulated/headline"] == "Nothing decided yet"


def test_numbers_that_are_infinite_are_left_out() -> None:
    endless = replace(tally(5.0, 10.0), energy_j=float("inf"))
    _, found = taken([*told()[:3], endless, StateEntered(t_s=9.0, state=State.DONE)])
    assert of(found, f"{EMULATED}power_w") == []
    assert of(found, f"{EMULATED}time_per_iteration_s") == [0.5]


def test_settings_have_no_word_of_the_command() -> None:
    rows, _ = taken(told())
    assert rows.settings["autocap/emulated_power"] is True
    assert rows.settings["autocap/metric"] == "eds"
    assert "train.py" not in str(rows.settings)


def test_each_gpu_has_its_cap_where_there_are_several() -> None:
    log = told(emulated=False)[:3]
    device = log[1]
    assert isinstance(device, DeviceFound)
    two = replace(device, gpus=device.gpus * 2, original=(260.0, 250.0))
    _, found = taken([log[0], two, log[2], tally(5.0, 10.0)])
    assert (of(found, "cap_w"), of(found, "gpu0/cap_w"), of(found, "gpu1/cap_w")) == ([260.0], [260.0], [250.0])


@pytest.mark.parametrize("emulated", [False, True])
def test_no_key_is_the_folder_of_another(emulated: bool) -> None:
    """A store of files, as MLflow's, has a path for each."""
    rows = Rows()
    numbers = {key for event in told(emulated=emulated) for row in rows.take(event) for key in row.numbers}
    numbers |= rows.result.row.numbers.keys()
    for keys in (numbers, rows.settings.keys() | rows.result.words.keys()):
        assert not [(one, other) for one in keys for other in keys if other.startswith(f"{one}/")]


@pytest.mark.slow
def test_trackers_get_ratios_of_low_confidence_and_no_seconds() -> None:
    rows = Rows()
    keys = {key for event in log() for row in rows.take(event) for key in row.numbers} | rows.result.row.numbers.keys()
    assert not [key for key in keys if OF_AN_ITERATION.search(key)]
    wanted = {"baseline", "trial", "kept"}
    assert {f"autocap/emulated/{one}/low_confidence/time_ratio" for one in wanted} <= keys
    assert "autocap/emulated/low_confidence/time_ratio" in keys
    assert "autocap/emulated/totals/iterations" not in keys


@pytest.mark.slow
def test_what_was_measured_once_is_logged_without_an_error() -> None:
    rows = Rows()
    logged = [row for event in log_once() for row in rows.take(event)]
    assert not [name for row in logged for name, value in row.numbers.items() if "stderr" in name and value]


def test_of_another_knob_its_values_are_logged_and_no_watts() -> None:
    clock = Knob.stepped("clock", 10, 3000, 10, unit="MHz")
    log = [replace(one, knob=clock) if isinstance(one, DeviceFound) else one for one in told(emulated=False)]
    rows, found = taken(log)
    keys = {key for row in (*found, rows.result.row) for key in row.numbers}
    assert not [key for key in keys if key.endswith("cap_w")]
    assert of(found, "trial/setting")[0] == 1600.0  # the place 160
    assert rows.result.row.numbers[f"{PREFIX}kept_setting"] == 1600.0
    assert rows.result.words[f"{PREFIX}kept"] == "1600 MHz"
    assert (rows.settings[f"{PREFIX}knob"], rows.settings[f"{PREFIX}found_setting"]) == ("clock", "2600")
    assert f"{PREFIX}found_w" not in rows.settings


class Kept:
    """Keeps what it is told. A fault, where there is one, is raised by `log`."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.told: list[Mapping[str, Setting] | Row | Result] = []
        self._fault = fault

    def begin(self, settings: Mapping[str, Setting]) -> None:
        self.told.append(settings)

    def log(self, row: Row) -> None:
        if self._fault is not None:
            raise self._fault
        self.told.append(row)

    def end(self, result: Result) -> None:
        self.told.append(result)


class Hanging(Kept):
    """Never comes back, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def begin(self, settings: Mapping[str, Setting]) -> None:
        self.free.wait()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.free.set()


def write(folder: Path, log: Sequence[Event]) -> None:
    (folder / EVENTS).write_bytes(b"".join(map(line_of, log)))


def result_of(sink: Kept) -> Result:
    settings, *rows, result = sink.told
    assert isinstance(settings, dict)
    assert rows
    assert all(isinstance(row, Row) for row in rows)
    assert isinstance(result, Result)
    return result


def test_a_run_is_begun_logged_and_ended_in_this_order(tmp_path: Path) -> None:
    write(tmp_path, told())
    sink = Kept()
    follow(tmp_path, sink, threading.Event())
    assert not result_of(sink).killed


def test_a_run_that_nobody_writes_any_more_is_ended_as_killed(tmp_path: Path) -> None:
    write(tmp_path, told()[:10])
    sink = Kept()
    follow(tmp_path, sink, threading.Event(), every_s=0.0)
    assert result_of(sink).killed


def test_a_run_of_nothing_is_begun_and_ended_too(tmp_path: Path) -> None:
    write(tmp_path, [told()[0], told()[-1]])
    sink = Kept()
    follow(tmp_path, sink, threading.Event())
    settings, result = sink.told
    assert isinstance(settings, dict)
    assert isinstance(result, Result)
    assert result.words["autocap/headline"] == "Not tuned"


def test_whoever_follows_ends_when_asked_to_with_what_was_written_by_then(tmp_path: Path) -> None:
    stop, sink = threading.Event(), Kept()
    stop.set()
    with FileIO(tmp_path / EVENTS, "xb") as log:
        locked(log, tmp_path)
        log.write(b"".join(map(line_of, told()[:10])))
        follow(tmp_path, sink, stop)
    assert result_of(sink).killed


def joined(tmp_path: Path, sink: Kept) -> Joined:
    made = Joined("mlflow", sink, tmp_path / "run", every_s=0.01)
    made.start()
    (tmp_path / "run").mkdir()
    write(tmp_path / "run", told())
    return made


def test_an_open_run_is_told_of_a_directory_that_is_still_to_come(tmp_path: Path) -> None:
    sink = Kept()
    joined(tmp_path, sink).end(20.0)
    assert not result_of(sink).killed


def test_an_open_run_is_told_nothing_of_an_older_run_in_the_same_directory(tmp_path: Path) -> None:
    write(tmp_path, told(emulated=True))
    sink = Kept()
    one = Joined("mlflow", sink, tmp_path, every_s=0.01)
    one.start()
    (tmp_path / EVENTS).unlink()
    write(tmp_path, told(emulated=False))
    one.end(20.0)
    assert "autocap/verdict" in result_of(sink).words


def test_where_no_run_comes_an_open_run_is_told_nothing(tmp_path: Path) -> None:
    sink = Kept()
    one = Joined("mlflow", sink, tmp_path / "run", every_s=0.01)
    one.start()
    one.end(60.0)
    assert sink.told == []


def test_a_fault_of_a_tracker_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        joined(tmp_path, Kept(OSError("no server"))).end(20.0)
    assert caplog.messages == ["autocap: nothing more is logged to mlflow: OSError: no server"]


def test_a_tracker_that_hangs_is_not_waited_for(tmp_path, hanging, caplog) -> None:
    one = joined(tmp_path, hanging)
    with caplog.at_level(logging.WARNING):
        one.end(0.01)
    (said,) = caplog.messages
    assert said == "autocap: mlflow has not taken the run's last numbers within 0.01 s, and is not waited for"
    hanging.free.set()
    eventually(lambda: hanging.told)
