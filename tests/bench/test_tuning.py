"""`python -m bench scenarios --tuning`: what is refused, and that another value changes what a job does."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.scenarios import command, step_lengths
from bench.scenarios.command import main


def test_another_value_of_a_threshold_changes_what_a_job_does(tmp_path: Path, capsys) -> None:
    out = tmp_path / "rows.json"
    words = ["--step-lengths", "--count", "1", "--seed-base", "5", "--json", str(out)]
    main([*words, "--tuning", "window_least_s=30", "--tuning", "confirm_rounds=4"])
    said = capsys.readouterr().out
    assert "window_least_s: 30 in place of 1 s" in said
    assert "confirm_rounds: 4 in place of 3 rounds" in said
    (tuned,), usual = json.loads(out.read_text()), asdict(step_lengths.play(5))
    assert tuned["seed"] == usual["seed"]
    assert tuned["search_s"] > 2 * usual["search_s"]
    assert command.known()["window_least_s"].value == 1.0  # of a worker alone


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "revisit_every=60",
            "unknown threshold 'revisit_every' (did you mean revisit_every_s?); `autocap config --all`",
        ),
        ("revisit_every_s", "'revisit_every_s' is not KEY=VALUE"),
        ("revisit_every_s=0", "cannot be '0'; give a number above 0, up to 1000000000 (built-in: 120 s)"),
        ("revisit_every_s=-1", "cannot be '-1'; give a number above 0"),
        ("revisit_every_s=nan", "cannot be 'nan'; give a number above 0"),
        ("confirm_rounds=2.5", "cannot be '2.5'; give a whole number from 1 to 1000000000 (built-in: 3 rounds)"),
    ],
)
def test_a_wrong_threshold_or_value_is_refused_with_what_is_allowed(given: str, message: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--quick", "--tuning", given])
    assert message in capsys.readouterr().err
