"""`autocap report --slurm JOBID`, against programs that play Slurm's."""

import json
from pathlib import Path

import pytest

from autocap.cli import main
from autocap.runlog.event_log import EVENTS, line_of
from tests.doubles.slurm_stand import SlurmStand
from tests.doubles.told import told

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
