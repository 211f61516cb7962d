"""Rows of all agents, on the controller's clock, to samples of the whole job. Pure: rows in, samples out.

Samples are taken at the times of one node's rows, up to the time until which all nodes have any. What a counter counts
is interpolated between the rows around that time; everything else is what was last read by then. A node that is silent
makes a gap: its power is not known, so what is measured meanwhile is measured again.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from autocap.plugins.fleet.nodes.protocol import Row
from autocap.records import NodeReading, Reading, Sample, StepReading

_HOLE_S = 1.0  # rows that are missing for longer leave what happened meanwhile unknown


@dataclass(slots=True, kw_only=True)
class _Mapped:
    """A row. number: as the agent counts them. t_s: on our clock; ahead_s: how far the agent's is ahead."""

    number: int
    t_s: float
    ahead_s: float
    row: Row


class _Node:
    """The rows of one node that are still needed: the last one at or before the latest sample, and those after it."""

    def __init__(self) -> None:
        self.rows: deque[_Mapped] = deque()
        self.steps: StepReading | None = None
        self.newest_s = -1.0

    def advance(self, t_s: float) -> None:
        """Forget what no sample at or after that time needs."""
        rows = self.rows
        while len(rows) > 1 and rows[1].t_s <= t_s:
            rows.popleft()
        if rows and rows[0].t_s <= t_s and rows[0].row.steps is not None:
            steps = rows[0].row.steps
            self.steps = replace(steps, t_s=steps.t_s - rows[0].ahead_s)


class SampleMerger:
    """devices: how many each node has."""

    def __init__(self, devices: Sequence[int]) -> None:
        self._nodes = [_Node() for _ in devices]
        self._devices = tuple(devices)
        self._stale_s = -1.0
        self._last_s = -1.0

    def add(self, node: int, first: int, rows: Sequence[Row], ahead_s: float) -> None:
        """More rows of one node. first: the number of the first. ahead_s: how far its clock is ahead of ours."""
        queue = self._nodes[node]
        for number, row in enumerate(rows, first):
            t_s = row.t_s - ahead_s
            if t_s <= queue.newest_s or t_s < self._stale_s or len(row.readings) != self._devices[node]:
                continue
            queue.newest_s = t_s
            queue.rows.append(_Mapped(number=number, t_s=t_s, ahead_s=ahead_s, row=row))

    def drop_before(self, t_s: float) -> None:
        """What was read before that time is of other caps, and makes no sample any more."""
        self._stale_s = max(self._stale_s, t_s)
        for node in self._nodes:
            while node.rows and node.rows[0].t_s < t_s:
                node.advance(node.rows[0].t_s)
                node.rows.popleft()

    def next(self, silent: Collection[int] = ()) -> Sample | None:
        """The next sample; `None` while there is none. silent: the nodes that are not waited for."""
        living = [node for number, node in enumerate(self._nodes) if number not in silent]
        if not living or any(not node.rows for node in living):
            return None
        begin_s = max(node.rows[0].t_s for node in living)  # what was before, one of them has not seen
        end_s = min(node.newest_s for node in living)
        lead = living[0]
        t_s = next((row.t_s for row in lead.rows if row.t_s > self._last_s and row.t_s >= begin_s), None)
        if t_s is None or t_s > end_s:
            return None
        self._last_s = t_s
        readings: list[Reading] = []
        of_nodes: list[NodeReading | None] = []
        for number, node in enumerate(self._nodes):
            node.advance(t_s)
            known = number not in silent and _is_known(node, t_s)
            readings += _readings(node, t_s) if known else [Reading(t_s=t_s, power_w=None)] * self._devices[number]
            of_nodes.append(_of_machine(node, t_s) if known else None)
        return Sample(t_s=t_s, readings=tuple(readings), steps=_slowest(self._nodes), node=_together(of_nodes, t_s))


def _is_known(node: _Node, t_s: float) -> bool:
    rows = node.rows
    return t_s == rows[0].t_s or rows[1].number == rows[0].number + 1 or rows[1].t_s - rows[0].t_s <= _HOLE_S


def _share(node: _Node, t_s: float) -> float:
    """How far that time lies between the two rows around it; 0 on the first."""
    rows = node.rows
    return (t_s - rows[0].t_s) / (rows[1].t_s - rows[0].t_s) if t_s > rows[0].t_s else 0.0


def _readings(node: _Node, t_s: float) -> list[Reading]:
    before, share = node.rows[0], _share(node, t_s)
    after = node.rows[1].row.readings if share else before.row.readings
    ahead_s = before.ahead_s
    return [
        replace(
            one,
            t_s=one.t_s - ahead_s,
            energy_j=_between(one.energy_j, other.energy_j, share),
            beside_j=_between(one.beside_j, other.beside_j, share),
        )
        for one, other in zip(before.row.readings, after, strict=True)
    ]


def _between(before: float | None, after: float | None, share: float) -> float | None:
    if before is None or after is None:
        return None if share else before
    return before + share * (after - before)


def _of_machine(node: _Node, t_s: float) -> NodeReading | None:
    one, share = node.rows[0].row.node, _share(node, t_s)
    if one is None:
        return None
    other = node.rows[1].row.node if share else one
    energy_j = _between(one.energy_j, None if other is None else other.energy_j, share)
    return replace(one, t_s=one.t_s - node.rows[0].ahead_s, energy_j=energy_j)


def _together(of_nodes: Sequence[NodeReading | None], t_s: float) -> NodeReading | None:
    """The power of all machines; a gap where that of one is not known, `None` where nobody reads any."""
    known = [one for one in of_nodes if one is not None]
    if not known:
        return None
    watts = [one.power_w for one in known if one.power_w is not None]
    joules = [one.energy_j for one in known if one.energy_j is not None]
    return NodeReading(
        t_s=max(one.t_s for one in known),
        power_w=sum(watts) if len(watts) == len(of_nodes) else None,
        whole=known[0].whole,
        energy_j=sum(joules) if len(joules) == len(of_nodes) else None,
    )


def _slowest(nodes: Sequence[_Node]) -> StepReading | None:
    """The count of the node that has done least, and when it got there; `None` while one has done nothing."""
    steps = [node.steps for node in nodes if node.steps is not None]
    if len(steps) < len(nodes) or len({one.of_calls for one in steps}) > 1:
        return None
    count = min(one.count for one in steps)
    return StepReading(
        count=count,
        t_s=max(one.t_s for one in steps if one.count == count),
        of_calls=steps[0].of_calls,
        suspended=any(one.suspended for one in steps),
    )
