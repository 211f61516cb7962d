"""`autocap predict`, from a run directory to what is printed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.cli import main
from autocap.events import BaselineMeasured, BaselineRefined, Decided, DeviceFound, TrialEnded
from autocap.metrics import Metric, Rates
from autocap.plugins.predict.cards import Card, chosen
from autocap.plugins.predict.outlook import expect
from autocap.plugins.predict.source import measured
from autocap.runlog.event_log import EVENTS, line_of, read_events
from autocap.runlog.memory.store import MemoryStore
from tests.doubles.knob_logs import CLOCK, record_turned, turned
from tests.doubles.knob_logs import remembered as remembered_turned
from tests.doubles.memories import SETUP, curve, entry
from tests.doubles.recorded import record
from tests.sweep.test_sweep_page import swept


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("predict") / "run")


def without(run: Path, to: Path, *kinds: type) -> Path:
    shutil.copytree(run, to)
    kept = [event for event in read_events(run) if not isinstance(event, kinds)]
    (to / EVENTS).write_bytes(b"".join(line_of(event) for event in kept))
    return to


def said(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["predict", *map(str, words)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.mark.slow
def test_every_card_has_a_row_and_what_is_not_known_its_reason(run: Path, capsys) -> None:
    status, out, err = said(capsys, run, "--to", "all")
    assert (status, err) == (0, "")
    assert "simulated Quadro RTX 6000 (measured)" in out
    assert "power is modelled" in out
    of_v100 = next(line for line in out.splitlines() if line.startswith("V100 SXM2"))
    assert of_v100.count("–") == 3
    assert "not known of" in out
    assert "H100 SXM" in out
    assert "no published curves are of cards like it" in out
    assert "how low limits can be set is not known of" in out
    assert "best by eds, k = 2" in out


def test_json_has_ranges_or_reasons(run: Path, capsys) -> None:
    status, out, _ = said(capsys, run, "--to", "V100 SXM2", "--cap", "70%", "--json", "--metric", "energy")
    assert status == 0
    found = json.loads(out)
    here, there = found["cards"]
    assert (found["k"], found["devices"]) == (None, 1)
    assert (found["metric"], here["measured_here"], there["model"]) == ("energy", True, "V100 SXM2")
    assert there["cap_w"] == pytest.approx(210)
    assert there["period_s"]["low"] < there["period_s"]["value"] < there["period_s"]["high"]
    assert there["best"]["energy"]["value"] < 1


def test_a_sweep_is_as_good_as_a_run() -> None:
    found = measured(Path("sweep"), swept(("0",)))
    assert found.card is None  # it is called "card" there
    assert found.curve is not None
    assert found.per == "run"
    assert found.curve.share[-1] == 1
    known = replace(found, card=card_named("Quadro RTX 6000"))
    assert expect(known, card_named("V100 SXM2"), None, Metric(name="energy"), 32).energy_j.value is not None


def card_named(model: str) -> Card:
    return next(card for card in chosen("all") if card.model == model)


def test_without_a_baseline_or_a_card_nothing_is_told(run: Path, tmp_path: Path, capsys) -> None:
    status, out, err = said(capsys, without(run, tmp_path / "a", BaselineMeasured, TrialEnded), "--to", "all")
    assert (status != 0, out) == (True, "")
    assert "has no baseline" in err
    assert "has no baseline" in said(capsys, without(run, tmp_path / "b", DeviceFound), "--to", "all")[2]


def test_without_trials_the_default_limit_alone_is_told(run: Path, tmp_path: Path, capsys) -> None:
    _, out, _ = said(capsys, without(run, tmp_path / "a", TrialEnded), "--to", "V100 SXM2")
    assert "best cap not known of any card: no cap below the default limit was measured" in out


def test_a_damaged_line_is_left_out_and_counted_and_an_empty_directory_refused(run, tmp_path, capsys) -> None:
    copy = without(run, tmp_path / "a")
    with (copy / EVENTS).open("ab") as file:
        file.write(b'{"event": "trial_ended", "t_s": 1e999}\n\xff\xfe\n')
    status, _, err = said(capsys, copy, "--to", "A40")
    assert status == 0
    assert err.startswith("autocap: warning: ")
    damaged = copy / EVENTS
    damaged.write_bytes(damaged.read_bytes().replace(b'"event": "baseline_measured", ', b""))
    status, _, err = said(capsys, copy, "--to", "A40")
    assert (status, err.count("\n")) == (1, 2)
    assert err.startswith("autocap: warning: ")  # says why there is none
    assert "has no baseline" in err
    (tmp_path / "empty").mkdir()
    status, out, err = said(capsys, tmp_path / "empty", "--to", "all")
    assert (status != 0, out) == (True, "")
    assert "holds no run" in err


def test_a_baseline_that_no_card_can_have_drawn_is_refused(run: Path, tmp_path: Path, capsys) -> None:
    copy = without(run, tmp_path / "a", BaselineRefined, Decided)
    odd = [
        replace(event, measurement=replace(event.measurement, power_w=5000.0))
        if isinstance(event, BaselineMeasured)
        else event
        for event in read_events(copy)
    ]
    (copy / EVENTS).write_bytes(b"".join(line_of(event) for event in odd))
    status, out, err = said(capsys, copy, "--to", "all")
    assert (status != 0, out) == (True, "")
    assert "which no card can have drawn" in err


def test_a_remembered_job_is_as_good_as_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = MemoryStore(tmp_path / "autocap" / "memory")
    for one in (
        entry("abcd"), replace(entry("b0b0"), setup=replace(SETUP, gpus=("Foo",))), remembered_turned(CLOCK),
        entry("c0c0", curve({180.0: 80.0}, arrival_w=230.0)),
    ):  # fmt: skip
        store.write(one)
    status, out, err = said(capsys, "ABCD", "--to", "Quadro RTX 8000", "--precision", "32")
    assert (status, err) == (0, "")
    assert "Quadro RTX 6000 (measured) 180 -20 %" in " ".join(out.split())
    for key, reason in {
        "b0b0": "job b0b000000000 ran on Foo, of which nothing is known",
        "cd00": "turned clock, and only power limits can be compared between cards",
        "c0c0": "was at 230 W and the default limit is 260 W",
        "eeee": "nothing is remembered with a key that begins eeee",
    }.items():
        status, out, err = said(capsys, key, "--to", "A40")
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert reason in err


def test_a_run_of_another_knob_is_refused(tmp_path: Path, capsys) -> None:
    status, out, err = said(capsys, record_turned(tmp_path / "run", turned(CLOCK), CLOCK), "--to", "A40")
    assert (status, out) == (1, "")
    assert "turned clock, and only power limits can be compared between cards; give a run that turned them" in err


@pytest.mark.slow
def test_what_energy_and_hours_cost_is_said_in_the_runs_money(tmp_path: Path, capsys) -> None:
    priced = record(tmp_path / "run", rates=Rates(energy_price=0.36, currency="EUR"))
    here, there = costs(capsys, priced)
    assert here["cost"]["value"] == pytest.approx(here["energy_j"]["value"] * 1e-7)
    assert there["cost"]["high"] == pytest.approx(there["energy_j"]["high"] * 1e-7)
    assert costs(capsys, priced, "--energy-price", "0.72")[0]["cost"]["value"] == pytest.approx(
        2 * here["cost"]["value"]
    )
    here, there = costs(capsys, priced, "--hour-price", "3.6")
    assert "was not told what an hour of its card costs" in here["cost"]["unknown"]
    assert there["cost"]["value"] == pytest.approx(
        there["energy_j"]["value"] * 1e-7 + there["period_s"]["value"] * 1e-3
    )
    assert "EUR per million" in said(capsys, priced, "--to", "V100 SXM2")[1]
    status, out, err = said(capsys, priced, "--to", "A40", "--currency", "USD")
    assert (status, out) == (2, "")
    assert "the run was told its prices in EUR, and nothing is converted" in err
    assert "USD per million" in said(capsys, priced, "--to", "A40", "--currency", "USD", "--energy-price", "1")[1]
    status, out, err = said(capsys, priced, "--to", "all", "--hour-price", "1")
    assert (status, out) == (2, "")
    assert "--hour-price is of one card" in err


def costs(capsys, run: Path, *words: str) -> list[dict]:
    return json.loads(said(capsys, run, "--to", "V100 SXM2", "--precision", "32", "--json", *words)[1])["cards"]


@pytest.mark.slow
def test_a_metric_with_prices_is_refused_unless_another_is_given(tmp_path: Path, capsys) -> None:
    priced = record(tmp_path / "run", metric=Metric(name="cost", energy_price=0.3, hour_price=0.1))
    status, _, err = said(capsys, priced, "--to", "A40")
    assert status == 2
    assert "with a price of its card's hours, and other cards' are not known; give --metric" in err
    here, there = costs(capsys, priced, "--metric", "edp")
    assert here["cost"]["value"] > here["period_s"]["value"] * 0.1 / 3600
    assert "pass --hour-price" in there["cost"]["unknown"]
    of_energy = record(tmp_path / "other", metric=Metric(name="cost", energy_price=0.3))
    assert "best by energy" in said(capsys, of_energy, "--to", "A40")[1]  # which is the same


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--to", "H300"), "nothing can be said of such a card"),
        (("--to", "A40", "--metric", "cost"), "--metric cost cannot be predicted"),
        (("--to", "A40", "--metric", "eds", "--k", "0.5"), "EDS needs a finite k above 1"),
        (("--to", "A40", "--cap", "nan"), "is no cap"),
        (("--to", "A40", "--cap", "70 %"), "is no cap"),
        (("--to", "A40", "--cap", "1_00"), "is no cap"),
        (("--to", "A40", "--cap", "120%"), "give 5 to 10000 watts, or 10% to 100%"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_status_2(run: Path, capsys, words, message) -> None:
    status, out, err = said(capsys, run, *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
