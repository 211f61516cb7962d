"""A simulated job's run directory, as a real one would have been left behind."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.events import DeviceFound, Event, LimitRestored, MetricInfo, RunEnded, Sourced
from autocap.events.quote import PRICE, Quote
from autocap.metrics import NO_RATES, Metric, Rates
from autocap.records import GpuInfo, Sample
from autocap.runlog.directory import RunDirectory
from autocap.testing.simulated.job import SimulatedJob
from bench.simulation.jobs import Log, tune
from tests.doubles.logs import STARTED

EDS = Metric(name="eds", k=2.0)
COMMAND = (
    "python",
    "train.py",
    "--name=<script>alert(1)</script>&\udcff",
)  # text that a page must not take for its own


class Kept(Log):
    def __init__(self) -> None:
        super().__init__()
        self.samples: list[Sample] = []

    def sample(self, sample: Sample) -> None:
        self.samples.append(sample)


def record(
    path: Path,
    *,
    observe: bool = False,
    strategy: str = "model",
    rates: Rates = NO_RATES,
    metric: Metric = EDS,
    quotes: Sequence[tuple[float, str, Quote | None]] = (),
    iterations: int = 900,
) -> Path:
    """Tune a job on the simulated device and keep what it said in a run directory. quotes: of prices in EUR and of
    carbon, as `tune` takes them."""
    log, gpus, wall_s = _tuned(observe, strategy, metric, tuple(quotes), iterations)
    start: list[Event] = [
        replace(
            STARTED, command=COMMAND, metric=MetricInfo.of(metric), strategy=strategy, observe=observe, rates=rates
        ),
        DeviceFound(t_s=0.0, kind="simulated", emulated=True, gpus=gpus, original=(260.0,)),
        *(
            Sourced(t_s=0.0, kind=kind, source=f"'file:{kind}.csv'", currency="EUR" if kind == PRICE else None)
            for kind in dict.fromkeys(kind for _, kind, _ in quotes)
        ),
    ]
    end: list[Event] = [
        LimitRestored(t_s=wall_s, uuid=gpus[0].uuid, final=260.0, restored=True),
        RunEnded(t_s=wall_s, ended_because="the job ended", exit_status=0),
    ]
    with RunDirectory.create(path, False, datetime(2026, 1, 1, tzinfo=UTC)) as directory:
        for event in (*start, *log.events, *end):
            directory.append(event)
        for sample in log.samples:
            directory.sample(sample)
    return path


@cache
def _tuned(
    observe: bool, strategy: str, metric: Metric, quotes: tuple[tuple[float, str, Quote | None], ...], iterations: int
) -> tuple[Kept, tuple[GpuInfo, ...], float]:
    """What was kept of it, on which devices, and how long it took, seconds; many tests look at the same run."""
    log = Kept()
    job = SimulatedJob(profile=profiles.load("quadro-rtx-6000/resnet50"), iterations=iterations)
    outcome = tune(job, TuneConfig(metric=metric, observe=observe), strategy, log=log, quotes=quotes)
    return log, outcome.device.gpus, outcome.wall_s
