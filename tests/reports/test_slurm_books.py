"""Slurm's numbers beside ours: which of them may be compared, and what is said where none may."""

from dataclasses import replace

import pytest

from autocap.cli.slurm_books import Books, Entry, beside, sentence, table
from autocap.reports.summary.summarise import summarise
from tests.doubles.told import of_node, told

BEGAN_S = 1767225600.0  # of the run; it counts 850 kJ of the GPUs in its 5600 s
EVENTS = told(emulated=False)
CHOICE = "--node-power chooses what autocap counts"


def entry(id: str, begins_s: float, lasts_s: float | None, energy_j: float | None, nodes: int = 1) -> Entry:
    began_s = BEGAN_S + begins_s
    ended_s = None if lasts_s is None else began_s + lasts_s
    return Entry(id=id, began_s=began_s, ended_s=ended_s, energy_j=energy_j, nodes=nodes)


JOB = entry("4711", -100.0, 6000.0, 3_400_000.0)
EXTERN, STEP = entry("4711.extern", -100.0, 6000.0, 1_800_000.0), entry("4711.0", -10.0, 5700.0, 1_710_000.0)
BOOKS = Books(job=JOB, steps=(EXTERN, STEP), plugins=("gpu",), shared_because=None)


def test_the_shortest_step_that_holds_the_run_is_compared_by_mean_power_and_the_jobs_sum_never() -> None:
    found = beside(summarise(EVENTS), EVENTS, BOOKS)
    assert (found.entry, found.energy_j, found.seconds, found.counts) == ("4711.0", 1_710_000.0, 5700.0, "the GPUs")
    assert (found.our_energy_j, found.our_seconds, found.our_counts) == (850_000.0, 5600.0, "the GPUs")
    assert found.power_pct == pytest.approx(100 * (850_000 / 5600 / 300 - 1))
    shown = table(found)
    assert shown.rows == (
        ("Slurm, 4711.0", "1710.0", "5700", "300.0", "the GPUs"),
        ("autocap", "850.0", "5600", "151.8", "the GPUs"),
    )
    said = "autocap's mean power is -49.4 % against that in Slurm's books; Slurm gives no error"
    assert sentence(found).startswith(said)


@pytest.mark.parametrize(
    ("books", "reason"),
    [
        (replace(BOOKS, shared_because="job 4711 had 4 CPUs"), "job 4711 had 4 CPUs"),
        (replace(BOOKS, plugins=()), "Slurm counts no energy here (AcctGatherEnergyType is none)"),
        (replace(BOOKS, job=entry("4711", 100.0, 6000.0, 1.0)), "it was not in that job"),
        (replace(BOOKS, job=entry("4711", -100.0, None, None), steps=()), "job 4711 still runs, and Slurm writes"),
        (replace(BOOKS, steps=(entry("4711.0", -10.0, 5700.0, None),)), "Slurm has no energy of job 4711"),
        (replace(BOOKS, steps=(entry("4711.0", -10.0, 100.0, 5.0),)), "no step of job 4711 was on all of its nodes"),
        (replace(BOOKS, job=replace(JOB, nodes=2)), "no step of job 4711 was on all of its nodes"),
    ],
)
def test_what_may_not_be_compared_is_not_shown(books: Books, reason: str) -> None:
    found = beside(summarise(EVENTS), EVENTS, books)
    assert (found.energy_j, found.power_pct, table(found)) == (None, None, None)
    assert reason in sentence(found)


@pytest.mark.parametrize(
    ("events", "plugins", "reason"),
    [
        (EVENTS, ("ipmi",), f"Slurm counts the whole node, and autocap the GPUs; {CHOICE}"),
        (EVENTS, ("gpu", "future"), "what Slurm's plugins read is not known here"),
        (told(emulated=True), ("gpu",), "autocap's power is modelled (an emulated device)"),
    ],
)  # fmt: skip
def test_different_things_stand_beside_each_other_without_a_difference(events, plugins, reason) -> None:
    found = beside(summarise(events), events, replace(BOOKS, plugins=plugins))
    assert found.energy_j == 1_710_000.0
    assert sentence(found) == f"no comparison with Slurm's books: {reason}"


def test_a_node_that_both_count_is_compared() -> None:
    events = of_node(EVENTS)
    found = beside(summarise(events), events, replace(BOOKS, plugins=("xcc",)))
    assert found.counts == found.our_counts == "the whole node"
    assert found.power_pct is not None
