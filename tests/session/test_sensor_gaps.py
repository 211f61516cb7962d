"""A sensor that says nothing for a moment, or a counter that stops: no gap is taken for a change of the job, and none
keeps a cap from being found."""

from dataclasses import replace

import pytest

from autocap import events
from autocap.devices.model import profiles
from autocap.testing.nvml import Episode, Trouble
from bench.faults.virtual import QUICK, play, usual

ITERATIONS = 900  # of 0.06 s
PROFILE = profiles.load(usual().profile)


def episodes(trouble: Trouble, lasts_s: float, every_s: float) -> tuple[Episode, ...]:
    return (Episode(trouble=trouble, from_s=4.0, until_s=4.0 + lasts_s, every_s=every_s),)


ZEROS, STOPPED = "the power sensor of GPU 0 reads 0 W;", "the energy counter of GPU 0 has not moved for"


@pytest.mark.parametrize(
    ("met", "counter", "said"),
    [
        (episodes(Trouble.ZERO, 0.8, 3.0), True, [ZEROS]),
        (episodes(Trouble.ZERO, 0.8, 3.0), False, [ZEROS]),
        (episodes(Trouble.COUNTER_STANDS, 3.0, 7.0), True, []),
        (episodes(Trouble.COUNTER_SKIPS, 3.0, 7.0), True, []),
        ((Episode(trouble=Trouble.COUNTER_STANDS, from_s=30.0),), True, [STOPPED]),
        (
            (Episode(trouble=Trouble.COUNTER_STANDS, from_s=30.0), *episodes(Trouble.ZERO, 0.8, 3.0)),
            True,
            [ZEROS, STOPPED],
        ),
    ],
    ids=["zeros", "zeros, no counter", "counter stands", "counter skips", "counter stops", "both"],
)
def test_a_gap_of_a_sensor_is_bridged(met: tuple[Episode, ...], counter: bool, said: list[str]) -> None:
    made = replace(usual(), iterations=ITERATIONS)
    first, *others = (replace(card, energy_counter=counter) for card in made.cards)
    report = play(replace(made, cards=(replace(first, episodes=met), *others)), lambda stage: None)
    assert (report.kept_w, report.raised, report.hung) == (150.0, None, None)
    assert [text.startswith(start) for text, start in zip(report.said, [*said, "the job ended"], strict=True)] == [
        True
    ] * (len(said) + 1)
    (decided,) = [one.measurement for one in report.events if isinstance(one, events.Decided)]
    assert decided is not None
    true_j = 2 * float(PROFILE.power_w(150.0) * PROFILE.time_s(150.0))
    assert decided.energy_per_iteration_j == pytest.approx(true_j, rel=0.03)


def test_a_window_goes_on_after_a_short_gap() -> None:
    made = replace(usual(), iterations=1500)
    first, second = (replace(card, energy_counter=False) for card in made.cards)
    cards = (replace(first, episodes=episodes(Trouble.ZERO, 0.8, 3.0)), second)
    tune = replace(QUICK, target_stderr=0.01, trial_s=20.0, caps_w=(150.0, 250.0))
    report = play(replace(made, cards=cards), lambda stage: None, tune=tune, sample_hz=None)
    assert (report.kept_w, report.said[-1]) == (150.0, "the job ended")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_sensor_that_sticks_for_seconds_beside_no_counter_is_no_change_of_the_job(seed: int) -> None:
    made = replace(usual(), iterations=1500, seed=seed)
    sticks = Episode(trouble=Trouble.STUCK, from_s=4.0 + seed, until_s=8.9 + seed, every_s=25.0)
    first, *others = (replace(card, energy_counter=False) for card in made.cards)
    made = replace(made, cards=(replace(first, episodes=(sticks,)), *others))
    report = play(made, lambda stage: None, sample_hz=None)
    assert report.said == ("the job ended",)
    assert report.kept_w is not None
