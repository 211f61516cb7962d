"""Every table and the view as a terminal shows them, to the letter; written anew with AUTOCAP_SNAPSHOTS=write."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from autocap.cli import device_report
from autocap.cli.device_report import Setter
from autocap.cli.devices import show
from autocap.devices.inventory import SensorSeen
from autocap.events import State, StateEntered, TrialStarted
from autocap.reports import run_list, text
from autocap.reports.document import Document
from autocap.reports.live.view import View
from autocap.reports.rendering import present_run
from autocap.reports.run_document import run_document
from autocap.reports.run_list import FINISHED, RUNNING, PastRun, past_run, read_result
from autocap.reports.summary.summarise import UNFINISHED, summarise
from autocap.sweep.document import present_sweep
from tests.doubles.logs import status_after, until
from tests.doubles.told import of_node, told
from tests.sweep.test_sweep import curve_runs, gpu_set, logged, plan

SNAPSHOTS = Path(__file__).parent / "snapshots"
WIDTHS, ENCODINGS = (50, 80, 100, 140), ("utf-8", "ascii")
Shown = Callable[[int, str], list[str]]


def run() -> Shown:
    events = told()
    return _text(run_document(summarise(events), events))


def node() -> Shown:
    events = of_node(told())
    return _text(run_document(summarise(events), events))


def sweep() -> Shown:
    made = plan(repeats=2, emulated=True, sets=(gpu_set("0,1"),))
    return _text(present_sweep(logged(made, curve_runs("0,1", gpus=2))).document)


def searching() -> Shown:
    return _view(until(told(), TrialStarted))


def paused() -> Shown:
    return _view([*until(told(), TrialStarted), StateEntered(t_s=125.0, state=State.PAUSED)])


def held() -> Shown:
    return _view(told()[:-3])


def runs() -> Shown:
    events = told()
    row = past_run("autocap-runs/20260101T000000Z-7", read_result(present_run(Path(), events).result), FINISHED, None)
    young = replace(row, directory="autocap-runs/young", state=RUNNING, cap_w=None, saved=None, why=UNFINISHED)
    none = replace(
        row, directory="autocap-runs/none", cap_w=None, saved=None, why="not better beyond its error: eds 0.998"
    )
    odd = PastRun(directory="autocap-runs/odd", trouble="autocap-runs/odd/events.jsonl is a named pipe; pass a file")
    return _text(run_list.document([young, row, none, odd], Path("autocap-runs")))


def devices() -> Shown:
    limited = {"cap_min_w": 100.0, "cap_max_w": 260.0, "cap_default_w": 260.0, "cap_requested_w": 240.0}
    sensor = SensorSeen(source="instant field 186", update_s=0.1, counter_j=812.0, integrated_j=815.0)
    gpu = device_report.Gpu(
        **limited,
        cap_enforced_w=240.0,
        index=0,
        uuid="GPU-0",
        name="Quadro RTX 6000",
        settable=False,
        settable_why="setting a limit needs root",
        setters=(Setter(name="direct", settable=False, why="setting a limit needs root"),),
        persistence=True,
        mig=False,
        sensor=sensor,
    )
    package = device_report.Package(
        **limited,
        cap_enforced_w=None,
        index=0,
        uuid="package-0",
        name="package-0",
        settable="unknown",
        settable_why="the kernel does not say",
        setters=(Setter(name="direct", settable="unknown", why="the kernel does not say"),),
        zones=("intel-rapl:0",),
        window_s=0.5,
        memory=True,
        trouble=None,
    )
    found = device_report.DeviceReport(
        driver_version="570.1",
        unavailable=None,
        gpus=(gpu,),
        packages=(package,),
        packages_unavailable=None,
        other_kinds={},
    )

    def shown(width: int, encoding: str) -> list[str]:
        written, before = io.BytesIO(), (sys.stdout, os.environ.get("COLUMNS"))
        sys.stdout, os.environ["COLUMNS"] = io.TextIOWrapper(written, encoding), str(width)
        try:
            show(found)
            return written.getvalue().decode(encoding).splitlines()
        finally:
            sys.stdout = before[0]
            if before[1] is None:
                del os.environ["COLUMNS"]
            else:
                os.environ["COLUMNS"] = before[1]

    return shown


def _text(document: Document) -> Shown:
    return lambda width, encoding: text.lines(document, width, encoding)


def _view(events: list) -> Shown:
    def shown(width: int, encoding: str) -> list[str]:
        stream = io.TextIOWrapper(io.BytesIO(), encoding)
        console = Console(file=stream, force_terminal=True, color_system=None)
        return [line.rstrip() for line in View(console).lines(status_after(events), 125.0, width, 20)]

    return shown


KINDS = {one.__name__: one for one in (run, node, sweep, searching, paused, held, runs, devices)}


def sections(shown: Shown) -> Iterator[str]:
    for width in WIDTHS:
        for encoding in ENCODINGS:
            yield "\n".join([f"{f' {width} {encoding} ':=^{width}}", *shown(width, encoding), ""])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shown_is_what_was_looked_at(kind: str) -> None:
    path, now = SNAPSHOTS / f"{kind}.txt", "\n".join(sections(KINDS[kind]()))
    if os.environ.get("AUTOCAP_SNAPSHOTS") == "write":
        SNAPSHOTS.mkdir(exist_ok=True)
        path.write_text(now)
    assert now == path.read_text(), f"look at it, then: AUTOCAP_SNAPSHOTS=write pytest {Path(__file__).name}"


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("width", [41, *WIDTHS])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_wider_than_the_terminal_or_cut_and_ascii_is_ascii(kind: str, width: int, encoding: str) -> None:
    lines = KINDS[kind]()(width, encoding)
    wide = [line for line in lines if cell_len(line) > width]
    # Sentences of `devices` are lines for grep, which a terminal folds.
    assert not wide or kind == "devices"
    if encoding == "ascii":
        assert "".join(lines).isascii()
        assert "\\x" not in "".join(lines)
    elif kind != "sweep":
        assert not any("…" in line for line in lines)
    if kind not in ("devices", "node"):
        assert any("emulated" in line.lower() for line in lines)
