"""What an agent has read, and how it is written: most of all that is sent, and so by position, as names would be nine
tenths of it."""

from dataclasses import dataclass
from typing import Any

from autocap.records import NodeReading, Reading, StepReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All that an agent has read at one moment, as in a Sample; times on its own clock."""

    t_s: float
    readings: tuple[Reading, ...]
    steps: StepReading | None = None
    node: NodeReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """From an agent: what it has read since the last time. first: the number of the first of these rows, from 0 on.
    put_backs: how often its limits were put back so far, or may have been, by who guards them; not as it was told to.
    A row that shows it is never said without."""

    first: int
    rows: tuple[Row, ...]
    put_backs: int = 0


def columns(rows: Rows) -> list[Any]:
    """As JSON has them, by position."""
    return [
        rows.first,
        [
            [
                row.t_s,
                [
                    [
                        reading.t_s,
                        reading.power_w,
                        reading.energy_j,
                        reading.beside_j,
                        reading.requested_w,
                        reading.enforced_w,
                        reading.sm_clock_hz,
                        reading.cap_binding,
                        reading.throttled,
                        reading.utilisation,
                        reading.temperature_c,
                    ]
                    for reading in row.readings
                ],
                None
                if row.steps is None
                else [row.steps.count, row.steps.t_s, row.steps.of_calls, row.steps.suspended],
                None if row.node is None else [row.node.t_s, row.node.power_w, row.node.whole, row.node.energy_j],
            ]
            for row in rows.rows
        ],
        rows.put_backs,
    ]


def rows_of(held: Any) -> Rows:
    """The rows that JSON has so. Raises ValueError or TypeError for what is none."""
    first, rows, put_backs = held
    return Rows(first=int(first), rows=tuple(_row(*row) for row in rows), put_backs=int(put_backs))


def _row(t_s: float, readings: list[list[Any]], steps: list[Any] | None, node: list[Any] | None) -> Row:
    return Row(
        t_s=float(t_s),
        readings=tuple(_reading(*reading) for reading in readings),
        steps=None if steps is None else _steps(*steps),
        node=None if node is None else _node(*node),
    )


def _reading(
    t_s: float,
    power_w: float | None,
    energy_j: float | None,
    beside_j: float | None,
    requested_w: float | None,
    enforced_w: float | None,
    sm_clock_hz: float | None,
    cap_binding: bool | None,
    throttled: bool,
    utilisation: float | None,
    temperature_c: float | None,
) -> Reading:
    return Reading(
        t_s=float(t_s),
        power_w=_number(power_w),
        energy_j=_number(energy_j),
        beside_j=_number(beside_j),
        requested_w=_number(requested_w),
        enforced_w=_number(enforced_w),
        sm_clock_hz=_number(sm_clock_hz),
        cap_binding=None if cap_binding is None else bool(cap_binding),
        throttled=bool(throttled),
        utilisation=_number(utilisation),
        temperature_c=_number(temperature_c),
    )


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _steps(count: int, t_s: float, of_calls: bool, suspended: bool) -> StepReading:
    return StepReading(count=int(count), t_s=float(t_s), of_calls=bool(of_calls), suspended=bool(suspended))


def _node(t_s: float, power_w: float | None, whole: bool, energy_j: float | None) -> NodeReading:
    return NodeReading(t_s=float(t_s), power_w=_number(power_w), whole=bool(whole), energy_j=_number(energy_j))
