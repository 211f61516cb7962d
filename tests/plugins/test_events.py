"""The events that plug-ins declare: they are written and read as any other."""

from pathlib import Path

from autocap.events import KINDS, Event, PluginEvent
from autocap.plugins.fleet import events
from autocap.plugins.recur.events import RecurrenceEnded, RecurrenceStarted
from autocap.runlog.event_log import read_events
from tests.runlog.test_runlog import GPU, a_run

BUDGET: list[Event] = [
    events.BudgetStarted(
        t_s=0.0,
        autocap_version="0.1.0",
        started_at="2025-01-02T03:04:05+00:00",
        pid=7,
        budget_w=1200.0,
        policy="fair",
        gpus=(GPU,),
        original_w=(None,),
        schedule="rows.csv",
    ),
    events.BudgetReserved(t_s=0.0, reserved_w=12.0),
    events.JobJoined(t_s=1.0, name="train.py 9", uuids=("GPU-1",), pid=None, tuned=False),
    events.CapGranted(t_s=1.0, name="train.py 9", cap_w=200.0),
    events.CapHeld(t_s=1.0, name="train.py 9", cap_w=180.0, slowdown=0.05, slowdown_stderr=0.01),
    events.CapLowered(t_s=1.5, name="train.py 9", cap_w=200.0, after_s=0.5),
    events.BudgetChanged(t_s=2.0, budget_w=300.0, policy="energy", why="rows.csv says so"),
    events.JobWeighed(t_s=2.0, name="train.py 9", weight=2.0, why="root"),
    events.BudgetShort(t_s=2.0, short_w=10.0, pause=("train.py 9",)),
    events.JobLeft(t_s=3.0, name="train.py 9", why="it computes no more"),
]

RECURRING: list[Event] = [
    RecurrenceStarted(
        t_s=0.1,
        name="nightly",
        number=3,
        batch_size=64,
        phase="exploring",
        why="not tried yet",
        most_cost=812.0,
        unit="J",
    ),
    RecurrenceEnded(t_s=60.0, outcome="failed", reason="it ended", cost=None, unit="J", time_s=59.9, energy_j=None),
]


def test_every_kind_of_event_of_a_plug_in_comes_back_as_it_was(tmp_path: Path) -> None:
    every = [*BUDGET, *RECURRING]
    assert set(map(type, every)) == {kind for kind in KINDS.values() if issubclass(kind, PluginEvent)}

    assert read_events(a_run(tmp_path / "run", every)) == every
