"""What one whole run of the command used, from its start to its end: the controller of a run whose cap is fixed."""

from dataclasses import replace

from autocap.controller.context import Action, SetCaps
from autocap.events.sweep import Used
from autocap.measurement.energy import EnergyMeter
from autocap.records import NodeReading, Reading, Sample
from autocap.session.roles import Decider

_SILENT_S = 1.0  # a sensor may be so late with its first reading


class _Filled:
    """The energy of one part of the machine from the start of a run to its end.

    Between the first and the last point that readings give, energy is theirs; the ends before and after are filled
    with the first and the last power known.
    """

    def __init__(self, begin_s: float) -> None:
        self._begin_s = begin_s
        self._meter = EnergyMeter()
        self._points: list[tuple[float, float]] = []  # t_s, energy_j: the first and the newest
        self._power_w: tuple[float, float] | None = None  # the first and the last

    @property
    def known(self) -> bool:
        """Whether any power was read of the run."""
        return self._power_w is not None

    def _power(self, watts: float) -> None:
        """Such a power was read, of the run alone."""
        self._power_w = (self._power_w or (watts,))[0], watts

    def _point(self, sample: Sample) -> None:
        """Add a sample of this part alone."""
        if self._meter.add(sample):
            self._points = [*self._points[:1], (sample.t_s, self._meter.energy_j)]

    def energy_j(self, end_s: float) -> float | None:
        """Joules up to the end of the run; `None` where no power was ever read."""
        if self._power_w is None:
            return None
        first_w, last_w = self._power_w
        if not self._points:
            return first_w * (end_s - self._begin_s)
        (first_s, first_j), (last_s, last_j) = self._points[0], self._points[-1]
        return first_w * (first_s - self._begin_s) + last_j - first_j + last_w * (end_s - last_s)


class GpuMeter(_Filled):
    """One GPU's energy over a run. missing: readings that were, once the first had come.

    window_s: what a reading is the mean of; one whose window reaches back before the run is not of it.
    """

    def __init__(self, begin_s: float, window_s: float) -> None:
        super().__init__(begin_s)
        self._inside_s = begin_s + window_s
        self.missing = 0

    def add(self, t_s: float, reading: Reading) -> None:
        """Add a reading of this GPU, taken at t_s."""
        if reading.power_w is None:
            self.missing += self.known or t_s > self._inside_s + _SILENT_S
        elif reading.t_s >= self._inside_s:
            self._power(reading.power_w)
        elif reading.energy_j is None:
            return
        self._point(Sample(t_s=t_s, readings=(reading,)))


class NodeMeter(_Filled):
    """The energy of the machine around the GPUs over a run, as its source gives it.

    refresh_s: between two fresh readings, each the mean since the last. One that only holds what was read before the
    run, or began to be read then, is not of it. A gap lasts from a reading that is missing to the next.
    """

    def __init__(self, begin_s: float, refresh_s: float) -> None:
        super().__init__(begin_s)
        self._inside_s = begin_s + refresh_s
        self._gap_since_s: float | None = None
        self._gap_s = 0.0
        self._whole = False

    def add(self, t_s: float, node: NodeReading) -> None:
        """Add a reading, as it stands at t_s."""
        self._whole = node.whole
        self._gap_s = self._gap_until_s(t_s)
        self._gap_since_s = t_s if node.power_w is None else None
        if node.power_w is not None:
            if node.t_s < self._inside_s:
                return
            self._power(node.power_w)
        self._point(Sample(t_s=t_s, readings=(), node=node))

    def beside(self, gpus: Used, end_s: float) -> Used | None:
        """What the node used in a run that ended then, with the GPUs' part; `None` where no reading was of the run."""
        energy_j = self.energy_j(end_s)
        if energy_j is None:
            return None
        return replace(
            gpus, node_j=energy_j + (0.0 if self._whole else gpus.gpus_j), node_gap_s=self._gap_until_s(end_s)
        )

    def _gap_until_s(self, t_s: float) -> float:
        return self._gap_s + (0.0 if self._gap_since_s is None else t_s - self._gap_since_s)


class WholeRun(Decider):
    """Holds one cap per GPU from the start of a run to its end, and adds up what the run uses. For `Runner`.

    settings: watts, set before the run began. begin_s: when the command was started. window_s: of the sensor.
    node_refresh_s: of the source of the node's power, `None` where the GPUs' is all that counts. trouble: why the run
    is not comparable with others, once something has happened.
    """

    settings: tuple[float, ...] = ()

    def __init__(
        self, settings: tuple[float, ...], begin_s: float, window_s: float, node_refresh_s: float | None = None
    ) -> None:
        self.settings = settings
        self.trouble: str | None = None
        self._begin_s = begin_s
        self._end_s: float | None = None
        self._gpus = tuple(GpuMeter(begin_s, window_s) for _ in settings)
        self._node = None if node_refresh_s is None else NodeMeter(begin_s, node_refresh_s)

    @property
    def ended_because(self) -> str | None:
        """Why the measuring ended before the run."""
        return self.trouble

    @property
    def used(self) -> Used | None:
        """What the run used, once it has ended; `None` before, or where a GPU or the node gave no reading at all."""
        if self._end_s is None:
            return None
        energies_j = [gpu.energy_j(self._end_s) for gpu in self._gpus]
        known_j = tuple(energy_j for energy_j in energies_j if energy_j is not None)
        if len(known_j) < len(energies_j):
            return None
        missing = sum(gpu.missing for gpu in self._gpus)
        used = Used(time_s=self._end_s - self._begin_s, energy_j=known_j, missing=missing)
        return used if self._node is None else self._node.beside(used, self._end_s)

    @property
    def silence(self) -> str:
        """Why there is nothing that a run used, and what to do."""
        if self._node is not None and not self._node.known:
            return (
                "the node's power was not read while it ran; let it run for longer than the meter takes for a reading, "
                "and check that the meter reports it"
            )
        return "no power was read while it ran; let it run for longer than the sensor takes for a reading"

    def feed(self, sample: Sample) -> list[Action]:
        """Add a sample; nothing is ever to be done about it."""
        for gpu, reading in zip(self._gpus, sample.readings, strict=True):
            gpu.add(sample.t_s, reading)
        if self._node is not None and sample.node is not None:
            self._node.add(sample.t_s, sample.node)
        return []

    def interrupted(self, t_s: float) -> list[Action]:
        """The limits were put back for a while: the cap is set again, but the run does not count."""
        self.trouble = self.trouble or "autocap or the command was stopped for a while"
        return [SetCaps(settings=self.settings)]

    def stop(self, t_s: float, why: str) -> list[Action]:
        """The cap is no longer held."""
        self.trouble = self.trouble or why
        return []

    def close(self, t_s: float) -> list[Action]:
        """The run has ended."""
        self._end_s = t_s
        return []
