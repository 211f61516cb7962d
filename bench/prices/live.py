"""The whole controller while a price moves: sensors, samples, search and confirmations, in virtual time."""

from collections.abc import Sequence

from autocap.config import TuneConfig
from autocap.devices.model.profiles import Profile
from autocap.events.quote import PRICE
from autocap.metrics import Metric
from autocap.testing.simulated.job import SimulatedJob
from bench.prices.policy import HOUR_S, known
from bench.simulation.jobs import Outcome, tune


def followed(profile: Profile, values: Sequence[float], hour_price: float, seed: int) -> Outcome:
    """A job of as many hours as there are values."""
    config = TuneConfig(metric=Metric(name="cost", hour_price=hour_price or None, moving=True))
    quotes = [(HOUR_S * hour, PRICE, known(values, hour)) for hour in range(len(values))]
    return tune(SimulatedJob(profile=profile), config, "model", seed=seed, quotes=quotes, end_s=HOUR_S * len(values))
