"""python -m bench transfer: what is known of a job on one card says of another.

Regret of the cap that a rule chooses on the target card, for networks with published curves on two cards; median errors
of time at the default limit; and how often two stated standard deviations hold, networks or cards left out of the fit.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from autocap.plugins.predict import rule
from bench.transfer import fit
from bench.transfer.cases import TimeCase, cap_pairs, time_cases
from bench.transfer.rules import METRICS, RULES, regrets

_HABITAT_PCT = 11.8  # mean error of time, Yu et al., ATC 2021, abstract; kernel by kernel
_ALPHA = 2.5  # power of the clock with which the card's power goes, for the share that a curve tells


def main(argv: Sequence[str]) -> int:
    """Print the tables; 1 where two standard deviations hold for less than nine of ten."""
    argparse.ArgumentParser(prog="python -m bench transfer", description=__doc__).parse_args(argv)
    pairs = cap_pairs()
    times = [one for one in time_cases() if not _waits(one)]
    print("\n".join([*_regret_table(), "", *_time_table(times), "", *_fitted(times), ""]))
    print("Card and network left out of the fit, Habitat's error of time for comparison")
    print()
    print("| value | cases | pairs of cards | median error % | within two σ % | of the worst pair of cards % |")
    print("|---|---|---|---|---|---|")
    held = fit.left_out(times, pairs)
    for one in sorted(held, key=lambda one: one.what):
        within = f"{100 * one.within:.0f} | {100 * one.least:.0f}"
        print(f"| {one.what} | {one.count} | {one.pairs} | {one.median_pct:.1f} | {within} |")
    print(f"| time at the default limit by Habitat, with kernels | | | {_HABITAT_PCT} (mean) | – | – |")
    return 0 if all(one.within >= 0.9 for one in held) else 1


def _waits(one: TimeCase) -> bool:
    """Whether it is of a network that waits for something else than its card."""
    return any(
        pair[0].network == one.network
        and (rule.waits(pair[0].draw) or rule.waits(pair[1].draw))
        and one.source.model in (pair[0].card, pair[1].card)
        for pair in cap_pairs()
    )


def _regret_table() -> Iterator[str]:
    pairs = cap_pairs()
    yield f"Regret of the cap chosen, mean / 90 % / worst %, over {len(pairs)} pairs of cards with the same network"
    yield ""
    yield f"| rule | pairs | {' | '.join(METRICS)} |"
    yield f"|---|---|{'---|' * len(METRICS)}"
    for name in RULES:
        try:
            found = [regrets(name, metric, pairs) for metric in METRICS]
        except ImportError:
            yield f"| {name} (needs scikit-learn) | – |{' – |' * len(METRICS)}"
            continue
        cells = " | ".join(f"{one.mean:.1f} / {one.p90:.1f} / {one.worst:.1f}" for one in found)
        yield f"| {name} | {found[0].count} | {cells} |"


def _time_table(times: Sequence[TimeCase]) -> Iterator[str]:
    rows: dict[str, Callable[[TimeCase], float]] = {
        "unchanged": lambda one: 0.0,
        "memory bandwidth": lambda one: -np.log(one.target.bandwidth_gb_s / one.source.bandwidth_gb_s),
        "arithmetic rate": lambda one: -np.log(rule.rate(one.target, one.bits) / rule.rate(one.source, one.bits)),
        "autocap predict": lambda one: rule.time_ratio(one.source, one.target, one.bits).log,
    }
    known = [one for one in times if rule.time_ratio(one.source, one.target, one.bits).is_known]
    of_curves = {(pair[0].card, pair[1].card, pair[0].network): fit.curve_of(pair[0]) for pair in cap_pairs()}
    yield f"Error of time at the default limit, median / 90 % (Habitat, with kernels: mean {_HABITAT_PCT} %)"
    yield ""
    yield f"| rule | all {len(times)} | the {len(known)} that are said to be known | those with curves |"
    yield "|---|---|---|---|"
    with_curves = [one for one in times if (one.source.model, one.target.model, one.network) in of_curves]

    def by_curve(one: TimeCase) -> float:
        curve = of_curves[one.source.model, one.target.model, one.network]
        place = int(np.argmin(np.abs(curve.power - 0.8)))
        share = float(np.clip(_ALPHA * np.log(curve.time[place]) / -np.log(curve.power[place]), 0.0, 1.0))
        bandwidth, rate = rows["memory bandwidth"](one), rows["arithmetic rate"](one)
        return float((1 - share) * bandwidth + share * rate)

    for name, told in rows.items():
        yield f"| {name} | {_errors(times, told)} | {_errors(known, told)} | {_errors(with_curves, told)} |"
    yield f"| share from the measured curve | – | – | {_errors(with_curves, by_curve)} |"


def _errors(times: Sequence[TimeCase], told: Callable[[TimeCase], float]) -> str:
    misses = [100 * abs(np.expm1(one.log_ratio - told(one))) for one in times]
    return f"{np.median(misses):.1f} / {np.quantile(misses, 0.9):.1f}"


def _fitted(times: Sequence[TimeCase]) -> Iterator[str]:
    found = fit.fit(times, cap_pairs())
    yield (
        f"Fitted to all: weight {found.weight:.3f}, base {found.base:.4f}, per_gap {found.per_gap:.4f}, draw "
        f"{found.draw:.4f}, power {found.power:.3f}, time {found.time:.3f}, energy {found.energy:.3f}"
    )
