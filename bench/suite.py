"""`python -m bench suite`: the networks of the papers under every strategy, on a real GPU or the emulated device.

Each network is trained once per strategy through `autocap run --json`, and one table comes out in the format of
Krzywaniak et al. 2022, table 2: for each network the limit found on arrival and what each strategy made of it, as
average power, and energy and time of one epoch of 32,000 samples. Beside the paper's columns stands what the whole
job, search and all, spent against as many iterations at that limit.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autocap.errors import UsageError
from autocap.records import Measurement
from autocap.reports.summary.record import ChosenSummary, DeviceSummary, Totals, VersusBaseline
from autocap.strategies.options import options_of
from autocap.wire.codec import decode
from autocap.workloads import WorkloadError
from autocap.workloads.models import NETWORKS, find
from bench.common import markdown
from bench.simulation.jobs import COMPARISONS, every
from bench.simulation.jobs import find as strategy_named

_EPOCH_SAMPLES = 32_000
_HEADINGS = (
    *("network", "strategy", "power cap [W]", "average power [W]", "energy [kJ]", "vs default [%]"),
    *("time [s]", "vs default [%]", "whole job, energy [%]"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One network to train under one strategy."""

    network: str
    strategy: str
    batch_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """As much of the result that `autocap run --json` prints as the table needs."""

    ended_because: str
    device: DeviceSummary | None
    baseline: Measurement | None
    chosen: ChosenSummary | None
    totals: Totals | None
    versus_baseline: VersusBaseline | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A job that ran. failure: why there is no result, or why nothing was measured."""

    job: Job
    result: Result | None
    failure: str | None


def main(argv: Sequence[str]) -> int:
    """Run the suite; 0 when every job gave a result, 1 when one did not, 2 when the command line is wrong."""
    arguments = _parser().parse_args(argv)
    try:
        jobs = _jobs(arguments)
    except (UsageError, WorkloadError) as error:
        print(f"python -m bench suite: {error}", file=sys.stderr)
        return 2
    arguments.out.mkdir(parents=True, exist_ok=True)
    finished = []
    for number, job in enumerate(jobs, start=1):
        print(f"{number}/{len(jobs)} {job.network} under {job.strategy}", file=sys.stderr, flush=True)
        finished.append(run(job, arguments))
        # After each job: hours of measurements are not to be lost to the last of them.
        (arguments.out / "table.md").write_text(table(finished))
    print(table(finished), end="")
    for each in finished:
        if each.failure is not None:
            print(f"{each.job.network} under {each.job.strategy}: {each.failure}", file=sys.stderr)
    return 1 if any(each.failure for each in finished) else 0


def run(job: Job, arguments: argparse.Namespace) -> Finished:
    """Train one network through `autocap run`; its run directory stands beside the others in --out."""
    folder = arguments.out / f"{job.network}-{job.strategy.replace(':', '.')}"
    command = [sys.executable, "-m", "autocap", "run", "--json", "--no-memory", "--force", "--out", str(folder)]
    command += ["--device", arguments.device, "--metric", arguments.metric]
    command += ["--strategy", COMPARISONS.get(job.strategy, job.strategy)]
    command += [f"--k={arguments.k}"] if arguments.metric == "eds" else []
    command += [word for option in arguments.run_option for word in option.split()]
    command += ["--", sys.executable, "-m", "autocap.workloads", "train", job.network]
    command += ["--seconds", f"{arguments.seconds:g}", "--batch-size", str(job.batch_size), *arguments.train]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = process.stdout.splitlines()
    if process.returncode != 0:
        return Finished(job=job, result=None, failure=f"autocap run ended with status {process.returncode}")
    try:
        result = decode(Result, json.loads(lines[-1]))
    except (IndexError, ValueError, TypeError):
        return Finished(job=job, result=None, failure="autocap run printed no result")
    unmeasured = f"nothing was measured: {result.ended_because}" if result.baseline is None else None
    return Finished(job=job, result=result, failure=unmeasured)


def table(finished: Sequence[Finished]) -> str:
    """The finished jobs as a Markdown table, each network's under the limit found on arrival."""
    lines = list(markdown(*_HEADINGS))
    for network in dict.fromkeys(each.job.network for each in finished):
        rows = _rows([each for each in finished if each.job.network == network])
        lines += [f"| {' | '.join(cells)} |" for cells in rows]
    emulated = any(each.result and each.result.device and each.result.device.emulated for each in finished)
    notes = "\nEmulated device: power is modelled, not measured.\n" if emulated else ""
    return "\n".join(lines) + "\n" + notes


