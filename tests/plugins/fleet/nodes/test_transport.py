"""What --nodes may name, and what is said of what it may not."""

import pytest

from autocap.cli import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "slrum"], "--nodes slrum: there is no 'slrum' (did you mean slurm?); choose slurm, ray"),
        (["--nodes", "slurm:x"], "--nodes slurm:x: Slurm has no address here; name its job with --job ID"),
        (["--nodes", "ray:x", "--job", "1"], "--nodes ray:x has no such address; choose ray:ADDRESS as ray:10.0.0.1"),
        (["--nodes", "ray:"], "'ray:' is no NAME or NAME:ADDRESS; choose slurm, ray or ray:ADDRESS"),
        (["--nodes", "ray"], "--nodes ray has many jobs; name one with --job ID, its id in Ray"),
        (["--nodes", "slurm", "--job", "x"], "--job x: not the id of a Slurm job, such as 4711 or 4711_2"),
        (["--nodes", "ray", "--job", "a/b"], "'a/b' is no job; give its id, such as 4711 or 4711_2 in Slurm"),
    ],
)
def test_what_is_no_way_to_nodes(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", *words]) == 2
    assert said in capsys.readouterr().err
