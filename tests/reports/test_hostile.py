"""Whatever a log holds, a report is made of it or refused in a sentence: in text, as a page, as JSON, and followed."""

import copy
import io
import json
import math
import random
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autocap.errors import AutocapError
from autocap.events import Event, record_kind
from autocap.reports import html, text
from autocap.reports.figures import pictures, svg
from autocap.reports.live.status import Status
from autocap.reports.live.terminal import PlainLines
from autocap.reports.rendering import Presentation, present_run
from autocap.reports.summary.summarise import summarise as summarise_run
from autocap.runlog.columns import parse
from autocap.runlog.event_log import EVENTS, line_of, read_events
from autocap.session.warm_start import warm_start
from autocap.sweep.document import present_sweep
from autocap.sweep.summary import summarise, to_csv
from tests.doubles.logs import whole_log
from tests.runlog.test_runlog import EVENTS as OF_A_RUN
from tests.runlog.test_runlog import OF_NODE, PER_GPU, SWEEP

_SMALL, _LARGE = (5e-324, 1e-300, 1e-9, 0.1), (1e6, 1e9, 1e10, 1e15, 1e18, 1e22, 1e308, -1e308, 10**17, 10**400)
NUMBERS = (0, -0.0, 1, -1, 2, *_SMALL, *_LARGE)
ODD = (*NUMBERS, *NUMBERS, None, True, False, "", "x", "\ud800", "\x1b[2J", "eds", "HOLDING", [], {}, [0.0], [1.0, 2.0])


@cache
def bases() -> tuple[tuple[dict[str, object], ...], ...]:
    """The lines of whole logs: of a job, of a run with everything in it, of a sweep."""
    whole: tuple[Sequence[Event], ...] = (
        whole_log(),
        [*OF_A_RUN[:2], *OF_NODE, *OF_A_RUN[2:-1], *PER_GPU, OF_A_RUN[-1]],
        [SWEEP[0], *OF_NODE, *SWEEP[1:], SWEEP[-1], SWEEP[-1], OF_A_RUN[-1]],
    )
    return tuple(tuple(json.loads(line_of(event)) for event in events) for events in whole)


def spoilt(seed: int) -> list[bytes]:
    """The lines of a log in which some numbers, fields and lines were exchanged for others."""
    rng = random.Random(seed)
    lines: list[dict[str, object]] = json.loads(json.dumps(rng.choice(bases())))
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        match rng.randrange(8):
            case 0:
                lines.insert(rng.randrange(len(lines)), lines[rng.randrange(len(lines))])
            case 1 if len(lines) > 2:
                del lines[rng.randrange(len(lines))]
            case 2:
                first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[first], lines[second] = lines[second], lines[first]
            case _:
                _spoil(rng, rng.choice(lines))
    return [json.dumps(line).encode() + b"\n" for line in lines]


def _spoil(rng: random.Random, part: object) -> None:
    """Exchange something in it, at any depth."""
    places = list(part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ())
    if not places:
        return
    key, value = rng.choice(places)
    if isinstance(value, dict | list) and value and rng.random() < 0.8:
        _spoil(rng, value)
    elif isinstance(value, list) and rng.random() < 0.5:
        part[key] = (value * 3)[: rng.randrange(4)]  # type: ignore[index]  # a dict or a list, by its own key
    elif isinstance(part, dict) and rng.random() < 0.1:
        del part[key]
    else:
        part[key] = copy.copy(rng.choice(ODD))  # type: ignore[index]  # likewise


def reported(folder: Path) -> None:
    """All that is made of a log; raises nothing but errors in words."""
    try:
        events = read_events(folder, str)
        report: Presentation = present_sweep(events) if record_kind(events) == "sweep" else present_run(folder, events)
        text.lines(report.document)
        json.dumps(report.result, allow_nan=False)
        page = html.page(report.document, report.pictures())
        assert "\x1b" not in page
        page.encode()
        if record_kind(events) == "sweep":
            to_csv(summarise(events)).encode()
    except AutocapError:
        pass


def followed(folder: Path) -> None:
    status, lines = Status(), PlainLines(io.StringIO())
    for event in read_events(folder, str):
        status.event(event)
        lines.event(event)
        assert status.searched is None or 0 <= status.searched <= 1
        assert status.saved_share is None or status.saved_share < math.inf


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 2**64))
def test_a_log_with_anything_in_it_is_reported_or_refused_in_words(tmp_path_factory, seed) -> None:
    folder = tmp_path_factory.mktemp("run", numbered=True)
    (folder / EVENTS).write_bytes(b"".join(spoilt(seed)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reported(folder)
        followed(folder)
        with suppress(AutocapError):
            warm_start(folder)


CELLS = ("", "x", "nan", "inf", *(repr(number) for number in NUMBERS[:-1]), "1e13", "100", "200", "3")


def odd_samples(seed: int) -> bytes:
    """A file of samples in which times mostly go on, and some of all else is odd."""
    rng = random.Random(seed)
    names = ["t_s", "power_w", "requested_w", "enforced_w", "steps", "step_t_s"]
    now_s, share = 0.0, rng.choice((0.01, 0.3, 1.0))
    lines = [",".join(names)]
    for _ in range(rng.choice((1, 3, 40, 2000))):
        now_s += rng.choice((0.0, 1e-12, 0.1, 1.0))
        usual = [repr(now_s), repr(rng.uniform(0, 300)), "200", "200", repr(int(now_s)), repr(now_s)]
        lines.append(",".join(rng.choice(CELLS) if rng.random() < share else cell for cell in usual))
    return "\n".join(lines).encode()


@settings(max_examples=30)
@given(st.integers(0, 2**64))
def test_samples_with_anything_in_them_are_drawn(seed: int) -> None:
    events = list(whole_log())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for picture in pictures(summarise_run(events), events, parse([odd_samples(seed)])):
            assert "nan" not in svg.render(picture, 400.0, "narrow")
