"""`autocap budget --simulate`: what a budget would do, said before anybody promises it."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from autocap.cli import main
from autocap.plugins.fleet.cli import budget
from autocap.plugins.fleet.config import BudgetConfig, Policy

HEAD = "name,arrive_s,work_s,devices,curve,weight\n"
JOBS = HEAD + "a,0,1000,1,tesla-v100/resnet50,\nb,0,1000,2,tesla-v100/vgg19,2\nc,500,1000,1,quadro-rtx-6000/alexnet,1\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return path


def test_a_table_has_a_row_a_budget_and_rule(jobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "--simulate", str(jobs), "--budget", "80%,900", "--policy", "fair,uniform"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[:3] for line in said.splitlines()[-4:]] == [
        ["80%", "928", "fair"],
        ["80%", "928", "uniform"],
        ["78%", "900", "fair"],
        ["78%", "900", "uniform"],
    ]
    assert "3 jobs, which ask for 1160 W at most" in said


def test_as_json_the_same_is_a_list_and_the_picture_is_drawn(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["budget", "--simulate", str(jobs), "--budget", "100%", "--policy", "fair", "--json"]
    assert main([*words, "--plots", "--out", str(tmp_path / "plots")]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["budget_w"], row["slowdown_worst"]) == (1160, pytest.approx(0, abs=1e-6))
    assert row["energy"] == pytest.approx(1)
    assert "planned, not measured" in (tmp_path / "plots" / "budget.svg").read_text()


def test_curves_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    curves, jobs = tmp_path / "curves.csv", tmp_path / "jobs.csv"
    curves.write_text("curve,cap_w,power_w,time_s\nmine,100,100,2\nmine,200,200,1\n")
    jobs.write_text(HEAD + "a,0,100,1,mine,\nb,0,100,1,mine,\n")
    words = ["budget", "--simulate", str(jobs), "--curves", str(curves), "--budget", "300", "--policy", "fair"]
    assert main([*words, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["slowdown_worst"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ("name,arrive_s,work_s,devices\na,0,1,1\n", "lacks the column curve"),
        (HEAD + "a,0,1,1,tesla-v100/resnet5,\n", "line 2: there is no curve 'tesla-v100/resnet5' (did you mean"),
        (HEAD + "a,-1,1,1,tesla-v100/resnet50,\n", "line 2: arrive_s is '-1'; give a number from 0"),
        (HEAD + "a,0,soon,1,tesla-v100/resnet50,\n", "line 2: work_s is 'soon'"),
        (HEAD + "a,0,1,1.5,tesla-v100/resnet50,\n", "line 2: devices is 1.5; give a whole number"),
        (HEAD + "a,0,1,1,tesla-v100/resnet50,nan\n", "line 2: weight is 'nan'"),
        (HEAD, "holds no job"),
    ],
)
def test_what_is_no_job_is_said_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: str, complaint: str
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(rows)
    assert main(["budget", "--simulate", str(path)]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "the watts are missing"),
        ("--simulate x.csv --budget 5x", "'5x' is no budget"),
        ("--simulate x.csv --budget 0", "'0' is no budget"),
        ("--simulate x.csv --policy fare", "unknown policy 'fare' (did you mean fair?)"),
        ("weight 4242", "`autocap budget weight` is followed by the PID of a job and its weight"),
        ("weight train.py 2", "'train.py' is no PID; give that of a job"),
        ("weight 4242 0", "'0' is no weight; give 0.01 to 100, 1 being usual"),
        ("--simulate /nowhere/x.csv", "cannot be read: No such file or directory"),
        ("2400 --openadr http://vtn.example.com", "--openadr does not begin with https://"),
        ("2400 --openadr-program peaks", "--openadr-program has no meaning without --openadr"),
        ("2400 --openadr https://a.example --openadr-every 0.5", "0.5 is out of range; give 1 to 3600 s"),
        ("set 1800 --openadr https://a.example", "--openadr has no meaning for `autocap budget set`"),
    ],
)
def test_what_the_command_line_shows_to_be_wrong(capsys, words, complaint) -> None:
    assert main(["budget", *shlex.split(words)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_budget_has_settings_of_its_own_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held: list[BudgetConfig] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(budget, "_begin", lambda config, typed: held.append(config) or 0)
    monkeypatch.setenv("AUTOCAP_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("AUTOCAP_BUDGET_GROUP", "users")
    Path("autocap.toml").write_text(
        'gpus = "7"\nout = "of-a-run"\n[budget]\npolicy = "energy"\nfloor = 120\nopenadr-every = 3\njob = "12"\n'
        'schedule = "rows.csv"\n'
    )
    assert main(["budget", "900", "--floor", "130"]) == 0
    assert held == [
        BudgetConfig(
            watts=900.0, policy=Policy.ENERGY, floor_w=130.0, group="users", schedule=str(tmp_path / "rows.csv")
        )
    ]
    said = "autocap: settings taken: policy energy, schedule rows.csv from ./autocap.toml; group users from AUTOCAP_"
    assert capsys.readouterr().err.startswith(said)
    assert main(["budget", "status"]) != 0
    assert "policy" not in capsys.readouterr().err
    assert main(["config", "budget", "--json"]) == 0
    shown = {one["option"]: one for one in json.loads(capsys.readouterr().out)["settings"]}
    assert (shown["policy"]["value"], shown["policy"]["source"]) == ("energy", "./autocap.toml")
    assert shown["openadr-every"]["unused"] == "no openadr is given"
    assert shown["gpus"]["source"] == "built-in"
    Path("autocap.toml").write_text('[budget]\nschedule = "command:rm -r x"\n')
    assert main(["budget", "900"]) == 2
    assert "has code run, which a folder may have brought with it" in capsys.readouterr().err


def test_over_nodes_what_cannot_be_is_refused_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOCAP_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    for words, said in (
        (["budget", "900", "--nodes", "ray"], "has no Ray; install it, in the version of the cluster"),
        (
            ["budget", "900", "--nodes", "ray", "--job", "12"],
            "--job 12 names a Slurm job; use --nodes slurm",
        ),
        (["budget", "900", "--nodes", "slurm"], "--nodes slurm: this is not inside a Slurm job; start it in one"),
        (["budget", "900", "--job", "12"], "--job 12 is of a job on several nodes; add --nodes, or drop it"),
        (["budget", "status", "--nodes", "slurm"], "--nodes has no meaning for `autocap budget status`; leave it out"),
    ):
        assert main(words) != 0
        assert said in capsys.readouterr().err
