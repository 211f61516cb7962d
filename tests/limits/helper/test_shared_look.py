"""Many who look at once have one of them look, and none is given what was seen before they asked."""

import threading
from collections.abc import Callable

import pytest

from autocap.errors import DeviceError
from autocap.limits.helper.house import SharedLook
from tests.doubles.waiting import eventually


class Scene:
    """Something to look at; each look waits until it is let go on."""

    def __init__(self) -> None:
        self.state, self.looks, self.at_once, self.most_at_once = "old", 0, 0, 0
        self.fails = False
        self._goes_on = threading.Semaphore(0)

    def look(self) -> str:
        self.looks, self.at_once = self.looks + 1, self.at_once + 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        seen = self.state
        assert self._goes_on.acquire(timeout=60.0)
        self.at_once -= 1
        if self.fails:
            raise DeviceError("lost")
        return seen

    def go_on(self, looks: int = 1) -> None:
        self._goes_on.release(looks)


class Asking(threading.Thread):
    def __init__(self, ask: Callable[[], str]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.given: str | None = None
        self.start()

    def run(self) -> None:
        try:
            self.given = self._ask()
        except DeviceError as error:
            self.given = str(error)


def waiting(shared: SharedLook[str]) -> int:
    return len(shared._turn._waiters)  # type: ignore[attr-defined]


def test_who_comes_during_a_look_is_given_what_the_next_one_saw():
    scene = Scene()
    shared = SharedLook(scene.look)
    first = Asking(shared)
    eventually(lambda: scene.looks == 1)
    scene.state = "new"
    later = [Asking(shared) for _ in range(5)]
    eventually(lambda: waiting(shared) == 5)
    scene.go_on(2)
    for one in (first, *later):
        one.join(60.0)
    assert [one.given for one in (first, *later)] == ["old", *["new"] * 5]
    assert (scene.looks, scene.most_at_once) == (2, 1)


def test_one_after_the_other_each_looks_anew():
    scene = Scene()
    shared = SharedLook(scene.look)
    scene.go_on(2)
    assert shared() == "old"
    scene.state = "new"
    assert shared() == "new"


def test_a_look_that_fails_fails_for_whoever_looked_and_the_others_look_again():
    scene = Scene()
    shared = SharedLook(scene.look)
    scene.fails = True
    first = Asking(shared)
    eventually(lambda: scene.looks == 1)
    later = [Asking(shared) for _ in range(2)]
    eventually(lambda: waiting(shared) == 2)
    scene.go_on()
    first.join(60.0)
    assert first.given == "lost"
    scene.fails = False
    scene.go_on()
    for one in later:
        one.join(60.0)
    assert [one.given for one in later] == ["old", "old"]
    scene.go_on()
    scene.fails = True
    with pytest.raises(DeviceError):
        shared()
