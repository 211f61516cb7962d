"""What the pictures of a run show, before anything is drawn, and the SVG that is drawn of it."""

import xml.etree.ElementTree as ElementTree
from typing import TypeVar

import numpy as np
import pytest

from autocap.events import Event, Warned
from autocap.records import Cost
from autocap.reports.figures import pictures, svg
from autocap.reports.figures.caps import Curve, caps, of_run, tradeoff
from autocap.reports.figures.model import (
    Axis,
    Band,
    Box,
    Line,
    Mark,
    Picture,
    Plot,
    Points,
    Rows,
    beside,
    place,
    spanning,
    tick_labels,
    ticks,
)
from autocap.reports.figures.timeline import BUCKETS, changes, envelope
from autocap.reports.summary.gains import METRICS, TIME, CapCosts
from autocap.reports.summary.record import Summary
from autocap.reports.summary.summarise import summarise
from autocap.runlog.columns import Samples, parse, read_samples
from autocap.runlog.event_log import read_events
from tests.doubles.recorded import record

_M = TypeVar("_M", bound=Mark)
# How far DejaVu Sans of 12 pixels moves on after a character, as FreeType fits it to pixels.
REGULAR_PX = {
    3: "'.Iijl", 4: " ,/:;J\\ft", 5: "!\"()-[]r|²", 6: "?LP_`", 7: "*EFRTYachknsuvxyz{}",
    8: "$0123456789ABCKNSVXbdegopq", 9: "&DGHUZ", 10: "#+<=>MOQ^w~±−×", 11: "m", 12: "%@W…",
}  # fmt: skip
BOLD_PX = {
    3: "'", 4: " ,./IJ\\ijl", 5: "):;]|", 6: "!\"(-[_`²", 7: "*?frt", 8: "0123456789EFLYcksvxyz{",
    9: "$ABCKPRSUVXZabdeghnopqu}", 10: "+<=>DGHNT^~±−×", 11: "#&OQw", 12: "%@Mm…", 13: "W",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, list[Event], Samples]:
    path = record(tmp_path_factory.mktemp("runs") / "run")
    events = read_events(path)
    return summarise(events), events, read_samples(path)


@pytest.fixture(scope="module")
def drawn(run: tuple[Summary, list[Event], Samples]) -> dict[str, Picture]:
    return {picture.name: picture for picture in pictures(*run)}


def plots(picture: Picture) -> list[Plot]:
    return [panel for panel in picture.panels if isinstance(panel, Plot)]


def named(plot: Plot, kind: type[_M]) -> dict[str, _M]:
    return {mark.name: mark for mark in plot.marks if isinstance(mark, kind) and mark.name is not None}


def a_curve(name: str) -> Curve:
    """Four caps of a sweep: each W below 260 saves 0.2 % of energy and costs 0.1 % of time."""
    rows = tuple(
        CapCosts(
            setting=(cap_w,),
            costs={
                TIME: Cost(value=1 + (260 - cap_w) / 1000, stderr=0.01),
                **{metric: Cost(value=1 - (260 - cap_w) / 500, stderr=0.02) for metric in METRICS},
            },
        )
        for cap_w in (110.0, 160.0, 210.0, 260.0)
    )
    front = np.array([(row.costs[TIME].value, row.costs["energy"].value) for row in reversed(rows)])
    return Curve(name=name, metrics=METRICS, asked_for="eds_2", baseline_w=(260.0,), measured=rows, front=front)


def test_a_run_has_its_timeline_its_trade_off_and_its_costs_by_cap(drawn: dict[str, Picture]) -> None:
    assert list(drawn) == ["timeline", "search", "tradeoff", "caps", "other-metrics"]
    assert all(picture.note == "EMULATED power: modelled, not measured" for picture in drawn.values())


