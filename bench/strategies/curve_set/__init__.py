"""Made-up cap curves that look like measured ones, by family, and the two published ones they are judged beside.

`phases` makes those of training jobs, `knees` those of jobs bound by memory; `python -m bench.strategies.curve_set`
says what they look like.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from autocap.errors import UsageError
from autocap.text import did_you_mean
from bench.strategies.curve_set import knees, phases
from bench.strategies.curves import CapCurve, built_in

# Two published single-run curves (a Zeus data set: ResNet-50 on a V100 at batch 256, on an A40 at batch 128).
PUBLISHED = (
    CapCurve(
        name="v100/resnet50",
        caps_w=(100, 125, 150, 175, 200, 250),
        powers_w=(98, 122, 145, 166, 185, 220),
        times_s=(6781, 5065, 4149, 3852, 3701, 3515),
    ),
    CapCurve(
        name="a40/resnet50",
        caps_w=(100, 150, 175, 200, 250, 300),
        powers_w=(115, 144, 161, 179, 216, 244),
        times_s=(11009, 6147, 4463, 3992, 3804, 3740),
    ),
)
_SEED = 2026
_COUNTS = {"made-up": 118, "knees": 110, "scatter": 10}

# Families by the set that they belong to. Scatter stands apart: which of its caps is best is mostly luck.
SETS = {
    "seed": ("quadro-rtx-6000", "tesla-v100"),
    "made-up": (*phases.KINDS, *(curve.family for curve in PUBLISHED)),
    "knees": tuple(name for name, family in knees.FAMILIES.items() if not family.scatter),
    "scatter": tuple(name for name, family in knees.FAMILIES.items() if family.scatter),
}


def curve_set(seed: int, count: int, families: Sequence[str] = SETS["made-up"]) -> list[CapCurve]:
    """So many made-up curves, the families in turn, and those of the published ones that are of these families.

    A curve with a knee is the same for a seed whatever else is made. Raises UsageError for a name that is no family of
    this package, nor one of its sets.
    """
    wanted = _expanded(families, [family for name in _COUNTS for family in SETS[name]])
    published = [curve for curve in PUBLISHED if curve.family in wanted]
    made = [family for family in wanted if family not in {curve.family for curve in published}]
    rng = np.random.default_rng(seed)
    curves = []
    for i in range(count if made else 0):
        turn, place = divmod(i, len(made))
        family = made[place]
        if family in knees.FAMILIES:
            curves.append(knees.make(f"{family}-{turn:03d}", knees.FAMILIES[family], seed))
        else:
            curves.append(phases.make(f"{family}-{i:03d}", family, rng))
    return curves + published


def named(families: Sequence[str]) -> list[CapCurve]:
    """The curves that strategies are compared on, of some families or sets. Raises UsageError for an unknown name."""
    wanted = _expanded(families, [family for some in SETS.values() for family in some])
    curves = built_in() if set(wanted) & set(SETS["seed"]) else []
    for name, count in _COUNTS.items():
        if set(wanted) & set(SETS[name]):
            curves += curve_set(_SEED, count, [name])
    return of_families(curves, wanted)


def of_families(curves: Sequence[CapCurve], families: Sequence[str]) -> list[CapCurve]:
    """Those curves of a list that are of some families. Raises UsageError for a family that none of them is of."""
    _expanded(families, list(dict.fromkeys(curve.family for curve in curves)), sets={})
    return [curve for curve in curves if curve.family in families]


def _expanded(names: Sequence[str], known: Sequence[str], sets: Mapping[str, Sequence[str]] = SETS) -> list[str]:
    """Families and the families of sets, each once."""
    groups = {name: some for name, some in sets.items() if set(some) <= set(known)}
    if sets:
        groups["all"] = known
    for name in names:
        if name not in groups and name not in known:
            meant = did_you_mean(name, [*groups, *known])
            raise UsageError(f"unknown family of curves '{name}'{meant}; choose of {', '.join([*groups, *known])}")
    return list(dict.fromkeys(one for name in names for one in groups.get(name, [name])))
