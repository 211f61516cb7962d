"""Pictures of a run as files."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from autocap.reports import plots, rendering
from autocap.reports.rendering import present_run
from autocap.runlog.directory import PICTURES
from autocap.runlog.event_log import read_events
from tests.doubles.recorded import record


@pytest.fixture(autouse=True)
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pixels are drawn and packed sooner than many."""
    monkeypatch.setattr(plots, "_DPI", 30)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("runs") / "run")


def test_every_picture_becomes_a_png_and_an_svg_that_says_power_is_emulated(run: Path) -> None:
    written = list(rendering.write_plots(run, present_run(run, read_events(run))))
    names = [f"{name}.{kind}" for name in PICTURES for kind in ("png", "svg")]  # those that --force removes
    assert [path.name for path in written] == names
    for path in written:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        else:
            words = "".join(ElementTree.parse(path).getroot().itertext())
            assert "EMULATED power: modelled, not measured" in words


def test_a_killed_run_has_pictures_of_what_there_is(run: Path) -> None:
    events = read_events(run)
    written = list(rendering.write_plots(run.parent, present_run(run.parent, events[:1])))
    assert written == []
    assert [path.name for path in rendering.write_plots(run.parent, present_run(run.parent, events[:6]))] == [
        "timeline.png",
        "timeline.svg",
    ]
