"""`autocap period`: what the detector sees in a recorded trace, as text, as JSON and as plots."""

import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autocap.cli import main
from autocap.cli.period import lines
from autocap.progress.period import PeriodEstimate, Verdict
from autocap.reports.figures import svg
from autocap.reports.figures.periods import period_picture
from autocap.runlog.traces import Trace
from bench.period.signals import SENSORS, WAVEFORMS, Load, Signal, record, record_noise
from tests.doubles import warm

SENSOR = SENSORS["100/100"]
KEYS = ["start_s", "end_s", "verdict", "period_s", "rel_stderr", "confidence", "verified", "reason"]


def job(span_s: float, seed: int = 1, sensor: str = "100/100") -> Signal:
    """A training job of about 1.3 s an iteration."""
    load = Load(waveform=WAVEFORMS["cnn"], period_s=1.3, jitter=0.01)
    return record(load, SENSORS[sensor], span_s, np.random.default_rng(seed))


def saved(path: Path, signals: Sequence[Signal], *, energy: bool = False) -> Path:
    """The signals one after another; energy: with a counter, whose steps are the readings."""
    rows, offset_s, energy_j = ["t_s,power_w,energy_j" if energy else "t_s,power_w"], 0.0, 0.0
    for signal in signals:
        last_s = float(signal.t_s[0])
        for t_s, watts in zip(signal.t_s, signal.power_w, strict=True):
            energy_j += float(watts * (t_s - last_s))
            last_s = float(t_s)
            rows.append(f"{offset_s + t_s - signal.t_s[0]:.6f},{watts:.4f}" + (f",{energy_j:.4f}" if energy else ""))
        offset_s += last_s - float(signal.t_s[0]) + SENSOR.update_s
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("trace") / "job.csv", [job(25.0)])


def estimate(**changes: object) -> PeriodEstimate:
    found = PeriodEstimate(
        start_s=1.0,
        end_s=21.0,
        verdict=Verdict.PERIODIC,
        period_s=0.18342,
        rel_stderr=0.004,
        cycles=109.04,
        confidence=0.876,
        verified=True,
        reason="the signal repeats",
    )
    return replace(found, **changes)  # type: ignore[arg-type]


EMPTY = Trace(start_s=0.0, end_s=20.0, t_s=np.empty(0), power_w=np.empty(0), update_s=0.1)


def test_one_line_says_when_what_and_how_sure_and_the_next_one_why() -> None:
    assert lines(EMPTY, estimate()) == (
        "0.0–20.0 s: periodic, 0.1834 ± 0.0007 s, 109.0 cycles, confidence 0.88, verified",
        "  the signal repeats",
    )
    nothing = estimate(verdict=Verdict.APERIODIC, confidence=0.0, verified=False, reason="nothing repeats")
    said = "0.0–20.0 s: aperiodic, no period, confidence 0.00, not verified"  # the closest miss is none
    assert lines(EMPTY, nothing) == (said, "  nothing repeats")


def test_the_whole_trace_gives_a_verdict_and_its_reason_on_stdout(trace, capsys) -> None:
    assert main(["period", str(trace)]) == 0
    out, err = capsys.readouterr()
    found = re.fullmatch(r"0\.0–24\.\d s: periodic, (1\.\d+) ± 0\.\d+ s, .* not verified\n  \w.*\n", out)
    assert found
    assert float(found[1]) == pytest.approx(1.3, rel=0.01)
    assert re.fullmatch(r"autocap: \S*job.csv: 250 readings over 24.9 s, one every 0\.\d+ s\n", err)


def test_on_one_pipe_what_is_said_and_what_is_found_come_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text("\n".join(["t_s,power_w", *(f"{0.1 * n:.1f},{200 + n % 7}" for n in range(40))]))
    words = [sys.executable, "-m", "autocap", "period", str(path), "--window", "2"]
    with (tmp_path / "said").open("w") as pipe:
        assert warm.start(words, env=os.environ, stdout=pipe.fileno(), stderr=pipe.fileno()).wait(60) == 0
    first, *found = (tmp_path / "said").read_text().splitlines()
    assert first == f"autocap: {path}: 40 readings over 3.9 s, one every 0.1 s"
    assert [line[:7] for line in found[::2]] == ["0.0–2.0", "2.0–3.9"]
    assert all(line.startswith("  ") for line in found[1::2])
    assert len(found) == 4


