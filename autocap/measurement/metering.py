"""The one look at each sample that everything which measures shares: how much energy it brings, whether something
disturbs, and whether the job trains."""

from collections.abc import Sequence
from dataclasses import dataclass

from autocap.measurement.energy import EnergyMeter, Joules, disturbance
from autocap.measurement.pauses import PauseWatch
from autocap.progress import Mark
from autocap.records import NodeReading, Sample

_UNKNOWN = "an energy counter stands still, and power readings are missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """A sample with what can be said of it, and the marks that it brought.

    gained: energy since the sample before; energy_j: what the metric counts since the run began; gap_s: seconds of the
    run of which it is not known. known: whether the energy up to here is; moved: whether a counter that moved, or
    power, says so. node_fresh: the machine's reading is another than at the sample before. disturbed: why nothing
    is to be measured here, `None` where nothing disturbs. paused: the job does something other than training;
    long_pause: for so long that a cap on trial is not to slow it down; pause_ended: the last mark ends a stretch that
    held a pause.
    """

    sample: Sample
    marks: Sequence[Mark]
    gained: Joules
    energy_j: float
    gap_s: float
    known: bool
    moved: bool
    node_fresh: bool
    disturbed: str | None
    paused: bool
    long_pause: bool
    pause_ended: bool

    @property
    def t_s(self) -> float:
        return self.sample.t_s


class Metering:
    """Meters the samples of a run, in their order."""

    def __init__(self) -> None:
        self._energy, self._pauses = EnergyMeter(), PauseWatch()
        self._node_stamp_s: float | None = None

    def meter(self, sample: Sample, marks: Sequence[Mark], kind: str, settings: tuple[float, ...]) -> Metered:
        """Take in the next sample and its marks. kind: of the progress that made them. settings: at which the job
        trains, watts."""
        self._energy.add(sample)
        self._pauses.add(sample, marks, kind, settings)
        return Metered(
            sample=sample,
            marks=marks,
            gained=self._energy.gained,
            energy_j=self._energy.energy_j,
            gap_s=self._energy.gap_s,
            known=self._energy.known,
            moved=self._energy.moved,
            node_fresh=self._fresh(sample.node),
            disturbed=disturbance(sample) or self._unknown,
            paused=self._pauses.paused,
            long_pause=self._pauses.is_long,
            pause_ended=self._pauses.ended,
        )

    @property
    def _unknown(self) -> str | None:
        return None if self._energy.known and not self._energy.lost else _UNKNOWN

    def _fresh(self, node: NodeReading | None) -> bool:
        """Whether the meter has a new reading; not at the first sample, where its age is not known."""
        if node is None or node.power_w is None:
            return False
        before_s, self._node_stamp_s = self._node_stamp_s, node.t_s
        return before_s is not None and before_s != node.t_s