def test_the_timeline_shows_states_trials_draw_both_limits_and_the_period(drawn, run) -> None:
    summary, _, samples = run
    rows, power, period = drawn["timeline"].panels
    assert isinstance(rows, Rows)
    assert isinstance(power, Plot)
    assert isinstance(period, Plot)
    names = [row.name for row in rows.rows]
    assert names == ["waiting", "baseline", "searching", "confirming", "holding", "trials, W"]
    assert [bar.label for bar in rows.rows[-1].bars] == [f"{trial.setting[0]:g}" for trial in summary.trials]
    assert {"cap", "enforced limit", "mean draw"} <= set(named(power, Line))
    assert set(named(power, Line)["cap"].y) == set(samples.requested_w)
    assert power.y.low == 0
    assert len(named(period, Points)["trial"].x) == sum(trial.state == "complete" for trial in summary.trials)
    assert set(named(period, Points)) >= {"baseline", "trial", "kept cap"}
    known = named(period, Points)["baseline"]
    assert known.y[0] == summary.baseline.period_s
    assert known.y_error[0] == pytest.approx(summary.baseline.period_s * summary.baseline.period_rel_stderr)


@pytest.mark.slow
def test_the_lowest_and_highest_reading_survive_in_a_long_timeline(run: tuple[Summary, list[Event], Samples]) -> None:
    summary, events, _ = run
    t_s = np.arange(0, 3 * 86400, 0.25)  # a million readings over three days
    power_w = 150 + 10 * np.sin(t_s)
    power_w[777_777], power_w[111_111] = 249.0, 3.0
    caps_w, steps = np.full(len(t_s), 175.0), np.floor(t_s / 0.2)
    limits = {"requested_w": caps_w, "enforced_w": caps_w}
    days = Samples(t_s=t_s, power_w=power_w, steps=steps, step_t_s=0.2 * steps, **limits)
    whole = pictures(summary, [*events, Warned(t_s=3 * 86400.0, text="late")], days)[0]
    band = named(plots(whole)[0], Band)["lowest to highest draw"]
    assert len(band.x) <= BUCKETS
    assert (np.nanmin(band.low), np.nanmax(band.high)) == (3.0, 249.0)
    assert plots(whole)[0].x.label == "time since the start, h"
    assert len(svg.render(whole, 960, "wide")) < 200_000


def test_lines_of_equal_worth_go_through_the_baseline_and_meet_their_metric(drawn: dict[str, Picture]) -> None:
    (plot,) = plots(drawn["tradeoff"])
    lines = {name: line for name, line in named(plot, Line).items() if name.startswith("equal")}
    assert set(lines) == {"equal energy", "equal EDP", "equal EDS(1.5)", "equal EDS(2)"}
    assert len({line.style.dash for line in lines.values()}) == len(lines)
    for label, k in (("equal EDS(1.5)", 1.5), ("equal EDS(2)", 2.0)):
        time, energy = lines[label].x, lines[label].y
        np.testing.assert_allclose((k - 1) / k * energy + time / k, 1.0)
    np.testing.assert_allclose(lines["equal EDP"].x * lines["equal EDP"].y, 1.0)
    np.testing.assert_allclose(lines["equal energy"].y, 1.0)


def test_measured_and_predicted_caps_are_told_apart_and_only_the_measured_have_error_bars(drawn, run) -> None:
    (plot,) = plots(drawn["tradeoff"])
    points = named(plot, Points)
    assert {"measured", "predicted", "baseline", "kept, confirmed"} == set(points)
    assert points["measured"].style.marker != points["predicted"].style.marker
    assert points["measured"].x_error is not None
    assert points["predicted"].x_error is None
    tried = {f"{trial.setting[0]:g}" for trial in run[0].trials if trial.setting != (260.0,)}
    assert set(points["measured"].labels) == tried
    front = named(plot, Line)["Pareto front"]
    assert np.all(np.diff(front.x) >= 0)
    assert np.all(np.diff(front.y) <= 0)


