"""python -m bench machines: whole jobs on machines drawn at random from what drivers, firmware, containers and other
agents do, in virtual time; and what became of each."""

import argparse
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from autocap import events
from autocap.config import STRATEGY, TuneConfig
from autocap.devices.model import profiles
from autocap.metrics import Metric
from bench import common
from bench.common import be_quiet
from bench.faults.virtual import Report, play
from bench.machines.drawn import SLOW, Drawn, drawn, pairs

_HELD_UP_S = 1.0  # a card: in virtual time cards are set one after the other, and two of them in 2 s
_WITHIN_S = 300.0  # real seconds, of one job
_LEAST = 1e-4  # that an error is taken to be


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """tuned: a cap was kept, or the limit found confirmed. why: the last word. complaints: what went wrong, each with
    its kind before a colon. off: by how many of their errors the stated energy and time differ from what they are."""

    drawn: Drawn
    tuned: bool
    why: str
    complaints: tuple[str, ...]
    off: tuple[float, ...]
    took_s: float
    said: tuple[str, ...]


def played(one: Drawn) -> Played:
    began_s = time.monotonic()
    report = play(
        one.machine,
        lambda stage: None if one.lost is None else stage.fail_also(one.lost),
        tune=TuneConfig(metric=Metric(name=one.metric, k=2.0 if one.metric == "eds" else None)),
        strategy=STRATEGY,
        sample_hz=None,
        within_s=_WITHIN_S,
    )
    decided = [event for event in report.events if isinstance(event, events.Decided)]
    tuned = bool(decided)
    off = tuple(_off(one, event) for event in decided if event.measurement is not None and event.baseline is not None)
    flat = tuple(number for pair in off for number in pair)
    return Played(
        drawn=one,
        tuned=tuned,
        why=report.said[-1],
        complaints=tuple(_complaints(one, report, tuned)),
        off=flat,
        took_s=time.monotonic() - began_s,
        said=report.said,
    )


def _complaints(one: Drawn, report: Report, tuned: bool) -> list[str]:
    found = []
    if report.raised is not None:
        found.append(f"error: {report.raised}")
    if report.hung is not None:
        found.append(f"hang: {report.hung}")
    is_slow = SLOW in one.manners  # where time is real a reading has a thread of its own
    if report.held_up_s > _HELD_UP_S * max(2, len(one.machine.cards)) and not is_slow:
        found.append(f"hang: the loop was held up for {report.held_up_s:.1f} s")
    if not report.ended:
        found.append("harmed: the job has not ended")
    for gpu, there_mw in enumerate(report.limits_mw):
        if there_mw not in (good_mw := may_stand_mw(one, report, gpu)):
            found.append(f"limit: {there_mw} mW on GPU {gpu} instead of {' or '.join(map(str, sorted(good_mw)))}")
    if report.left_behind:
        found.append(f"limit: {', '.join(report.left_behind)} stayed")
    named = one.refused or one.may_end
    if not tuned and named is None:
        found.append(f"refused wrongly: {report.said[-1]}")
    if not tuned and named is not None and not any(re.search(named, text) for text in report.said):
        found.append(f"cause: {report.said[-1]}")
    if tuned and one.refused is not None:
        found.append("error: a cap was kept where none can be set")
    return found


def may_stand_mw(one: Drawn, report: Report, gpu: int) -> set[int]:
    """The limits that are right on a card in the end: the one found, or the last of somebody else's; after a reload the
    default; and what the card makes of these."""
    card = one.machine.cards[gpu]
    by_others = [c.limit_mw for c in one.machine.changes if c.gpu == gpu and c.t_s <= report.end_s]
    good = {by_others[-1] if by_others else report.expected_mw[gpu]}
    if one.machine.reloads:
        good.add(card.default_mw)
    return good | {card.made_of(limit_mw) for limit_mw in good}


