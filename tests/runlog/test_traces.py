"""Recorded traces: which readings count, at which time, and what is said of a file that is none."""

import gzip
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from autocap.devices.model.sensor import PRESETS, PowerSensor
from autocap.records import Reading, Sample
from autocap.runlog.directory import SAMPLES, RunDirectory
from autocap.runlog.traces import Trace, TraceError, read


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def table(t_s: list[float] | np.ndarray, power_w: list[float] | np.ndarray) -> str:
    rows = [f"{t:.6f},{w:.4f}" for t, w in zip(t_s, power_w, strict=True)]
    return "\n".join(["t_s,power_w", *rows]) + "\n"


def noisy(count: int, *, step_s: float = 0.1, start_s: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Fresh readings, evenly spaced."""
    return start_s + step_s * np.arange(count), 200.0 + np.random.default_rng(1).standard_normal(count)


def refused(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        read(path)
    return str(caught.value)


def test_readings_are_read_by_column_name_whatever_stands_beside_them(tmp_path: Path) -> None:
    text = "\ufeffhost, power_w ,t_s\r\na,101.5,1\r\nb,102.5,2\r\n\r\nc,103.5,3\r\nd,104.5,4\r\ne,105.5,5.5\r\n"
    trace = read(written(tmp_path, text))
    assert trace.t_s.tolist() == [1, 2, 3, 4, 5.5]
    assert trace.power_w.tolist() == [101.5, 102.5, 103.5, 104.5, 105.5]
    assert (trace.start_s, trace.end_s) == (1.0, 5.5)
    assert trace.notes == ()


def test_gzip_is_known_by_its_content_and_not_by_its_name(tmp_path: Path) -> None:
    text = table(*noisy(20))
    path = tmp_path / "trace.csv"
    path.write_bytes(gzip.compress(text.encode()))
    assert read(path).t_s.tolist() == read(written(tmp_path, text, "plain.csv.gz")).t_s.tolist()


def test_what_was_written_before_a_gzip_file_breaks_off_is_used_without_the_line_that_is_cut(tmp_path: Path) -> None:
    t_s, power_w = noisy(3000)
    data = gzip.compress(table(t_s, power_w).encode())
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(data[: len(data) // 2])
    trace = read(path)
    count = len(trace.t_s)
    assert 1000 < count < 2000
    assert trace.t_s == pytest.approx(t_s[:count], abs=1e-6)
    assert trace.power_w == pytest.approx(power_w[:count], abs=1e-4)
    assert trace.notes == ("the gzip file breaks off: what comes before that is used",)


def test_rows_without_a_reading_are_gaps_and_said_to_be(tmp_path: Path) -> None:
    text = "t_s,power_w\n1,101\n2,0\n3,\n4,N/A\n5,nan\n6,102\n,103\n7,103\n8,inf\n9,104\n10,105\n11"
    trace = read(written(tmp_path, text))
    assert trace.t_s.tolist() == [1, 6, 7, 9, 10]
    assert trace.notes == ("7 of 12 rows hold no reading above 0 W: they are gaps",)


def test_stamps_that_do_not_increase_are_left_out_and_said_to_be(tmp_path: Path) -> None:
    trace = read(written(tmp_path, table([1, 2, 2, 1.5, 3, 4, 5], [100, 101, 102, 103, 104, 105, 106])))
    assert trace.t_s.tolist() == [1, 2, 3, 4, 5]
    assert trace.power_w.tolist() == [100, 101, 104, 105, 106]
    assert trace.notes == ("2 of 7 rows are left out: their stamps do not increase",)


def test_a_readings_own_stamp_is_preferred_and_an_unchanged_one_is_a_repeat(tmp_path: Path) -> None:
    rows = [f"{0.05 * n:.3f},{150 + n // 2},{0.1 * (n // 2) - 0.03:.3f}" for n in range(200)]
    trace = read(written(tmp_path, "\n".join(["t_s,power_w,read_t_s", *rows])))
    assert trace.t_s == pytest.approx(0.1 * np.arange(100) - 0.03)
    assert trace.power_w.tolist() == [150 + n for n in range(100)]
    assert (trace.update_s, trace.notes) == (pytest.approx(0.1), ())


def test_t_s_is_used_where_the_readings_own_stamp_was_never_written(tmp_path: Path) -> None:
    rows = [f"{n},{100 + n}," for n in range(30)]
    assert read(written(tmp_path, "\n".join(["t_s,power_w,read_t_s", *rows]))).t_s.tolist() == list(range(30))


@pytest.mark.parametrize("poll_s", [0.1, 0.07, 0.05, 0.02])
def test_the_sensors_update_is_found_however_often_it_was_polled(tmp_path: Path, poll_s: float) -> None:
    updates_s, power_w = noisy(300)
    t_s = np.arange(0.001, 29.9, poll_s)
    held = power_w[np.searchsorted(updates_s, t_s, side="right") - 1]
    trace = read(written(tmp_path, table(t_s, held)))
    assert trace.update_s == pytest.approx(0.1, rel=0.06)
    assert len(trace.t_s) == pytest.approx(299, abs=3)


def test_a_reading_that_comes_late_leaves_no_stale_row_before_it(tmp_path: Path) -> None:
    updates_s, power_w = noisy(300)
    late_s = updates_s + np.random.default_rng(2).uniform(0.0, 0.012, 300)
    power_w[100] = power_w[99]  # shows the same again: fresh all the same
    t_s = np.arange(0.013, 29.9, 0.0076)
    trace = read(written(tmp_path, table(t_s, power_w[np.searchsorted(late_s, t_s, side="right") - 1])))
    assert np.diff(trace.t_s).min() > 0.08
    assert np.diff(trace.t_s).max() < 0.12
    np.testing.assert_allclose(trace.power_w, power_w[: len(trace.power_w)], atol=1e-4)
    assert len(trace.power_w) == 299


def test_readings_that_recur_exactly_are_all_fresh(tmp_path: Path) -> None:
    t_s = 0.1 * np.arange(300)
    trace = read(written(tmp_path, table(t_s, np.where(t_s % 1.0 < 0.45, 120.0, 240.0))))
    assert trace.update_s == pytest.approx(0.1)
    assert len(trace.t_s) == 300


def test_steps_of_the_energy_counter_are_a_witness_of_the_power_between_them(tmp_path: Path) -> None:
    rows = [f"{0.05 * n:.3f},{200 + n % 7},{1000 + 20 * (n // 2)},{n % 2}" for n in range(100)]
    trace = read(written(tmp_path, "\n".join(["t_s,power_w,energy_j,utilisation", *rows])))
    energy, (utilisation,) = trace.counted, trace.witnesses
    assert energy[0] == pytest.approx(0.1 * np.arange(2, 50))
    assert energy[1] == pytest.approx(np.full(48, 200.0))
    assert utilisation[1].tolist() == [n % 2 for n in range(100)]


def test_a_counter_that_starts_anew_gives_no_negative_power(tmp_path: Path) -> None:
    rows = [f"{n},{200 + n},{100 * (n % 40) + 7}" for n in range(80)]
    counted = read(written(tmp_path, "\n".join(["t_s,power_w,energy_j", *rows]))).counted
    _, watts = counted
    assert len(watts) > 70
    assert watts.min() > 0


def recorded(folder: Path, devices: int) -> Trace:
    """A run directory's samples of devices that each draw a square wave, read back."""
    edges_s = np.arange(0.0, 30.01, 0.5)
    true_w = np.where(np.arange(60) % 2, 100.0, 200.0)
    sensors = [PowerSensor(PRESETS["turing"], np.random.default_rng(n)) for n in range(devices)]
    read_out = [sensor.advance(edges_s, true_w) for sensor in sensors]
    with RunDirectory.create(folder / "run", False, datetime.now(UTC)) as run:
        for t_s in np.arange(0.5, 30.0, 0.05):
            readings = []
            for device in read_out:
                last = int(np.searchsorted(device.t_s, t_s, side="right")) - 1
                tick = int(np.searchsorted(device.energy_t_s, t_s, side="right")) - 1
                readings.append(
                    Reading(
                        t_s=float(device.t_s[last]),
                        power_w=float(device.power_w[last]),
                        energy_j=float(device.energy_j[tick]),
                    )
                )
            run.sample(Sample(t_s=float(t_s), readings=tuple(readings)))
    return read(folder / "run" / SAMPLES)


def test_the_samples_of_a_run_directory_are_a_trace(tmp_path: Path) -> None:
    trace = recorded(tmp_path, devices=1)
    assert trace.update_s == pytest.approx(0.101, rel=0.02)
    assert len(trace.t_s) == pytest.approx(292, abs=5)
    t_s, watts = trace.counted
    assert t_s[-1] > 29
    assert watts.mean() == pytest.approx(150, rel=0.03)


def test_several_devices_are_taken_together(tmp_path: Path) -> None:
    trace = recorded(tmp_path, devices=2)
    assert trace.power_w.mean() == pytest.approx(300, rel=0.03)
    assert trace.counted[1].mean() == pytest.approx(300, rel=0.03)


def test_windows_follow_each_other_and_hold_every_reading_once(tmp_path: Path) -> None:
    rows = [f"{0.1 * n:.1f},{200 + n % 13 / 7},{20 * n}" for n in range(601)]
    trace = read(written(tmp_path, "\n".join(["t_s,power_w,energy_j", *rows])))
    parts = trace.split(25.0)
    assert [(part.start_s, part.end_s) for part in parts] == [(0.0, 25.0), (25.0, 50.0), (50.0, 60.0)]
    assert np.concatenate([part.t_s for part in parts]).tolist() == trace.t_s.tolist()
    assert sum(len(part.counted[0]) for part in parts if part.counted is not None) == len(trace.counted[0])
    assert all(part.update_s == trace.update_s for part in parts)


def test_a_rest_of_a_few_readings_belongs_to_the_last_window(tmp_path: Path) -> None:
    parts = read(written(tmp_path, table(*noisy(603)))).split(20.0)
    assert [part.start_s for part in parts] == [0.0, 20.0, 40.0]
    assert parts[-1].end_s == pytest.approx(60.2)
    assert sum(len(part.t_s) for part in parts) == 603


def test_windows_shorter_than_the_time_between_readings_are_refused(tmp_path: Path) -> None:
    trace = read(written(tmp_path, table(*noisy(100))))
    with pytest.raises(TraceError, match=re.escape("a window of 0.01 s is shorter than the 0.1 s between readings")):
        trace.split(0.01)


@pytest.mark.slow
def test_more_windows_than_anybody_reads_are_refused_before_they_are_made(tmp_path: Path) -> None:
    stamps_s = [0.1 * row for row in range(100)] + [30_000 + 0.1 * row for row in range(9)]
    rows = [f"{t_s},{200 + number % 7}" for number, t_s in enumerate(stamps_s)]
    trace = read(written(tmp_path, "\n".join(["t_s,power_w", *rows])))
    message = (
        "windows of 1 s cut the trace's 30001 s into 30001 parts; at most 10000 are looked at, "
        "pass --window 3.03 or more"
    )
    with pytest.raises(TraceError, match=f"^{message}$"):
        trace.split(1.0)
    assert len(trace.split(3.03)) <= 10_000


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    assert refused(path) == f"there is no file {path}; pass a CSV file with columns t_s,power_w"


def test_a_directory_is_answered_with_the_file_to_pass(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path} is a directory; pass a file, such as {tmp_path / 'samples.csv.gz'}"


T_S, POWER_W = noisy(100)
RENAME = "rename those that hold the time in seconds and the power in watts to t_s and power_w"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (bytes(range(256)), " is not CSV: it is not text; pass a CSV file, which may be gzipped"),
        ("t_s,power_w\n1,2\n".encode("utf-16"), " is not CSV: it is not text; pass a CSV file, which may be gzipped"),
        (b"", " is empty; pass a CSV file with columns t_s,power_w"),
        (b"\n\n", " is empty; pass a CSV file with columns t_s,power_w"),
        (b"t_s,watts\n1,2\n", f" has no column power_w; {RENAME}"),
        (b"1;2\n", f" has no column t_s and no column power_w; {RENAME}"),  # not a word of what is there
        (gzip.compress(table(T_S, POWER_W).encode())[:12], " is a damaged gzip file: not one line can be read from it"),
        (
            b"t_s,power_w\n1,100\n2,101\n3,0\n4,\n5,102\n6,103\n",
            " holds 4 readings above 0 W in 6 rows; at least 5 are needed, and some dozens to find a period",
        ),
        (
            table(T_S[::-1], POWER_W).encode(),
            ": 99 of 100 stamps do not increase; sort the rows by t_s, in seconds",
        ),
        (
            table(np.append(T_S, 1e12), np.append(POWER_W, 200.0)).encode(),
            ": stamps run over 1e+12 s with a reading every 0.1 s; cut the trace at its gaps",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_no_trace_is_refused_in_a_sentence(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(data)
    assert refused(path) == f"{path}{said}"
