"""Slurm's numbers beside ours: which of them may be compared, what is said where none may, and `autocap report --slurm
JOBID`, against programs that play Slurm's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.cli import main
from autocap.cli.slurm_books import Entry, SlurmAccounting, beside, sentence, table
from autocap.reports.summary.summarise import summarise
from autocap.runlog.event_log import EVENTS, line_of
from tests.doubles.slurm_stand import SlurmStand
from tests.doubles.told import of_node, told

BEGAN_S = 1767225600
STEP = f"4711.0|{BEGAN_S}|{BEGAN_S + 5610}|1|8|861135||node1"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmStand:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / EVENTS).write_bytes(b"".join(map(line_of, told(emulated=False))))
    stand = SlurmStand(tmp_path)
    stand.config("acct_gather_energy/gpu", 0)
    stand.books(f"4711|{BEGAN_S - 5}|{BEGAN_S + 5620}|1|8|861135|main|node1", STEP)
    monkeypatch.setenv("PATH", stand.environ["PATH"])
    return stand


def test_slurms_numbers_stand_beside_ours_in_the_text_and_in_the_json(slurm, capsys) -> None:
    words = ["report", str(slurm.folder / "run"), "--slurm", "4711"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "Slurm, 4711.0" in said
    assert "autocap's mean power is -1.1 % against that in Slurm's books" in said
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["slurm"]
    assert (found["entry"], found["energy_j"], found["our_energy_j"]) == ("4711.0", 861135.0, 850000.0)


def test_a_job_that_slurms_controller_has_forgotten_is_judged_by_its_partition_and_its_cpus(slurm, capsys) -> None:
    slurm.put("job", "")
    words = ["report", str(slurm.folder / "run"), "--slurm", "4711"]
    assert main(words) == 0
    assert "autocap's mean power is" in capsys.readouterr().out
    slurm.books(f"4711|{BEGAN_S - 5}|{BEGAN_S + 5620}|1|2|861135|main|node1", STEP)
    assert main(words) == 0
    assert "job 4711 had 2 of its nodes' 8 CPUs" in capsys.readouterr().out
    slurm.put("partition", "PartitionName=main\n   OverTimeLimit=NONE OverSubscribe=FORCE:4\n")
    assert main(words) == 0
    assert "Slurm has forgotten whether job 4711 let others have its CPUs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        ("", "Slurm accounting storage is disabled", "this Slurm keeps no books (accounting storage is disabled)"),
        ("", "", "Slurm's books have no job 4711"),
        ("4711_1|1|2|1|8||main|node1\n4711_2|1|2|1|8||main|node1\n", "", "have 2 jobs under 4711; name one"),
        ("4711|Unknown|Unknown|1|0||main|None assigned\n", "", "job 4711 has not begun"),
        ("4711|rubbish\n\x1b[2J\xff\n", "", "Slurm's books have no job 4711"),
    ],
)
def test_books_that_say_nothing_of_the_job_are_one_line(slurm, answer, error, said, capsys) -> None:
    slurm.put("sacct", answer)
    slurm.fail("sacct", error)
    assert main(["report", str(slurm.folder / "run"), "--slurm", "4711"]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


RUN_BEGAN_S = 1767225600.0  # of the run; it counts 850 kJ of the GPUs in its 5600 s
SEEN = told(emulated=False)
CHOICE = "--node-power chooses what autocap counts"


def entry(id: str, begins_s: float, lasts_s: float | None, energy_j: float | None, nodes: int = 1) -> Entry:
    began_s = RUN_BEGAN_S + begins_s
    ended_s = None if lasts_s is None else began_s + lasts_s
    return Entry(id=id, began_s=began_s, ended_s=ended_s, energy_j=energy_j, nodes=nodes)


JOB = entry("4711", -100.0, 6000.0, 3_400_000.0)
EXTERN, TRAINING = entry("4711.extern", -100.0, 6000.0, 1_800_000.0), entry("4711.0", -10.0, 5700.0, 1_710_000.0)
BOOKS = SlurmAccounting(job=JOB, steps=(EXTERN, TRAINING), plugins=("gpu",), shared_because=None)


def test_the_shortest_step_that_holds_the_run_is_compared_by_mean_power_and_the_jobs_sum_never() -> None:
    found = beside(summarise(SEEN), SEEN, BOOKS)
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
def test_what_may_not_be_compared_is_not_shown(books: SlurmAccounting, reason: str) -> None:
    found = beside(summarise(SEEN), SEEN, books)
    assert (found.energy_j, found.power_pct, table(found)) == (None, None, None)
    assert reason in sentence(found)


@pytest.mark.parametrize(
    ("events", "plugins", "reason"),
    [
        (SEEN, ("ipmi",), f"Slurm counts the whole node, and autocap the GPUs; {CHOICE}"),
        (SEEN, ("gpu", "future"), "what Slurm's plugins read is not known here"),
        (told(emulated=True), ("gpu",), "autocap's power is modelled (an emulated device)"),
    ],
)  # fmt: skip
def test_different_things_stand_beside_each_other_without_a_difference(events, plugins, reason) -> None:
    found = beside(summarise(events), events, replace(BOOKS, plugins=plugins))
    assert found.energy_j == 1_710_000.0
    assert sentence(found) == f"no comparison with Slurm's books: {reason}"


def test_a_node_that_both_count_is_compared() -> None:
    events = of_node(SEEN)
    found = beside(summarise(events), events, replace(BOOKS, plugins=("xcc",)))
    assert found.counts == found.our_counts == "the whole node"
    assert found.power_pct is not None