@pytest.mark.slow
def test_json_has_the_keys_of_the_contract_and_null_for_what_is_unknown(tmp_path, capsys) -> None:
    still = record_noise("constant", SENSOR, 50.0, np.random.default_rng(5))
    path = saved(tmp_path / "both.csv", [job(25.0), still])
    assert main(["period", str(path), "--window", "25", "--json"]) == 0
    seen, _, blank = json.loads(capsys.readouterr().out)
    assert list(seen) == list(blank) == KEYS
    assert (seen["verdict"], blank["verdict"]) == ("periodic", "aperiodic")
    assert seen["period_s"] == pytest.approx(1.3, rel=0.01)
    assert 0 < seen["rel_stderr"] < 0.01
    assert (blank["period_s"], blank["rel_stderr"]) == (None, None)
    assert seen["end_s"] == seen["start_s"] + 25.0 == blank["start_s"] - 25.0
    assert seen["verified"] is False


def test_an_energy_counter_that_repeats_as_well_verifies_the_period(tmp_path, capsys) -> None:
    path = saved(tmp_path / "counter.csv", [job(25.0, sensor="20/10")], energy=True)
    assert main(["period", str(path), "--json"]) == 0
    (seen,) = json.loads(capsys.readouterr().out)
    assert seen["verified"] is True
    assert seen["period_s"] == pytest.approx(1.3, rel=0.01)


@pytest.mark.slow
def test_a_window_without_readings_is_a_line_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{t_s:.1f},{200 + n % 9}" for n, t_s in enumerate([*np.arange(0, 5, 0.1), *np.arange(25, 30, 0.1)])]
    path = tmp_path / "gap.csv"
    path.write_text("\n".join(["t_s,power_w", *rows]))
    assert main(["period", str(path), "--window", "10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["start_s"] for entry in found] == [0.0, 10.0, 20.0]
    assert found[1]["verdict"] != "periodic"


@pytest.mark.slow
def test_each_window_is_drawn_whatever_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noise = record_noise("white", SENSOR, 15.0, np.random.default_rng(3))
    path = saved(tmp_path / "both.csv", [job(15.0), noise])
    plots = tmp_path / "new" / "plots"
    assert main(["period", str(path), "--window", "15", "--plots", "--out", str(plots)]) == 0
    out, err = capsys.readouterr()
    assert [line.startswith("  ") for line in out.splitlines()] == [False, True, False, True]
    drawn = sorted(plots.iterdir())
    assert [file.name for file in drawn] == ["period-0.svg", "period-1.svg"]
    assert [f"autocap: drew {file}" in err for file in drawn] == [True, True]
    periodic, noisy = ("".join(ElementTree.parse(file).getroot().itertext()) for file in drawn)
    for words, said in ((periodic, out.splitlines()[:2]), (noisy, out.splitlines()[2:])):
        assert said[0].partition(": ")[2] in words
        assert said[1].split()[-1] in words
    for text in ("ends of cycles", "folded along the cycles of 1.3", "its middle, 10 times"):
        assert text in periodic
    assert "ends of cycles" not in noisy
    assert ("not accepted" in noisy, "not accepted" in periodic) == (True, False)


@pytest.mark.parametrize("count", [0, 8, 30])
def test_a_trace_too_short_or_too_even_for_the_detector_is_drawn_all_the_same(count: int) -> None:
    nothing = estimate(verdict=Verdict.APERIODIC, period_s=None, rel_stderr=None)
    t_s = 0.1 * np.arange(count)
    picture = period_picture("short", "short", t_s, np.full(count, 200.0), 0.1, nothing)
    text = svg.file(picture).decode()
    assert "nan" not in text
    assert ElementTree.fromstring(text) is not None


def test_a_directory_for_plots_that_cannot_be_made_is_named(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["period", str(trace), "--plots", "--out", str(trace)]) == 1
    assert f"autocap: no plots can be put into {trace}: File exists; pass another --out" in capsys.readouterr().err


@pytest.mark.parametrize("window", ["0", "-1", "nan", "soon"])
def test_an_impossible_window_is_a_usage_error(trace: Path, window: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["period", str(trace), f"--window={window}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "give a number above 0, in seconds" in err


def test_a_long_trace_without_a_period_is_answered_with_the_option_to_try(tmp_path, capsys) -> None:
    path = tmp_path / "long.csv"
    path.write_text("\n".join(["t_s,power_w", *(f"{n},200" for n in range(1300))]))
    assert main(["period", str(path)]) == 0
    assert "`--window 60` looks at a minute at a time" in capsys.readouterr().err


def test_a_real_process_exits_1_with_one_line_where_the_trace_cannot_be_read(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "autocap", "period", str(tmp_path / "none.csv")]
    done = warm.run(words, cwd=tmp_path, env=os.environ)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"autocap: there is no file {tmp_path}/none.csv; pass a CSV file with columns t_s,power_w\n"
