"""python -m bench gate: do 192 seeded jobs say, at this commit, what they said at another?

Each job runs in virtual time, and all that it announced is hashed: events, and what budgets and recurring jobs
decided. `--out FILE` writes a digest a job, `--against FILE` compares with those of another commit, and `--logs DIR`
keeps what was hashed, one file a job, for a look at what differs. A change that is meant to alter nothing but names
brings a map of them (`--map FILE`, JSON), by which today's logs are read before they are hashed:

    {"names": {"today's key or kind of event": "the one before"},
     "texts": {"a part of a sentence today": "the one before"},
     "added": ["a key that was not there before"]}

Numbers are compared to nine digits, so that a sum in another order is the same.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from autocap.config import TuneConfig
from autocap.devices.model import profile_names, profiles
from autocap.devices.model.profiles import Profile
from autocap.events import Event
from autocap.events.quote import PRICE
from autocap.metrics import DEFAULT_K, Metric
from autocap.plugins.fleet.config import Policy
from autocap.runlog.event_log import line_of
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import SimulatedNode
from bench.budget.live import Manager
from bench.cluster.network import Network
from bench.cluster.virtual import CountingLog, on_nodes
from bench.period import jobs as period_jobs
from bench.prices.command import HOUR_S, known, swinging
from bench.recurring.rules import Case as Recurring
from bench.recurring.rules import play as recurrences
from bench.recurring.workloads import prices, workloads
from bench.scenarios import noisy
from bench.scenarios import runs as scenarios
from bench.simulation.jobs import Log, tune
from bench.strategies.curve_cases import metric_named

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]
Lines = list[dict[str, Value]]

_DIGITS = 9
_LISTED = 12
_METRICS = ("energy", "edp", "eds")
_STRATEGIES = ("model", "golden", "linear", "bayesian", "bandit", "model")
_LONG_S, _SHORT_S = 900.0, 400.0


@dataclass(frozen=True, slots=True)
class Renames:
    """What today's names and texts were before. added: keys that were not there."""

    names: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    added: Sequence[str] = ()

    def before(self, value: Value) -> Value:
        """A value as it would have been written then, numbers to nine digits."""
        match value:
            case dict():
                return {
                    self.names.get(name, name): self.before(one)
                    for name, one in value.items()
                    if name not in self.added
                }
            case list():
                return [self.before(one) for one in value]
            case str():
                for new, old in self.texts.items():
                    value = value.replace(new, old)
                return self.names.get(value, value)
            case float():
                return float(f"{value:.{_DIGITS}g}")
        return value


def events_of(log: Log) -> Lines:
    """A log, event by event."""
    return list(map(_line, log.events))


def _line(event: Event) -> dict[str, Value]:
    line: dict[str, Value] = json.loads(line_of(event))
    return line


def _scenario(seed: int) -> Lines:
    scenario = scenarios.draw(9000 + seed)
    scenario = scenarios.constrained(scenario) if seed % 3 == 0 else scenario
    scenario = scenarios.starved(scenario) if seed % 2 else scenario
    job, config = scenario.job, TuneConfig(metric=scenario.metric)
    return events_of(
        tune(
            job, config, "model", node=scenario.node, seed=scenario.seed, starvation=scenario.starvation, end_s=_LONG_S
        ).log
    )


def _noisy(seed: int) -> Lines:
    drawn = noisy.draw(9000 + seed)
    return events_of(
        tune(drawn.job, TuneConfig(metric=drawn.metric), "model", node=drawn.node, seed=seed, end_s=_LONG_S).log
    )


def _curve(seed: int) -> Lines:
    profile, rng = _profile(seed), np.random.default_rng([seed, 1])
    config = TuneConfig(metric=_metric(seed))
    job = SimulatedJob(profile=profile, jitter=float(rng.uniform(0.0, 0.05)))
    strategy = _STRATEGIES[seed % len(_STRATEGIES)]
    return events_of(tune(job, config, strategy, seed=seed, end_s=_LONG_S, stop_when_held=True).log)


def _ceiling(seed: int) -> Lines:
    """Ceilings that a budget moves."""
    profile, rng = _profile(seed), np.random.default_rng([seed, 2])
    lowest, highest = profile.cap_range.min_w, profile.cap_range.default_w
    moved_s = np.sort(rng.uniform(0.0, 0.8, 4)) * _SHORT_S
    grants = [(float(t_s), float(rng.uniform(lowest, highest))) for t_s in moved_s]
    job, config = SimulatedJob(profile=profile, jitter=0.01), TuneConfig(metric=_metric(seed))
    strategy = _STRATEGIES[seed % len(_STRATEGIES)]
    return events_of(tune(job, config, strategy, seed=seed, end_s=_SHORT_S, grants=[*grants, (350.0, None)]).log)


def _price(seed: int) -> Lines:
    """A job of three hours, whose price moves."""
    hours = swinging(1, 0.5)[6:9]
    config = TuneConfig(metric=Metric(name="cost", hour_price=0.1 if seed % 2 else None, moving=True))
    quotes = [(HOUR_S * hour, PRICE, known(hours, hour)) for hour in range(len(hours))]
    job = SimulatedJob(profile=_profile(seed))
    return events_of(tune(job, config, "model", seed=seed, quotes=quotes, end_s=HOUR_S * len(hours)).log)


