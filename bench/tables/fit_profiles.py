"""Make the profiles from published tables:
`python -m bench.tables.fit_profiles bench/data/krzywaniak2022_tables_2_3.csv`.

Each network on each card gets the seven numbers of `autocap.devices.model.profiles` (six of its shape, and the default
cap's time).
What the fit is asked for, most weight first: time and power of every published row, neither off by more than 0.6 %
where that is possible; caps that were published as the best stay among the best; no cliff below the lowest published
cap, where nothing is known. Writes `autocap/devices/model/krzywaniak2022.json` and prints how well it fits.

The percentages of Alexnet on the Quadro RTX 6000 contradict its seconds (28.2 s to 30.5 s is +8.2 %, but +4.5 % is
printed), while its seconds agree with its power and energy. So the seconds are used, and its best caps, which follow
from the percentages, are not.
"""

import argparse
import csv
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from autocap.devices.model.profiles import CurveShape

Floats = NDArray[np.float64]

OUTPUT = Path(__file__).parents[2] / "autocap/devices/model/krzywaniak2022.json"
SOURCE = (
    "A. Krzywaniak, P. Czarnul, J. Proficz: GPU power capping for energy-performance trade-offs in training of Deep "
    "Convolutional Neural Networks for image recognition, 2022, tables 2 and 3"
)
STEP_W = 5.0
# Key of the card in profile names, and its draw at rest: not in the tables, but what such cards usually report.
CARDS = {"Quadro RTX 6000": ("quadro-rtx-6000", 20.0), "Tesla V100-SXM2-16GB": ("tesla-v100", 40.0)}
WITHOUT_BEST_CAPS = {("Quadro RTX 6000", "Alexnet")}

