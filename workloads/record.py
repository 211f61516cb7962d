"""A power trace of one job: `autocap run --observe` around it, and what it sampled as one file.

The trace is a CSV with a row per sample: t_s, seconds of the run; power_w, watts; steps and step_t_s, the optimiser
steps so far and when the last of them ended; and every other column of the run's samples that has a value.
`autocap period` and the replay device read t_s and power_w.
"""

import csv
import gzip
import io
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from autocap.workloads import WorkloadError, WorkloadUsageError

_SAMPLE_HZ = "50"  # each reading of the fastest sensors
_FIRST_COLUMNS = ("t_s", "power_w", "steps", "step_t_s")


def record(out: Path, job: Sequence[str], *, device: str | None, sample_hz: str | None) -> int:
    """Run a job under observation and write its trace to `out`; gives the exit status of the job.

    No cap is changed. device, sample_hz: options of autocap run, `None` for its default and for 50, as autocap takes no
    more samples than it needs itself. Raises WorkloadUsageError for another kind of file, WorkloadError when nothing
    was sampled or the trace cannot be written.
    """
    if not out.name.endswith((".csv", ".csv.gz")):
        raise WorkloadUsageError(f"trace {out} is neither a .csv nor a .csv.gz; name one of these")
    options = [*[f"--device={device}"] * (device is not None), f"--sample-hz={sample_hz or _SAMPLE_HZ}"]
    with tempfile.TemporaryDirectory(prefix="autocap-record-") as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "autocap", "run", "--observe", f"--out={run}", *options, "--", *job]
        status = _finished(command)
        samples = run / "samples.csv.gz"
        if not samples.exists():
            raise WorkloadError(
                f"autocap run ended with status {status} before it sampled anything; no trace is written"
            )
        trace = _trace(gzip.decompress(samples.read_bytes()).decode())
    try:
        out.write_bytes(gzip.compress(trace.encode(), mtime=0) if out.suffix == ".gz" else trace.encode())
    except OSError as error:
        raise WorkloadError(f"trace {out} cannot be written: {error.strerror}; name another file") from error
    return status


def _finished(command: Sequence[str]) -> int:
    """Run a command to its end; its status as a shell gives it."""
    with subprocess.Popen(command) as process, _passed_on(process):
        status = process.wait()
    return 128 - status if status < 0 else status


@contextmanager
def _passed_on(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Meanwhile a signal ends the job, not us: what was recorded until then is still written."""
    # ^C reaches the process as well, by itself: it stands in the terminal's foreground beside us.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number)),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _trace(samples: str) -> str:
    """The samples' columns that hold something, the usual ones first. Raises WorkloadError when power is not there."""
    rows = list(csv.DictReader(io.StringIO(samples)))
    filled = {name for row in rows for name, value in row.items() if value}
    if not {"t_s", "power_w"} <= filled:
        raise WorkloadError("no power was sampled, so there is no trace; pass --device with one that measures it")
    columns = [name for name in _FIRST_COLUMNS if name in filled]
    columns += [name for name in rows[0] if name in filled and name not in _FIRST_COLUMNS]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
