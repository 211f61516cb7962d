"""What a training process sees of its tuning, and where it tells what came of it.

A training here goes by what it sees, not by the clock: it trains until a cap is on trial, validates until that is known
as a pause, and so on. Its working directory holds the device, the run directories and what it tells.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from autocap.progress.steps.hook.sitecustomize import MAP_VARIABLE
from autocap.progress.steps.map import StepMap
from autocap.reports.summary.record import Summary

ARRIVAL_W = 260.0
GPU, TOLD = "gpu0", "told.jsonl"
# A trial ends after a second: nothing here is about how well it was measured.
QUICK = {"target_stderr": "20%", "trial_seconds": 2}
_LONGEST_S = 120.0


class Failure(Exception):
    """What goes wrong in a training."""


class Stage:
    """A scene. run: its run directory."""

    def __init__(self, run: str) -> None:
        self.run = run
        # Each training begins from nothing.
        self.options = {"device": f"file:{Path(GPU).absolute()}", "out": run, "memory": False, **QUICK}

    def limit_w(self) -> float:
        return json.loads(Path(GPU).read_text())["requested_w"]

    def on_trial(self) -> bool:
        """Whether a cap is set at this moment."""
        return self.limit_w() != ARRIVAL_W

    def events(self, name: str) -> list[dict[str, object]]:
        log = Path(self.run, "events.jsonl")
        lines = log.read_text().splitlines() if log.exists() else []
        return [event for line in lines if line.endswith("}") and (event := json.loads(line))["event"] == name]

    def states(self) -> list[object]:
        return [event["state"] for event in self.events("state_entered")]

    def paused(self) -> bool:
        return self.states()[-1:] == ["PAUSED"]

    def until(self, condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + _LONGEST_S
        while not condition():
            if time.monotonic() > deadline_s:
                raise self.in_vain()
            time.sleep(0.01)

    def in_vain(self) -> TimeoutError:
        return TimeoutError(f"waited in vain in {self.run}: {self.states()}, {self.limit_w()} W")

    @property
    def is_counted(self) -> bool:
        return MAP_VARIABLE in os.environ

    def counted(self) -> int:
        """Steps of the job so far, read as the process that tunes reads them."""
        fd = os.open(os.environ[MAP_VARIABLE], os.O_RDWR)
        with StepMap.adopt(fd) as step_map:
            reading = step_map.read(0.0)
        return 0 if reading is None else reading.count

    def tell(self, result: Summary | None = None, **facts: object) -> None:
        """Facts of the scene for the test, with what came of a tuned block and the limit at this moment."""
        if result is not None:
            facts["ended_because"] = result.ended_because
        line = json.dumps({"scene": self.run, "limit_w": self.limit_w(), **facts}) + "\n"
        fd = os.open(TOLD, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, line.encode())  # at once, beside other ranks
        os.close(fd)


class Script:
    """How a training goes: what to do after each of its steps.

    It trains until a cap is on trial, validates until that counts as a pause, trains until the pause is over, and has
    seen all then. fails: at the first cap on trial it fails instead.
    """

    def __init__(
        self,
        stage: Stage,
        *,
        fails: bool = False,
        not_before: Callable[[], object] = lambda: True,
        seen_all: Callable[[], object] | None = None,
    ) -> None:
        """not_before: when it may fail. seen_all: when the training may end, where that is all there is to it."""
        self._stage, self._fails, self._not_before, self._seen_all = stage, fails, not_before, seen_all
        self._validated = False
        self._deadline_s = time.monotonic() + _LONGEST_S

    def begin(self) -> None:
        """An iteration begins."""
        if time.monotonic() > self._deadline_s:
            raise self._stage.in_vain()
        limit_w = self._stage.limit_w()
        if self._fails and limit_w != ARRIVAL_W and self._not_before():
            raise Failure(f"at {limit_w:g} W")

    @property
    def wants_validation(self) -> bool:
        return self._seen_all is None and not self._fails and not self._validated and self._stage.on_trial()

    def validate(self) -> None:
        """A validation step: the first while a cap is on trial takes until it is known as a pause."""
        if self.wants_validation:
            self._validated = True
            self._stage.until(self._stage.paused)

    @property
    def has_ended(self) -> bool:
        if self._seen_all is not None:
            return bool(self._seen_all())
        return self._validated and not self._stage.paused()