def test_every_metric_has_a_panel_against_the_cap_with_errors_and_the_prediction(drawn: dict[str, Picture]) -> None:
    asked_for, others = plots(drawn["caps"]), plots(drawn["other-metrics"])
    assert [plot.title for plot in asked_for] == ["energy", "time", "EDS(2)"]
    assert [plot.title for plot in others] == ["EDP", "ED²P", "EDS(1.5)"]
    assert [name for name, picture in drawn.items() if picture.folded] == ["search", "other-metrics"]
    for plot in (*asked_for, *others):
        assert plot.x.label == "cap, W"
        measured = named(plot, Points)["measured"]
        assert measured.y[np.argmax(measured.x)] == 1.0  # the baseline
        assert measured.y_error is not None
        assert named(plot, Line)["predicted"].style.dash


def test_a_sweep_has_one_panel_for_each_network_or_gpu_set() -> None:
    curves = [a_curve("GPU 0"), a_curve("GPU 0,1"), a_curve("GPU 0-3")]
    (together,) = caps(curves, "")
    for picture in (tradeoff(curves, ""), together):
        assert [plot.title for plot in plots(picture)] == ["GPU 0", "GPU 0,1", "GPU 0-3"]
    shown = named(plots(together)[0], Points)
    assert list(shown) == ["energy", "time", "EDP", "EDS(1.5)", "EDS(2)"]
    styles = {(points.style.colour, points.style.marker) for points in shown.values()}
    assert len({colour for colour, _ in styles}) == len({marker for _, marker in styles}) == len(shown)


def test_a_run_without_a_device_has_no_pictures_and_one_without_a_baseline_only_its_timeline(run) -> None:
    _, events, samples = run
    empty = parse(b"")
    assert pictures(summarise(events[:1]), events[:1], empty) == []
    assert [picture.name for picture in pictures(summarise(events[:3]), events[:3], samples)] == ["timeline"]
    assert of_run(summarise(events[:3]), events[:3]) is None


def extent(element: ElementTree.Element) -> tuple[float, float]:
    """Where a text begins and ends, pixels, in DejaVu Sans: the widest font that a browser is likely to take."""
    of_font = BOLD_PX if element.attrib.get("class") in ("head", "note") else REGULAR_PX
    width = sum(next(px for px, some in of_font.items() if character in some) for character in element.text or "")
    share = {"start": 0.0, "middle": 0.5, "end": 1.0}[element.attrib.get("text-anchor", "start")]
    left = float(element.attrib["x"]) - share * width
    return left, left + width


@pytest.mark.parametrize("width", [960, 358])
def test_the_svg_is_well_formed_names_itself_and_stays_on_its_page(drawn: dict[str, Picture], width: int) -> None:
    for picture in drawn.values():
        text = svg.render(picture, width, "wide")
        root = ElementTree.fromstring(text)
        assert root.find("title") is not None
        assert "EMULATED" in "".join(element.text or "" for element in root.iter("text"))
        height = float(root.attrib["viewBox"].split()[3])
        for element in root.iter("text"):
            left, right = extent(element)
            assert 0 <= left < right <= width, element.text
            assert 0 <= float(element.attrib["y"]) <= height
        assert "nan" not in text
        assert "inf" not in text.replace("info", "")


def test_a_picture_is_a_file_of_its_own_that_needs_no_browser(drawn: dict[str, Picture]) -> None:
    for picture in drawn.values():
        text = svg.file(picture).decode()
        root = ElementTree.fromstring(text)
        left, top, width, height = map(float, root.attrib["viewBox"].split())
        words = list(root.iter("{http://www.w3.org/2000/svg}text"))
        for element in words:
            start, end = extent(element)
            assert left < start < end < left + width, element.text
            assert top < float(element.attrib["y"]) < top + height
        said = " ".join(element.text or "" for element in words)
        assert said.startswith(f"{picture.title} {picture.caption}")
        assert "EMULATED power: modelled, not measured" in said
        assert "var(" not in text


