"""The target, the command and the cost of a recurrence: what is given, and what it means."""

import math
import re

import pytest

from autocap.errors import UsageError
from autocap.metrics import Metric
from autocap.plugins.recur.config import RecurConfig, filled, require_places, target
from autocap.plugins.recur.record import Spent, cost, cost_stderr
from autocap.progress.values import OF_OUTPUT

SPENT = Spent(energy_j=7200.0, time_s=60.0, devices=2, most_w=500.0, energy_stderr_j=360.0)


@pytest.mark.parametrize(
    ("text", "name", "pattern", "enough", "not_enough"),
    [
        (r"acc=([\d.]+) >= 0.75", OF_OUTPUT, r"acc=([\d.]+)", 0.75, 0.7499),
        (r"loss (?P<value>\S+)<1e-3", OF_OUTPUT, r"loss (?P<value>\S+)", 0.0009, 0.001),
        (r"(?<=a >= )(\d+) > -1.5", OF_OUTPUT, r"(?<=a >= )(\d+)", -1.4, -1.5),
        ("val_loss <= 2", "val_loss", "", 2.0, 2.1),
    ],
)
def test_a_target_is_a_value_and_its_bound(text, name, pattern, enough, not_enough) -> None:
    found = target(text)
    assert (found.name, found.pattern) == (name, pattern)
    assert found.reached(enough)
    assert not found.reached(not_enough)
    assert not found.reached(math.nan)
    assert found.better(enough, not_enough)
    assert not found.better(not_enough, enough)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accuracy", "--target 'accuracy' has no bound; write a value and its bound, such as"),
        ("acc >= good", "has no bound"),
        ("acc: ... >= 0.7", "has no group that holds the value; write one in (), such as"),
        ("acc=( >= 0.7", "pattern 'acc=(' is no regular expression"),
    ],
)
def test_what_is_no_target_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        target(text)


def test_the_batch_size_and_the_scale_of_the_learning_rate_are_filled_in() -> None:
    words = ("sh", "-c", "train --bs={batch_size} --lr $(({lr_scale})) {epochs}", "{batch_size}")
    assert filled(words, 128, 32, "sqrt") == ("sh", "-c", "train --bs=128 --lr $((2)) {epochs}", "128")
    assert filled(words, 16, 32, "linear")[2] == "train --bs=16 --lr $((0.5)) {epochs}"
    assert filled(("train", "{batch_size}"), 8, 32, None) == ("train", "8")


@pytest.mark.parametrize(
    ("words", "rule", "message"),
    [
        (("train",), None, "the command has no {batch_size}, so every recurrence would be the same"),
        (("train", "{batch_size}", "{lr_scale}"), None, "which only a rule can fill in; add --lr-rule sqrt or linear"),
        (("train", "{batch_size}"), "sqrt", "--lr-rule sqrt has nowhere to go"),
    ],
)
def test_a_command_without_its_places_is_refused(words: tuple[str, ...], rule: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        require_places(words, rule)


@pytest.mark.parametrize(
    ("metric", "expected", "stderr"),
    [
        (Metric(name="energy"), 7200.0, 360.0),
        (Metric(name="edp"), 7200.0 * 60, 360.0 * 60),
        (Metric(name="ed2p"), 7200.0 * 3600, 360.0 * 3600),
        (Metric(name="eds", k=2.0), (7200.0 + 500 * 60) / 2, 180.0),
        (Metric(name="eds", k=4.0), (3 * 7200.0 + 500 * 60) / 4, 270.0),
        (Metric(name="cost", energy_price=0.5, hour_price=3.0), 0.001 + 0.1, 0.00005),
    ],
)
def test_a_whole_run_costs_its_energy_and_time_by_the_metric(metric: Metric, expected: float, stderr: float) -> None:
    assert cost(SPENT, metric) == pytest.approx(expected)
    assert cost_stderr(SPENT, metric) == pytest.approx(stderr)


def test_the_first_batch_size_is_the_jobs_own_unless_another_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    fields = RecurConfig.__dataclass_fields__
    assert fields["default"].default is None
    made = RecurConfig(run=None, name="a", batch_sizes=(64, 16), target="x > 1")  # type: ignore[arg-type]  # not asked
    assert made.usual == 64
    assert RecurConfig(run=None, name="a", batch_sizes=(64, 16), target="x > 1", default=16).usual == 16  # type: ignore[arg-type]
