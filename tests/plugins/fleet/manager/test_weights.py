"""What a manager that follows a killed one knows of the jobs' weights."""

import os
from pathlib import Path

from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.manager.finding import Weights
from autocap.plugins.fleet.manager.supervising import BudgetState, load, save
from autocap.plugins.fleet.openadr.events import Span


def test_weights_outlive_a_manager_and_go_with_their_jobs(tmp_path: Path) -> None:
    ours, gone = os.getpgid(0), 2**22 + 1  # above the highest PID
    before = Weights(((ours, 2.5), (gone, 4.0)))
    assert before.of(os.getpid()) == 2.5
    state = BudgetState(
        asked_w=None, watts=900.0, policy=Policy.FAIR, began_wall_s=1.0, record="/r", weights=before.known,
        spans=(Span(label="event (a)", from_s=1.0, watts=500.0), Span(label="b", from_s=1.0, to_s=2.0, watts=1.0)),
    )  # fmt: skip
    save(tmp_path / "state", state)
    found = load(tmp_path / "state")
    assert found == state
    assert found.weights == ((ours, 2.5),)
    assert Weights(found.weights).of(os.getpid()) == 2.5
