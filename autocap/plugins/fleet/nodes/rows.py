"""What an agent has read. It is most of all that is sent, and so it is sent by position, as names would be nine tenths
of it: fields of these records, and of readings, are added at their ends alone."""

from dataclasses import dataclass

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