def _period(seed: int) -> Lines:
    cases = list(period_jobs.cases(range(9000 + seed, 9001 + seed), disturbed=bool(seed % 2)))
    return events_of(period_jobs.tuned_by_period(cases[7 * seed % len(cases)], end_s=_SHORT_S).log)


def _per_gpu(seed: int) -> Lines:
    config = TuneConfig(metric=_metric(seed), per_gpu=True)
    node = SimulatedNode(gpus=4, efficiency_spread=0.05)
    job = SimulatedJob(profile=_profile(seed), jitter=0.01)
    return events_of(tune(job, config, "model", node=node, seed=seed, end_s=_LONG_S, stop_when_held=True).log)


def _nodes(seed: int) -> Lines:
    nodes = 2 + seed % 3
    job = SimulatedJob(profile=_profile(seed), iterations=400)
    cards = SimulatedNode(gpus=2 * nodes, efficiency_spread=0.03)
    network, log = Network(delay_s=(0.001, 0.1), lost=0.01), CountingLog()
    on_nodes(job, cards, nodes, 2, network, TuneConfig(metric=_metric(seed)), seed, log=log)
    return events_of(log)


def _budget(seed: int) -> Lines:
    """Twelve jobs under one budget: what each announced, and how it went."""
    manager = Manager(tuple(Policy)[seed % len(Policy)], seed, cold=bool(seed % 2))
    came = asdict(manager.play(free_s=90.0, under_s=120.0, dropped_s=20.0))
    lines = [{"job": name, **line} for name, job in manager.jobs.items() for line in events_of(job.log)]
    return [*lines, {"event": "play", **{name: str(value) for name, value in came.items()}}]


def _recurring(seed: int) -> Lines:
    names, kinds = list(workloads()), list(prices().values())
    case = Recurring(
        workload=workloads()[names[seed % len(names)]],
        price=kinds[seed % len(kinds)],
        drift="gradual" if seed % 3 == 0 else "none",
        capped=bool(seed % 2),
    )
    story = recurrences(case, "autocap", seed, 30)
    return [{"event": "recurrence", "spent": float(spent)} for spent in story.spent]


KINDS: dict[str, tuple[int, Callable[[int], Lines]]] = {
    "scenario": (40, _scenario),
    "noisy": (24, _noisy),
    "curve": (36, _curve),
    "ceiling": (24, _ceiling),
    "price": (8, _price),
    "period": (24, _period),
    "per-gpu": (6, _per_gpu),
    "nodes": (8, _nodes),
    "budget": (6, _budget),
    "recurring": (16, _recurring),
}


def jobs(kinds: Iterable[str] = KINDS) -> Iterator[str]:
    """The names of the jobs, such as `curve-7`."""
    return (f"{kind}-{seed}" for kind in kinds for seed in range(KINDS[kind][0]))


def play(name: str) -> Lines:
    """All that one job announced."""
    kind, _, seed = name.rpartition("-")
    return KINDS[kind][1](int(seed))


def text_of(lines: Lines, renames: Renames) -> str:
    """What is hashed."""
    return "".join(json.dumps(renames.before(dict(line)), sort_keys=True) + "\n" for line in lines)


def _hashed(name: str, renames: Renames, logs: Path | None) -> str:
    text = text_of(play(name), renames)
    if logs is not None:
        (logs / f"{name}.jsonl").write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main(argv: Sequence[str]) -> int:
    """Play the jobs; 1 where one says something else than at the other commit."""
    parser = argparse.ArgumentParser(
        prog="python -m bench gate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the digests")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with these")
    parser.add_argument("--map", type=Path, metavar="FILE", help="of the names that changed")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep what was hashed")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"by comma, of {', '.join(KINDS)} (default: all)")
    args = parser.parse_args(argv)
    kinds = args.kinds.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        parser.error(f"there is no kind {unknown[0]!r}; choose of {', '.join(KINDS)}")
    renames = Renames(**json.loads(args.map.read_text())) if args.map else Renames()
    if args.logs is not None:
        args.logs.mkdir(parents=True, exist_ok=True)
    began_s, names = time.monotonic(), list(jobs(kinds))
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        hashed = pool.map(partial(_hashed, renames=renames, logs=args.logs), names)
        digests = dict(zip(names, hashed, strict=True))
    if args.out is not None:
        args.out.write_text(json.dumps(digests, indent=1) + "\n")
    print(f"{len(digests)} jobs, {time.monotonic() - began_s:.0f} s; all of them: {_digest(digests)}")
    return 0 if args.against is None else _compared(digests, json.loads(args.against.read_text()))


def _compared(digests: Mapping[str, str], before: Mapping[str, str]) -> int:
    other = [name for name, digest in digests.items() if before.get(name) != digest]
    counts = Counter(name.rpartition("-")[0] for name in other)
    print(
        f"{len(digests) - len(other)} say what they said"
        + "".join(f"; {n} {kind} do not" for kind, n in counts.items())
    )
    if other:
        print(f"others: {', '.join(other[:_LISTED])}{' …' * (len(other) > _LISTED)}", file=sys.stderr)
    return int(bool(other))


def _digest(digests: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:16]


def _profile(seed: int) -> Profile:
    names = profile_names()
    return profiles.load(names[seed % len(names)])


def _metric(seed: int) -> Metric:
    return metric_named(_METRICS[seed % len(_METRICS)], DEFAULT_K)