@pytest.mark.parametrize("width", [960, 358])
@pytest.mark.parametrize("high", [0.0007, 0.152, 10.0, 31_000.0, 2.5e6])
@pytest.mark.parametrize("title", [None, "a sweep with a name far longer than its panel is wide, " * 4])
def test_no_number_on_an_axis_and_no_title_is_cut_off(width: int, high: float, title: str | None) -> None:
    axis = Axis(label="time per iteration, s", low=0.79 * high, high=high)
    for share, one_x in ((1.0, True), (1.6, True), (1.0, False)):
        panels = tuple(Plot(title=title, x=axis, y=axis, marks=(), share=share) for _ in range(3))
        picture = Picture(name="numbers", title="", caption="", panels=panels, columns=3, one_x=one_x)
        for element in ElementTree.fromstring(svg.render(picture, width, "wide")).iter("text"):
            left, right = extent(element)
            assert 0 <= left < right <= width, element.text


def test_few_readings_stay_as_they_are_and_gaps_are_not_drawn_across() -> None:
    x = np.array([0.0, 1.0, 2.0, 20.0, 21.0])
    found = envelope(x, np.array([1.0, np.nan, 3.0, 4.0, 5.0]))
    assert found.x.tolist() == [0.0, 2.0, 11.0, 20.0, 21.0]
    np.testing.assert_array_equal(found.mean, [1.0, 3.0, np.nan, 4.0, 5.0])
    assert len(envelope(np.empty(0), np.empty(0)).x) == 0


def test_a_limit_is_told_by_its_changes_and_its_end() -> None:
    x, y = changes(np.arange(6.0), np.array([np.nan, np.nan, 1.0, 1.0, 2.0, 2.0]))
    assert x.tolist() == [0.0, 2.0, 4.0, 5.0]
    np.testing.assert_array_equal(y, [np.nan, 1.0, 2.0, 2.0])


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.0, 10.0, ["0", "2", "4", "6", "8", "10"]),
        (113.0, 267.0, ["150", "200", "250"]),
        (0.93, 1.02, ["0.94", "0.96", "0.98", "1.00", "1.02"]),
        (-0.3, 0.3, ["-0.2", "0.0", "0.2"]),
        (0.0, 0.0007, ["0.0000", "0.0002", "0.0004", "0.0006"]),
    ],
)
def test_ticks_are_round_and_have_the_digits_that_tell_them_apart(low: float, high: float, labels: list[str]) -> None:
    assert tick_labels(ticks(Axis(label="", low=low, high=high), 5)) == labels
    assert len(ticks(Axis(label="", low=low, high=high), 2)) >= 3


def test_an_axis_spans_what_is_known_and_something_where_nothing_is() -> None:
    assert spanning("x", [np.array([np.nan, np.inf])]).high == 1.0
    flat = spanning("x", [np.array([5.0])])
    assert flat.low < 5.0 < flat.high
    assert spanning("x", [np.array([3.0])], low=0.0).low == 0.0


def test_equal_lengths_of_a_logarithmic_axis_are_equal_ratios() -> None:
    axis = Axis(label="", low=0.15, high=15.0, log=True)
    assert tick_labels(ticks(axis, 5)) == ["0.2", "0.5", "1.0", "2.0", "5.0", "10.0"]
    picture = Picture(name="log", title="", caption="", panels=(Plot(title="", x=axis, y=axis, marks=()),))
    drawn = ElementTree.fromstring(svg.render(picture, 500, "wide")).iter("text")
    at = {
        float(one.text): float(one.attrib["x"])
        for one in drawn
        if one.attrib.get("text-anchor") == "middle" and one.text
    }
    assert at[1.0] - at[0.2] == pytest.approx(at[10.0] - at[2.0], abs=0.2)


def test_labels_neither_overlap_nor_leave_the_page_and_one_without_room_is_left_out() -> None:
    page = Box(left=0, top=0, right=100, bottom=100)
    wanted = [beside(50, 50, 20, 10, 6)] * 9
    placed = place(wanted, page, [Box(left=45, top=45, right=55, bottom=55)])
    boxes = [box for box in placed if box is not None]
    assert 4 <= len(boxes) < len(wanted)
    assert all(box.within(page) for box in boxes)
    assert not any(one.overlaps(other) for one in boxes for other in boxes if one is not other)
