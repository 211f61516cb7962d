"""Sound files of every kind, from which the others are made: a run, a sweep, a trace, curves, a journal entry."""

import gzip
import json
import zlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from autocap import events
from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.devices.simulated.device import SimulatedJob
from autocap.events import Event
from autocap.events.sweep import FinishedRun, GpuSet, PlannedRun, SweepPlan, SweepRunEnded, SweepRunStarted, Used
from autocap.job.processes import ProcessId, boot_id
from autocap.limits.journal import SCHEMA, Entry
from autocap.metrics import Metric
from autocap.records import CapRange, GpuInfo, Sample
from autocap.runlog.directory import SAMPLES, RunDirectory
from autocap.runlog.event_log import EVENTS, line_of
from bench.simulation.jobs import Log, tune

UUID = "EMU-fuzz-0"
_STARTED = "2026-01-01T00:00:00+00:00"
_METRIC = events.MetricInfo(name="eds", k=2.0)
_BOMB_BYTES = 4 << 30
_PIECE_BYTES = 4 << 20
_SPARSE_BYTES = 10 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimens:
    """run, sweep: lines of events.jsonl. samples, trace, curves: CSV, not compressed. entry: of the journal.
    endless: gzip files of 4 MB that unpack to 4 GB, and a sparse one of 10 GB. folder: of a
    whole run."""

    run: tuple[bytes, ...]
    sweep: tuple[bytes, ...]
    samples: bytes
    trace: bytes
    curves: bytes
    entry: dict[str, object]
    endless: tuple[Path, ...]
    folder: Path


class _Kept(Log):
    def __init__(self) -> None:
        super().__init__()
        self.samples: list[Sample] = []

    def sample(self, sample: Sample) -> None:
        self.samples.append(sample)


def make(folder: Path) -> Specimens:
    """Make them; folder: for those that are files."""
    run = folder / "run"
    _tuned(run)
    samples = gzip.decompress((run / SAMPLES).read_bytes())
    lines = samples.splitlines()[:400]
    return Specimens(
        run=tuple((run / EVENTS).read_bytes().splitlines()),
        sweep=tuple(line_of(event).rstrip() for event in _swept()),
        samples=b"\n".join(lines),
        trace=b"t_s,power_w\n" + b"".join(b"%.2f,%d\n" % (n / 10, 250 if n % 12 < 8 else 90) for n in range(400)),
        curves=b"curve,cap_w,power_w,time_s\n"
        + b"".join(b"one,%d,%d,%.2f\n" % (cap_w, cap_w - 5, 300 / cap_w) for cap_w in range(100, 260, 20)),
        entry=_entry(),
        endless=(*_bombs(folder), _sparse(folder)),
        folder=run,
    )


def _tuned(path: Path) -> None:
    log = _Kept()
    job = SimulatedJob(profile=profiles.load("quadro-rtx-6000/resnet50"), iterations=250)
    config = TuneConfig(metric=Metric(name="eds", k=2.0), caps_w=(150.0, 200.0, 230.0))
    outcome = tune(job, config, "linear", log=log)
    gpus = outcome.device.gpus
    start: list[Event] = [
        events.RunStarted(
            t_s=0.0, autocap_version="0", mode="run", command=("python", "train.py"), pid=1, started_at=_STARTED,
            metric=_METRIC, strategy="linear", strategy_options=(events.OptionValue(name="points", value=5),),
        ),
        events.DeviceFound(t_s=0.0, kind="simulated", emulated=True, gpus=gpus, original_w=(260.0,), driver="550.54"),
        events.NodeMetered(t_s=0.1, source="100", whole=False, refresh_s=1.0, idle_w=50.0, standard_idle_w=20.0),
        events.Warned(t_s=0.2, text="something is to be warned of"),
    ]  # fmt: skip
    end: list[Event] = [
        events.LimitRestored(t_s=outcome.wall_s, uuid=gpus[0].uuid, final_w=260.0, restored=True),
        events.RunEnded(t_s=outcome.wall_s, ended_because="the job ended", exit_status=0),
    ]
    with RunDirectory.create(path, False, datetime(2026, 1, 1, tzinfo=UTC)) as directory:
        for event in (*start, *log.events, *end):
            directory.append(event)
        for sample in log.samples:
            directory.sample(sample)


def _swept() -> list[Event]:
    gpu = GpuInfo(index=0, uuid=UUID, name="Emulated", cap_range=CapRange(min_w=100.0, max_w=260.0, default_w=260.0))
    one = GpuSet(label="0", gpus=(gpu,), baseline_w=260.0, caps_w=(260.0, 200.0, 150.0))
    plan = SweepPlan(command=("true",), name="true", device="emulated", emulated=True, sets=(one,), repeats=2)
    found: list[Event] = [
        events.SweepStarted(t_s=0.0, autocap_version="0", started_at=_STARTED, metric=_METRIC, plan=plan, runs_left=7)
    ]
    for number, (cap_w, repeat) in enumerate([(cap_w, n) for n in (1, 2) for cap_w in one.caps_w][:5]):
        run = PlannedRun(gpus="0", cap_w=cap_w, repeat=repeat)
        used = Used(time_s=3000 / cap_w, energy_j=(3000.0 + number,))
        found.append(SweepRunStarted(t_s=20.0 * number, run=run))
        found.append(SweepRunEnded(t_s=20.0 * number + 15, finished=FinishedRun(run=run, used=used, exit_status=0)))
    return [*found, events.RunEnded(t_s=200.0, ended_because="a signal ended the sweep")]


def _entry() -> dict[str, object]:
    """Of a controller that is dead, and a job that is."""
    dead = ProcessId(1 << 21, 12345)
    entry = Entry(
        kind="emulated", uuid=UUID, original_w=260.0, boot_id=boot_id(), owner=dead, job=dead, last_w=200.0,
        next_w=150.0,
    )  # fmt: skip
    return json.loads(json.dumps({"schema": SCHEMA, **asdict(entry)}))  # type: ignore[no-any-return]  # an object


def _bombs(folder: Path) -> list[Path]:
    found = []
    rows = b"1,200\n2,210\n"
    pieces = {"zeros": b"\0" * _PIECE_BYTES, "lines": b"\n" * _PIECE_BYTES, "rows": rows * (_PIECE_BYTES // len(rows))}
    for name, piece in pieces.items():
        packer = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        head = b"t_s,power_w\n" if name == "rows" else b""
        begin = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
        begin += packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
        again = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)  # the same bytes each time after such a flush
        found.append(folder / f"bomb-{name}.csv.gz")
        with open(found[-1], "wb") as file:
            file.write(begin)
            for _ in range(_BOMB_BYTES // _PIECE_BYTES - 1):
                file.write(again)
    return found


def _sparse(folder: Path) -> Path:
    path = folder / "sparse"
    with open(path, "wb") as file:
        file.truncate(_SPARSE_BYTES)
    return path
