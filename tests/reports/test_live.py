"""What is shown while a run goes on: its status and the view of it, from the events of a simulated job; and the
footer's escape sequences, on a terminal that nobody looks at."""

import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TextIO

import pytest
from rich.console import Console

from autocap import events
from autocap.events import Event, State
from autocap.knobs import Knob
from autocap.records import Reading, Sample
from autocap.reports.live.status import Status
from autocap.reports.live.terminal import Footer
from autocap.reports.live.view import View
from tests.doubles.logs import STARTED, status_after, until, whole_log


@pytest.fixture
def log() -> list[Event]:
    return list(whole_log())


def shown(status: Status, columns: int = 120, most: int = 20) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None)
    return View(console).lines(status, 83.0, columns, most)


def test_the_search_moves_from_nothing_to_all_and_never_back(log: list[Event]) -> None:
    seen, status = [], Status()
    for event in log:
        status.event(event)
        if status.searched is not None and status.state is not State.PAUSED:
            seen.append(status.searched)
    assert (seen[0], seen[-1]) == (0.0, 1.0)
    assert seen == sorted(seen)
    assert len(set(seen)) > 3


def test_a_search_anew_begins_at_nothing_again_but_not_after_a_pause(log: list[Event]) -> None:
    status = status_after(until(log, events.Decided))
    status.event(events.StateEntered(t_s=900.0, state=State.BASELINE))
    assert (status.searched, status.decided) == (0.0, None)
    searching = status_after(until(log, events.TrialStarted, 3))
    share = searching.searched
    for state in (State.PAUSED, State.SEARCHING):
        searching.event(events.StateEntered(t_s=901.0, state=state))
    assert searching.searched == share


def test_superseded_totals_are_not_kept_and_change_nothing(log: list[Event]) -> None:
    whole, last = status_after(log), [event for event in log if isinstance(event, events.Tally)][-1]
    assert whole.tally == last
    assert whole.summary.totals.energy_j == last.energy_j
    assert len(whole._events) < len(log)


def test_the_energy_saved_is_that_of_the_report_as_a_share_of_what_the_baseline_would_use(log: list[Event]) -> None:
    status = status_after(log)
    summary, tally = status.summary, status.tally
    assert summary.baseline is not None
    decided = next(event for event in log if isinstance(event, events.Decided))
    would_be_j = decided.baseline.energy_per_iteration_j * (tally.iterations - tally.paused_iterations)
    assert status.saved_share == pytest.approx(-(summary.versus_baseline.net_energy_j or 0.0) / would_be_j)
    assert status.saved_share > 0


def test_without_samples_draw_and_pace_come_from_the_totals(log: list[Event]) -> None:
    status = status_after(until(log, events.Tally, 4))
    before, last = [event for event in until(log, events.Tally, 4) if isinstance(event, events.Tally)][-2:]
    assert status.total_w == pytest.approx((last.energy_j - before.energy_j) / (last.elapsed_s - before.elapsed_s))
    assert status.period_s == pytest.approx((last.counted_s - before.counted_s) / (last.iterations - before.iterations))


def test_samples_give_each_device_its_draw_limit_and_energy(log: list[Event]) -> None:
    found = log[1]
    assert isinstance(found, events.DeviceFound)
    two = events.DeviceFound(t_s=0.0, kind="simulated", emulated=True, gpus=found.gpus * 2, original=(260.0, 260.0))
    status = status_after([STARTED, two])
    for t_s in (1.0, 2.0, 3.0):
        readings = tuple(Reading(t_s=t_s, power_w=watts, requested_w=cap_w) for watts, cap_w in ((100, 200), (50, 210)))
        status.sample(Sample(t_s=t_s, readings=readings))
    assert (status.energies_j, status.settings, status.total_w) == (pytest.approx((200.0, 100.0)), (200, 210), 150)
    status.sample(Sample(t_s=4.0, readings=(Reading(t_s=4.0, power_w=None), Reading(t_s=4.0, power_w=50.0))))
    assert status.total_w is None


def test_with_more_trials_than_room_the_newest_are_shown(log: list[Event]) -> None:
    status = status_after(log)
    newest = status.summary.trials[-1]
    text = "\n".join(shown(status, most=8))
    assert f"{newest.cost:.4f}" in text
    assert "baseline" in text


def test_another_knob_is_shown_as_it_is_set_and_not_by_the_power_limit() -> None:
    status, found = Status(), next(event for event in whole_log() if isinstance(event, events.DeviceFound))
    status.event(replace(found, original=(3.0,), knob=Knob(name="mode", values=(0, 1, 2), faster=None)))
    status.sample(Sample(t_s=1.0, readings=(Reading(t_s=1.0, power_w=120.0, requested_w=260.0, knob_value=1.0),)))
    assert status.settings == (2.0,)


class Screen:
    """Both ends of a terminal of 20 lines."""

    def __init__(self) -> None:
        self.ours, theirs = pty.openpty()
        self.stream: TextIO = os.fdopen(theirs, "w")
        os.set_blocking(self.ours, False)
        self.resize(20, 60)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.stream, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def printed(self) -> str:
        """What has come since the last look."""
        seen = b""
        with suppress(BlockingIOError):
            while chunk := os.read(self.ours, 65536):
                seen += chunk
        return seen.decode()


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    made.stream.close()
    os.close(made.ours)


def test_the_region_is_set_once_and_the_cursor_is_given_back_each_time(screen: Screen) -> None:
    footer = Footer(screen.stream)
    footer.draw(["one", "two"])
    first = screen.printed
    assert "\x1b[1;18r" in first
    assert "\x1b[19;1Hone" in first
    assert "\x1b[20;1Htwo" in first
    footer.draw(["one", "more"])
    second = screen.printed
    assert second.startswith("\x1b7")
    assert second.endswith("\x1b8")
    assert "r\x1b" not in second
    assert "\n" not in first + second, "a line feed would scroll somebody else's output"


def test_more_lines_make_the_region_shorter_and_a_resize_sets_it_anew(screen: Screen) -> None:
    footer = Footer(screen.stream)
    footer.draw(["one"])
    footer.draw(["one", "two", "three"])
    assert "\x1b[1;17r" in screen.printed
    screen.resize(30, 60)
    footer.draw(["one", "two", "three"])
    assert "\x1b[1;27r" in screen.printed


def test_removing_clears_what_was_drawn_and_frees_the_whole_screen_once(screen: Screen) -> None:
    footer = Footer(screen.stream)
    footer.remove()
    assert screen.printed == ""
    footer.draw(["one", "two"])
    assert screen.printed
    footer.remove()
    assert screen.printed == "\x1b7\x1b[r\x1b[19;1H\x1b[2K\x1b[20;1H\x1b[2K\x1b8"
    footer.remove()
    assert screen.printed == ""


def test_on_the_terminal_of_another_session_there_is_no_room(screen: Screen) -> None:
    assert Footer(screen.stream).room() is None