def _off(one: Drawn, event: events.Decided) -> tuple[float, float]:
    """Of energy and time under the cap that was kept, over those at the limit found."""
    there, base = event.measurement, event.baseline
    assert there is not None
    assert base is not None
    (true_s, true_j), (base_s, base_j) = _true(one, there.setting), _true(one, base.setting)
    energy = math.log(there.energy_per_iteration_j / base.energy_per_iteration_j * base_j / true_j)
    seconds = math.log(there.period_s / base.period_s * base_s / true_s)
    energy_stderr = max(math.hypot(there.energy_rel_stderr, base.energy_rel_stderr), _LEAST)
    stderr = max(math.hypot(there.period_rel_stderr, base.period_rel_stderr), _LEAST)
    return abs(energy) / energy_stderr, abs(seconds) / stderr


def _true(one: Drawn, caps_w: Sequence[float]) -> tuple[float, float]:
    """Seconds and joules an iteration under some limits: the slowest card sets the pace, and the others wait for it."""
    profile = profiles.load(one.machine.profile)
    times_s, powers_w = [], []
    for card, limit_w in zip(one.machine.cards, caps_w, strict=True):
        acts_w = card.acts_mw(card.made_of(round(1000 * limit_w))) / 1000
        cap_w = min(max(acts_w, profile.cap_range.min_w), profile.cap_range.max_w)
        times_s.append(float(profile.time_s(cap_w)))
        powers_w.append(float(profile.power_w(cap_w)))
    slowest_s = max(times_s)
    waited = [profile.idle_w * (slowest_s - t_s) for t_s in times_s]
    return slowest_s, sum(w * t_s + more_j for w, t_s, more_j in zip(powers_w, times_s, waited, strict=True))


_TITLES = ("tuned", "refused", "wrongly", "cause", "limit", "harmed", "hang", "error")
_WITHIN = 2.0  # standard errors


def main(argv: Sequence[str]) -> int:
    """Play and print; 1 where something is to be complained of."""
    parser = argparse.ArgumentParser(prog="python -m bench machines", description=__doc__)
    parser.add_argument("--count", type=int, default=60, metavar="N", help="machines (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first (default: %(default)s)")
    parser.add_argument("--manners", type=int, metavar="N", help="that go wrong on each (default: 0 to 2 by chance)")
    parser.add_argument("--pairs", action="store_true", help="each two manners once, on a plain machine, instead")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every outcome as a list")
    args = parser.parse_args(argv)
    began_s = time.monotonic()
    if args.pairs:
        machines = pairs(args.seed)
    else:
        machines = [drawn(args.seed + number, args.manners) for number in range(args.count)]
    found = list(common.played(played, machines, begin=be_quiet))
    for line in table(found):
        print(line)
    for one in found:
        for complaint in one.complaints:
            what = " + ".join((one.drawn.kind, *one.drawn.manners))
            print(f"seed {one.drawn.seed}, {what}: {complaint}")
    off = [number for one in found for number in one.off]
    if off:
        share = sum(number <= _WITHIN for number in off) / len(off)
        print(f"{100 * share:.1f} % of {len(off)} stated energies and times within {_WITHIN:g} errors")
    print(f"{len(found)} machines, {time.monotonic() - began_s:.0f} s")
    if args.json is not None:
        args.json.write_text(json.dumps([_as_json(one) for one in found], default=str))
    return 1 if any(one.complaints for one in found) else 0


def table(found: Iterable[Played]) -> list[str]:
    """A row a kind of machine and a manner, each with all of its jobs, and the totals."""
    rows: dict[str, list[Played]] = {}
    every = list(found)
    for one in every:
        for name in (one.drawn.kind, *one.drawn.manners):
            rows.setdefault(name, []).append(one)
    lines = [f"{'machine or manner':44}{'jobs':>6}" + "".join(f"{title:>9}" for title in _TITLES)]
    for name, group in (*sorted(rows.items()), ("all", every)):
        kinds = Counter(complaint.partition(":")[0] for one in group for complaint in one.complaints)
        tuned = sum(one.tuned for one in group)
        counts = (tuned, len(group) - tuned, kinds["refused wrongly"], *(kinds[title] for title in _TITLES[3:]))
        lines.append(f"{name:44}{len(group):6}" + "".join(f"{count:9}" for count in counts))
    return lines


def _as_json(one: Played) -> dict[str, object]:
    given = one.drawn
    return {
        **asdict(one),
        "drawn": {"seed": given.seed, "kind": given.kind, "manners": given.manners, "metric": given.metric},
    }
