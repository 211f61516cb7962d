"""What events leave of a budget, and what is said of it."""

import math

from autocap.plugins.fleet.manager.course import Demand
from autocap.plugins.fleet.openadr.events import Span
from autocap.plugins.fleet.openadr.source import VtnSource
from autocap.plugins.fleet.openadr.watching import Said

T0 = 1_769_875_200.0
PEAK = Span(label="event 'peak' (a)", from_s=T0, to_s=T0 + 3600, watts=1000.0)
MORE = Span(label="event (b)", from_s=T0 + 3600, watts=5000.0, priority=0)


class Script:
    """A feed that says one thing after the other."""

    source = VtnSource(url="https://vtn.example.com/3")

    def __init__(self, *said: Said) -> None:
        self.said = list(said)

    def news(self) -> list[Said]:
        return [self.said.pop(0)] if self.said else []


def test_an_event_lowers_what_was_asked_for_and_never_raises_it() -> None:
    demand = Demand(Script(), (PEAK, MORE), lambda text: None)
    why = "event 'peak' (a) of vtn.example.com allows 1000 W"
    assert demand.lowered(2400.0, T0 - 1) == (2400.0, "")
    assert demand.lowered(2400.0, T0) == (1000.0, why)
    assert demand.lowered(900.0, T0) == (900.0, "")
    assert demand.lowered(2400.0, T0 + 3600) == (2400.0, "")
    before, now, later = (demand.sentences(2400.0, at_s) for at_s in (T0 - 1, T0, T0 + 3600))
    assert before[0] == "2400 W are asked for; no event of vtn.example.com counts now"
    assert before[1].startswith("event 'peak' (a) allows 1000 W from 2026-01-31T")
    assert now[0].startswith(f"2400 W are asked for; {why} until 2026-01-31T")
    assert later == ("2400 W are asked for; event (b) of vtn.example.com allows 5000 W",)


def test_a_vtn_that_cannot_be_asked_is_told_once_and_its_events_count_on() -> None:
    told: list[str] = []
    down = Said(trouble="vtn.example.com cannot be reached: 'no'")
    script = Script(Said(spans=(PEAK,), notes=("event (x) is not followed: why",)), down, Said(trouble="worse"), down)
    demand = Demand(script, (), told.append)
    assert [demand.hear() for _ in range(5)] == [True, False, False, False, False]
    assert demand.lowered(2400.0, T0)[0] == 1000.0
    assert demand.sentences(2400.0, T0)[-1] == f"what is known of vtn.example.com may be old: {down.trouble}"
    script.said += [Said(spans=()), down]
    assert [demand.hear() for _ in range(2)] == [True, False]
    going_on = "; the events that are known of vtn.example.com count for their time, then the budget that was asked for"
    assert told == [
        "event (x) is not followed: why",
        down.trouble + going_on,
        "vtn.example.com answers again",
        down.trouble + going_on,
    ]
    assert demand.lowered(2400.0, T0) == (2400.0, "")
    assert math.isinf(MORE.to_s)
