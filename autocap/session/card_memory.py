"""What a new job on a known card begins from: what other jobs have shown there, and what this job has shown on others.

It goes by the cards of the run: those curves that were measured on these very ones come first, then those of the model
under the same branch of the driver, then those of the model. It is a hint for a search, never a measurement.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from autocap.devices.base import Device
from autocap.errors import MemoryUnavailable
from autocap.events import CardRecalled
from autocap.records import Measurement, RelativeCurve, SensorInfo
from autocap.runlog.memory.card import CARD_FORMAT, MOST_GPUS, CardCurve, CardRecord, card_key, relative
from autocap.runlog.memory.store import MemoryStore, Point, Setup

log = logging.getLogger(__name__)
_ENOUGH = 4  # jobs: with fewer, those on cards less like it are taken, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Curves for a search, as a strategy takes them. jobs: how many are of other jobs on the model; here: of these, on
    the very cards of the run. job_on: the models on which this job was measured."""

    curves: tuple[RelativeCurve, ...] = ()
    jobs: int = 0
    here: int = 0
    job_on: tuple[str, ...] = ()

    def with_job(self, curve: RelativeCurve | None, model: str) -> "Elsewhere":
        """With what a run of this job that was named has shown on another model."""
        if curve is None:
            return self
        others = tuple(one for one in self.curves if not one.of_job)
        return Elsewhere(curves=(*others, curve), jobs=self.jobs, here=self.here, job_on=(model,))

    def event(self, t_s: float) -> CardRecalled:
        return CardRecalled(t_s=t_s, jobs=self.jobs, here=self.here, job_on=self.job_on)


NOWHERE = Elsewhere()


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCards:
    """A job on the cards of a run. job: its memory key. work: the same, whatever it runs on. uuids: of the cards."""

    job: str
    work: str
    setup: Setup
    uuids: tuple[str, ...]
    sensor: SensorInfo

    @classmethod
    def of(cls, device: Device, job: str, work: str, setup: Setup) -> "OnCards":
        return cls(job=job, work=work, setup=setup, uuids=tuple(gpu.uuid for gpu in device.gpus), sensor=device.sensor)

    @property
    def _key(self) -> str | None:
        """Of the record; `None` where cards of several models work together, or another knob is turned."""
        models = set(self.setup.gpus)
        if len(models) != 1 or self.setup.knob is not None:
            return None
        return card_key(self.setup.kind, self.setup.gpus[0], emulated=self.setup.emulated)

    def elsewhere(self, store: MemoryStore) -> Elsewhere:
        """What is known that this job has not shown here itself."""
        key = self._key
        if key is None:
            return NOWHERE
        found, of_job, on = list[CardCurve](), list[RelativeCurve](), list[str]()
        for record in _readable(store):
            if (record.kind, record.emulated) != (self.setup.kind, self.setup.emulated):
                continue
            for curve in record.curves:
                if curve.job != self.job and curve.work == self.work:
                    of_job.append(curve.relative(of_job=True))
                    on.append(record.model)
                elif curve.job != self.job and record.key == key:
                    found.append(curve)
        chosen = self._nearest(found)
        return Elsewhere(
            curves=(*(curve.relative() for curve in chosen), *of_job),
            jobs=len(chosen),
            here=len([curve for curve in chosen if self._is_here(curve)]),
            job_on=tuple(dict.fromkeys(on)),
        )

    def _is_here(self, curve: CardCurve) -> bool:
        return not set(self.uuids).isdisjoint(curve.gpus)

    def _nearest(self, curves: Sequence[CardCurve]) -> list[CardCurve]:
        """Those of these cards; while there are few, those under the driver's branch as well, and then all."""
        here = [curve for curve in curves if self._is_here(curve)]
        alike = [curve for curve in curves if self._is_here(curve) or curve.driver == self.setup.driver]
        return next((some for some in (here, alike) if len(some) >= _ENOUGH), list(curves))

    def tell(self, store: MemoryStore, measured_at: str, baseline: Measurement, points: Sequence[Point]) -> None:
        """Keep what the job has shown, beside what others have. points: measured against that baseline. Raises
        MemoryUnavailable where it cannot be kept."""
        key = self._key
        found = relative(baseline, {point.setting: point.measurement for point in points})
        if key is None or found is None:
            return
        shown = CardCurve(
            job=self.job,
            work=self.work,
            gpus=self.uuids[:MOST_GPUS],
            driver=self.setup.driver,
            measured_at=measured_at,
            settle_s=self.sensor.settle_s,
            window_s=self.sensor.window_s,
            draw=found.draw,
            binding=found.binding,
            points=found.points,
        )
        setup = self.setup
        empty = CardRecord(format=CARD_FORMAT, kind=setup.kind, emulated=setup.emulated, model=setup.gpus[0], curves=())
        store.write_card((store.card(key) or empty).with_curve(shown))


def _readable(store: MemoryStore) -> list[CardRecord]:
    """What there is of cards; none where that cannot be read, as nothing of it stops a run."""
    try:
        return store.cards()
    except MemoryUnavailable:
        log.debug("nothing is known of cards", exc_info=True)
        return []
