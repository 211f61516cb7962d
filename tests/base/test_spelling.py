import pytest

from autocap.metrics import METRICS
from autocap.text import did_you_mean


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("enrgy", " (did you mean energy?)"),
        ("EDP", " (did you mean edp?)"),
        ("ed2", " (did you mean ed2p?)"),
        ("co", " (did you mean cost?)"),
        ("c", ""),
        ("wall time", ""),
        ("", ""),
        ("energy" * 1000, ""),
        ("\x1b[2J", ""),
    ],
)
def test_a_name_is_compared_with_those_that_are(name: str, meant: str) -> None:
    assert did_you_mean(name, METRICS) == meant


def test_dashes_in_front_make_no_option_like_another() -> None:
    known = ["--k", "--out", "--min-cap", "--max-cap", "--trial-seconds"]
    assert did_you_mean("--x", known) == ""
    assert did_you_mean("--trial_seconds", known) == " (did you mean --trial-seconds?)"
    assert did_you_mean("trial", known) == " (did you mean --trial-seconds?)"
    assert did_you_mean("--mincap", known) == " (did you mean --min-cap?)"
