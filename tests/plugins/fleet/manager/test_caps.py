"""The caps of a budget, where a driver takes its time; that time is real here."""

import threading
from collections.abc import Sequence

from autocap.limits.together import Aside
from autocap.plugins.fleet.manager.occupancy import Caps
from autocap.records import CapRange, GpuInfo
from tests.doubles.waiting import eventually

GPUS = tuple(
    GpuInfo(index=n, uuid=f"GPU-{n}", name="none", cap_range=CapRange(min_w=100.0, max_w=300.0, default_w=250.0))
    for n in range(2)
)


class Guard:
    """answers: set once its driver does. put_back: what the next beat tells."""

    original_w = (250.0, 250.0)

    def __init__(self) -> None:
        self.answers, self.beats, self.put_back = threading.Event(), 0, False
        self.sets: list[tuple[float, ...]] = []

    def set_caps(self, caps_w: Sequence[float]) -> None:
        assert self.answers.wait(10.0)
        self.sets.append(tuple(caps_w))

    def beat(self) -> bool:
        self.beats += 1
        told, self.put_back = self.put_back, False
        return told


def test_while_a_set_takes_its_time_the_watchdog_hears_of_us_and_what_it_put_back_is_set_again() -> None:
    guard = Guard()
    caps = Caps(GPUS, guard)  # type: ignore[arg-type]
    setting = Aside[set[int]]()
    guard.put_back = True
    setting.begin(lambda: caps.set({0: 200.0, 1: 180.0}))
    eventually(lambda: guard.beats >= 2)
    assert not guard.sets
    guard.answers.set()
    assert setting.is_done(5.0)
    assert setting.take() == {0, 1}
    assert caps.beat()
    assert guard.sets == [(200.0, 180.0)] * 2
    assert not caps.beat()
