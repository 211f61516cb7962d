"""What the best common cap of all cards of a cluster is, by a simulation of the same cards without any noise."""

from collections.abc import Sequence
from dataclasses import dataclass

from autocap.clock import VirtualClock
from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.devices.simulated.device import SimulatedDevice
from autocap.devices.simulated.job import SimulatedJob
from autocap.devices.simulated.node import SimulatedNode
from autocap.metrics import Metric
from autocap.records import Measurement
from autocap.session.search_space import cap_grid
from bench.pergpu import Case, truth
from bench.simulation.jobs import certain


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """Of the cards of one cluster and one metric. found: at the limits found on arrival. best: at the best cap."""

    case: Case
    metric: Metric
    found: Measurement
    best: Measurement

    def regret_pct(self, cap_w: float) -> float:
        """How much worse a common cap is than the best one, percent."""
        return self._worse_pct(truth(self.case, (cap_w,) * self.case.gpus))

    def job_regret_pct(self, *, period_s: float, energy_j: float) -> float:
        """How much worse a whole job was than all of it at the best cap, percent, by what it took per iteration."""
        return self._worse_pct(certain(self.best.setting, period_s, energy_j))

    def _worse_pct(self, one: Measurement) -> float:
        best = self.metric.cost(self.best, self.found).value
        return 100 * (self.metric.cost(one, self.found).value / best - 1)


def oracle(profile: str, *, cards: int, spread: float, seed: int, metric: Metric) -> Oracle:
    """The best cap of the grid that autocap searches, for cards as `whole_machine` has them."""
    case = Case(metric=metric.name, seed=seed, profile=profile, gpus=cards, spread=spread, jitter=0.0)
    job, node = SimulatedJob(profile=profiles.load(profile)), SimulatedNode(gpus=cards)
    device = SimulatedDevice(VirtualClock(), job, node)
    default_w = job.profile.cap_range.default_w
    caps_w: Sequence[float] = cap_grid(TuneConfig(metric=metric), device.gpus, (default_w,) * cards)
    found = truth(case, (default_w,) * cards)
    costs = {one: metric.cost(one, found).value for one in (truth(case, (cap_w,) * cards) for cap_w in caps_w)}
    return Oracle(case=case, metric=metric, found=found, best=min(costs, key=lambda one: costs[one]))
