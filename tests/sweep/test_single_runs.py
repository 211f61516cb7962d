"""What was run once has no error of its own: none is shown, none is in JSON, and nothing takes it for exact."""

import math
import re
from collections.abc import Iterator

import pytest

from autocap.events import Event, SweepRunEnded
from autocap.metrics import Metric
from autocap.reports import text
from autocap.reports.html import page
from autocap.sweep.document import present_sweep
from autocap.sweep.summary import panels, summarise, to_csv
from autocap.wire.json_lines import Json
from tests.sweep.test_sweep import CAPS, finished, gpu_set, logged, plan

ONCE = "very cap was run once, so nothing is known of errors"


def once(caps_w=CAPS) -> list[Event]:
    runs = [
        finished(cap_w, time_s=10.0 + (260 - cap_w) / 100, energy_j=(1000.0 - 3 * (260 - cap_w),)) for cap_w in caps_w
    ]
    return logged(plan(repeats=1, discard=False, sets=(gpu_set(caps_w=caps_w),)), runs)


def leaves(value: Json, name: str = "") -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one, name)
    else:
        yield name, value


def test_no_table_page_picture_csv_or_json_has_an_error() -> None:
    presented = present_sweep(once())
    shown = "\n".join(text.lines(presented.document, 200))
    html = page(presented.document, presented.pictures())
    errors = [value for name, value in leaves(presented.result) if re.search(r"_stderr|_sd(_|$)", name)]
    assert ONCE in shown
    assert ONCE in html
    assert "±" not in shown
    assert "±" not in re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    assert "±" not in to_csv(summarise(once()))
    assert len(errors) > 20
    assert [error for error in errors if error is not None] == [0.0, 0.0], "the baseline is once itself, by definition"
    assert "inf" not in shown.replace("infinite", "")


def test_nothing_that_compares_takes_it_for_exact() -> None:
    limited = Metric(name="energy", max_slowdown=0.05)
    runs = [event.finished for event in once() if isinstance(event, SweepRunEnded)]
    (panel,) = panels(plan(), limited, runs)
    base = panel.baseline.measurement
    for row in panel.rows:
        assert not limited.allows(row.measurement, base), "what is not known is not sure"
        assert not limited.forbids(row.measurement, base)
        for name in ("energy", "edp", "ed2p"):
            assert math.isinf(Metric(name=name).versus(row.measurement, base).stderr)
    assert panel.chosen.setting == (260.0,), "200 W takes 6 % more time"
    assert math.isinf(panel.chosen.cost_stderr)


def test_a_second_run_of_any_cap_gives_errors_and_takes_the_sentence_away() -> None:
    events = [*once(), *logged(plan(), [finished(200.0, repeat=2, time_s=10.8, energy_j=(830.0,))])[1:]]
    shown = "\n".join(text.lines(present_sweep(events).document, 200))
    assert ONCE not in shown
    assert "±" in shown


@pytest.mark.parametrize("name", ["energy", "edp", "eds", "ed2p"])
def test_errors_that_are_not_known_stay_so_in_every_metric(name: str) -> None:
    (panel,) = panels(plan(), Metric(name=name, k=2.0 if name == "eds" else None),
                      [event.finished for event in once() if isinstance(event, SweepRunEnded)])  # fmt: skip
    assert all(math.isinf(best.cost_stderr) or best.setting == (260.0,) for best in panel.best_by_metric)
    assert not any(math.isnan(best.cost) for best in panel.best_by_metric)