def _rows(finished: Sequence[Finished]) -> Iterator[Sequence[str]]:
    network, batch_size = finished[0].job.network, finished[0].job.batch_size
    baselines = [each.result.baseline for each in finished if each.result and each.result.baseline]
    if baselines:
        # Every job measured it anew; the first stands for all, and each is compared with its own.
        yield (network, "default", *_measured(baselines[0], None, batch_size), "-")
    for each in finished:
        result = each.result
        if result is None or result.baseline is None:
            yield (network, each.job.strategy, "failed", *[""] * 6)
            continue
        kept = result.chosen.measurement if result.chosen else None
        cells = _measured(kept or result.baseline, result.versus_baseline if kept else None, batch_size)
        yield (network, each.job.strategy, *cells, _whole_job(result))


def _measured(measurement: Measurement, versus: VersusBaseline | None, batch_size: int) -> tuple[str, ...]:
    iterations = _EPOCH_SAMPLES / batch_size
    return (
        " ".join(f"{cap_w:g}" for cap_w in measurement.setting),
        f"{measurement.power_w:.1f}",
        f"{iterations * measurement.energy_per_iteration_j / 1e3:.3f}",
        _percent(versus.energy_pct, versus.energy_stderr_pct) if versus else "-",
        f"{iterations * measurement.period_s:.1f}",
        _percent(versus.time_pct, versus.time_stderr_pct) if versus else "-",
    )


def _whole_job(result: Result) -> str:
    """Energy of the whole job against as many iterations at the baseline, percent."""
    versus, totals, baseline = result.versus_baseline, result.totals, result.baseline
    if versus is None or versus.net_energy_j is None or totals is None or baseline is None or not totals.iterations:
        return "-"
    expected_j = totals.iterations * baseline.energy_per_iteration_j
    return _percent(100 * versus.net_energy_j / expected_j, None)


def _percent(value: float | None, stderr: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:+.1f}" if stderr is None else f"{value:+.1f} ± {stderr:.1f}"


def _jobs(arguments: argparse.Namespace) -> list[Job]:
    """Raises UsageError or WorkloadError for a name that nobody knows."""
    strategies = arguments.strategies.split(",") if arguments.strategies else _ready_strategies()
    for strategy in strategies:
        strategy_named(strategy)
    networks = [find(name) for name in arguments.networks.split(",")]
    return [
        Job(network=network.name, strategy=strategy, batch_size=arguments.batch_size or network.batch_size)
        for network in networks
        for strategy in strategies
    ]


def _ready_strategies() -> list[str]:
    """Those that need no option."""
    factories = {name: strategy_named(name) for name in every()}
    return [name for name, factory in factories.items() if not any(option.required for option in options_of(factory))]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench suite", description=__doc__, allow_abbrev=False)
    parser.add_argument("--networks", default=",".join(NETWORKS), metavar="LIST", help="by comma (default: all)")
    parser.add_argument(
        "--strategies", metavar="LIST", help="by comma (default: all that are built in and need no option)"
    )
    parser.add_argument("--device", default="nvml", metavar="NAME", help="of autocap run (default nvml)")
    parser.add_argument("--metric", default="eds", metavar="NAME", help="what to minimise (default eds)")
    parser.add_argument("--k", type=float, default=2.0, metavar="K", help="of EDS (default 2)")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="length of each job (default 600)")
    parser.add_argument("--batch-size", type=int, metavar="N", help="samples per step (default: the papers')")
    parser.add_argument("--out", type=Path, default=Path("suite"), metavar="DIR", help="runs and table (default suite)")
    parser.add_argument(
        "--run-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="another option of autocap run, as one word: '--run-option=--target-stderr 1%%'; may be repeated",
    )
    parser.add_argument(
        "train", nargs="*", metavar="OPTION", help="after --: options of python -m autocap.workloads train"
    )
    return parser
