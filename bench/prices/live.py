"""The whole controller while a price moves: sensors, samples, search and confirmations, in virtual time."""

from collections.abc import Iterator, Sequence

from autocap import events
from autocap.config import TuneConfig
from autocap.devices.model.profiles import Profile
from autocap.devices.simulated.device import SimulatedJob
from autocap.events.quote import PRICE
from autocap.metrics import Metric
from bench.prices.policy import Job, reference
from bench.prices.values import HOUR_S, known
from bench.simulation.jobs import Outcome, tune


def live(profiles: Sequence[Profile], values: Sequence[float], hour_price: float, seed: int) -> Iterator[str]:
    """A line for each curve."""
    yield (
        "| curve | money per hour | best constant cap saves | followed perfectly, it saves more | autocap saves more | "
        "most changes in an hour | searches |"
    )
    yield "|" + "---|" * 7
    for profile in profiles:
        could = reference(Job(profile, hour_price, seed), values)
        came = followed(profile, values, hour_price, seed)
        cost = per_iteration(came, values, hour_price)
        moved = [int(one.t_s // HOUR_S) for one in came.log.events if isinstance(one, events.Followed)]
        searches = sum(isinstance(one, events.TrialStarted) for one in came.log.events)
        yield (
            f"| {profile.name} | {hour_price:g} | {100 * (1 - could.constant / could.found):.2f} % | "
            f"{100 * (1 - could.perfect / could.constant):.2f} % | {100 * (1 - cost / could.constant):.2f} % | "
            f"{max((moved.count(hour) for hour in moved), default=0)} | {searches} trials |"
        )


def followed(profile: Profile, values: Sequence[float], hour_price: float, seed: int) -> Outcome:
    """A job of as many hours as there are values."""
    config = TuneConfig(metric=Metric(name="cost", hour_price=hour_price or None, moving=True))
    quotes = [(HOUR_S * hour, PRICE, known(values, hour)) for hour in range(len(values))]
    return tune(SimulatedJob(profile=profile), config, "model", seed=seed, quotes=quotes, end_s=HOUR_S * len(values))


def per_iteration(came: Outcome, values: Sequence[float], hour_price: float) -> float:
    """What an iteration truly cost, money."""
    money = 0.0
    for hour, value in enumerate(values):
        joules = sum(came.device.true_energy_j(HOUR_S * hour, HOUR_S * (hour + 1)))
        money += joules * value / 3.6e6 + hour_price
    return money / len(came.device.true_ends_s())