# Least-squares weights: one unit of cost for each of these.
ROW_ERROR = 0.004
ROW_LIMIT, ROW_EXCESS = 0.006, 0.0003
BEST_CAP_FREE, BEST_CAP_EXCESS = 0.0015, 0.0017
LARGEST_STEP, STEP_EXCESS = 0.10, 0.005  # relative time between neighbouring caps
TYPICAL = np.array([0.0, 0.2, 0.3, 1.5])  # x, m, s as a share of the lowest power, g
TYPICAL_SPREAD = np.array([1.0, 2.0, 2.0, 10.0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The published rows of one network on one card; arrays have a row's length, the default first."""

    gpu_name: str
    network: str
    batch_size: int
    samples: int
    grid_w: Floats
    rows: tuple[str, ...]
    cap_w: Floats
    power_w: Floats
    energy_j: Floats
    time_s: Floats

    @property
    def default_w(self) -> float:
        return float(self.cap_w[0])

    @property
    def best_caps(self) -> list[tuple[str, int]]:
        """Each metric with the place of its published best cap on the grid."""
        if (self.gpu_name, self.network) in WITHOUT_BEST_CAPS:
            return []
        places = np.rint((self.cap_w - self.grid_w[0]) / STEP_W).astype(int)
        return [(row, int(place)) for row, place in zip(self.rows, places, strict=True) if row != "default"]


def profile_name(gpu_name: str, network: str) -> str:
    """What the profile of a published network and card is called."""
    return f"{CARDS[gpu_name][0]}/{_network_key(network)}"


def _network_key(network: str) -> str:
    return network.lower().replace("-", "")


def read_tables(path: Path) -> list[Table]:
    """The tables in the order of the file."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            groups.setdefault((row["gpu"], row["network"]), []).append(row)
    return [_table(rows) for rows in groups.values()]


def _table(rows: list[dict[str, str]]) -> Table:
    def column(name: str) -> Floats:
        return np.array([float(row[name]) for row in rows])

    first = rows[0]
    return Table(
        gpu_name=first["gpu"],
        network=first["network"],
        batch_size=int(first["batch_size"]),
        samples=int(first["samples"]),
        grid_w=np.arange(float(first["cap_min_w"]), float(first["cap_max_w"]) + 1.0, STEP_W),
        rows=tuple(row["row"] for row in rows),
        cap_w=column("cap_w"),
        power_w=column("avg_power_w"),
        energy_j=column("energy_j"),
        time_s=column("time_s"),
    )


def metric(row: str, power_w: Floats, time_s: Floats) -> Floats:
    """The metric that a row minimises, 1 at the last (default) cap."""
    time = time_s / float(time_s[-1])
    energy = power_w / float(power_w[-1]) * time
    match row:
        case "min E":
            return energy
        case "min EDP":
            return energy * time
        case "min EDS(k=2.0)":
            return energy / 2 + time / 2
        case "min EDS(k=1.5)":
            return energy / 3 + time / 1.5
    raise ValueError(f"unknown row '{row}' in the tables")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted curve: its shape, the time of the whole run at the default cap, and what it gives at any cap."""

    shape: CurveShape
    default_s: float
    default_w: float

    @classmethod
    def from_vector(cls, vector: Floats, table: Table) -> "Fit":
        """From the optimiser's P0, x, q, t0, m, g and s, the last as a share of the lowest cap's power over P0."""
        power_w, floor, exponent, default_s, memory, clock, static = (float(value) for value in vector)
        lowest = ((table.grid_w[0] / table.default_w - floor) / (1 - floor)) ** exponent
        shape = CurveShape(
            default_power_w=power_w,
            cap_floor=floor,
            power_exponent=exponent,
            memory_share=memory,
            static_share=float(static * lowest),
            clock_exponent=clock,
        )
        return cls(shape=shape, default_s=default_s, default_w=table.default_w)

    def power_w(self, cap_w: Floats) -> Floats:
        return self.shape.power_w(cap_w / self.default_w)

    def time_s(self, cap_w: Floats) -> Floats:
        return self.default_s * self.shape.slowdown(cap_w / self.default_w)

    def excess(self, row: str, place: int, table: Table) -> Floats:
        """By how much the best cap of that row beats each cap of the grid, relative; negative where it is worse."""
        values = metric(row, self.power_w(table.grid_w), self.time_s(table.grid_w))
        best = float(values[place])
        return (best - values) / best


def fit(table: Table) -> Fit:
    """The best curve from several starting points."""
    low = [0.0, -0.5, 0.2, 0.0, 0.0, 0.4, 0.0]
    high = [1e3, 0.35, 1.5, 1e5, 0.95, 8.0, 0.85]
    scale = [100.0, 0.1, 0.3, table.time_s[0], 0.1, 1.0, 0.2]
    starts = [
        [table.power_w[0], floor, exponent, table.time_s[0], memory, clock, static]
        for floor, exponent in ((0.0, 0.9), (0.2, 0.6), (-0.2, 1.0))
        for memory, clock, static in ((0.3, 2.0, 0.4), (0.05, 3.0, 0.6), (0.5, 1.2, 0.2), (0.8, 0.9, 0.6))
    ]
    solutions = [
        least_squares(_residuals, start, bounds=(low, high), x_scale=scale, max_nfev=300, args=(table,))
        for start in starts
    ]
    return Fit.from_vector(min(solutions, key=lambda solution: solution.cost).x, table)


def _residuals(vector: Floats, table: Table) -> Floats:
    candidate = Fit.from_vector(vector, table)
    power_error = np.log(candidate.power_w(table.cap_w) / table.power_w)
    time_error = np.log(candidate.time_s(table.cap_w) / table.time_s)
    errors = np.concatenate((power_error, time_error))
    best_caps = []
    for row, place in table.best_caps:
        excess = candidate.excess(row, place, table)
        for side in (excess[: max(place - 1, 0)], excess[place + 2 :]):  # the neighbours may be as good
            best_caps.append(max(0.0, float(side.max(initial=0.0)) - BEST_CAP_FREE) / BEST_CAP_EXCESS)
    steps = -np.diff(np.log(candidate.time_s(table.grid_w)))
    shares = vector[[1, 4, 6, 5]]
    return np.concatenate(
        (
            errors / ROW_ERROR,
            np.maximum(0.0, np.abs(errors) - ROW_LIMIT) / ROW_EXCESS,
            np.array(best_caps),
            np.maximum(0.0, steps - LARGEST_STEP) / STEP_EXCESS,
            (shares - TYPICAL) / TYPICAL_SPREAD,
        )
    )


def write(path: Path, tables: list[Table], fits: list[Fit]) -> None:
    """The package data, numbers rounded to what they are worth."""
    cards = {}
    curves = []
    for table, fitted in zip(tables, fits, strict=True):
        card, idle_w = CARDS[table.gpu_name]
        cards[card] = {
            "gpu_name": table.gpu_name,
            "cap_min_w": float(table.grid_w[0]),
            "cap_max_w": float(table.grid_w[-1]),
            "cap_default_w": table.default_w,
            "idle_w": idle_w,
        }
        curves.append(
            {
                "card": card,
                "network": _network_key(table.network),
                "batch_size": table.batch_size,
                "default_time_s": round(fitted.default_s * table.batch_size / table.samples, 7),
                "shape": {name: round(value, 6) for name, value in asdict(fitted.shape).items()},
            }
        )
    data = {
        "source": SOURCE,
        "made_by": "python -m bench.tables.fit_profiles bench/data/krzywaniak2022_tables_2_3.csv",
        "assumed": "idle_w is not in the tables: it is a usual reading of such a card at rest",
        "cards": cards,
        "curves": curves,
    }
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def describe(table: Table, fitted: Fit) -> str:
    """One line on how well a curve fits its rows, and what it does below them."""
    power = float(np.abs(fitted.power_w(table.cap_w) / table.power_w - 1).max())
    time = float(np.abs(fitted.time_s(table.cap_w) / table.time_s - 1).max())
    missed = []
    for row, place in table.best_caps:
        excess = fitted.excess(row, place, table)
        best = int(np.argmax(excess))
        if abs(best - place) > 1 and excess[best] > 0.003:
            missed.append(f"{row} at {table.grid_w[place]:g} W is {excess[best]:.2%} over {table.grid_w[best]:g} W")
    slowest = float(fitted.time_s(table.grid_w[:1])[0] / fitted.default_s)
    rows = len(table.best_caps)
    return (
        f"{table.gpu_name:20} {table.network:10} worst row: power {power:.2%} time {time:.2%}; best caps kept "
        f"{rows - len(missed)} of {rows}; {slowest:.2f} times slower at {table.grid_w[0]:g} W {'; '.join(missed)}"
    ).rstrip()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.tables.fit_profiles", description="Fit profiles to cap tables."
    )
    parser.add_argument("tables", type=Path, metavar="TABLES.csv")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    tables = read_tables(options.tables)
    fits = [fit(table) for table in tables]
    for table, fitted in zip(tables, fits, strict=True):
        print(describe(table, fitted))
    write(options.output, tables, fits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
