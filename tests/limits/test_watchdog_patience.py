"""A watchdog in a thread, whose controller gives beats or none, and shows in /proc what a test wants."""

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autocap.job.processes import boot_id, own_identity
from autocap.limits.journal import Entry, encode
from autocap.limits.state_dir import StateDir
from autocap.limits.times import HANG_S
from autocap.limits.vital_signs import Look
from autocap.limits.watchdog import ANSWER, BEAT, ENTRY, GOODBYE, PUT_BACK, READY, Duty, Watchdog, _Heard
from autocap.records import GpuInfo
from tests.doubles import file_device
from tests.doubles.file_device import FileLimits
from tests.doubles.waiting import eventually
from tests.limits.test_watchdog import LOADED_S, WITHIN_SILENCE_S, at


class Signs:
    """Of a controller that stands in the queue for a CPU, until it is not `queued` any more."""

    queued = True

    def look(self, *, threads: bool) -> Look:
        return Look(cpu_s=7.0, runnable=self.queued)

    def are_there(self) -> bool:
        return True


class Scene:
    """beats: the controller's end. The device is at 200 W, which the watchdog was told."""

    def __init__(self, state: StateDir, gpu: GpuInfo, told: int) -> None:
        self.beats, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.theirs = theirs  # kept
        duty = Duty(state_dir=state.path, kind="file", owner=own_identity(), job=None, uuids=(gpu.uuid,))
        self.watchdog = Watchdog(duty, state, FileLimits(), told, theirs.fileno())
        self.signs = Signs()
        self.watchdog._signs = self.signs  # type: ignore[assignment]  # /proc as a test wants it
        self.entry = Entry(
            kind="file", uuid=gpu.uuid, original_w=260.0, last_w=200.0, boot_id=boot_id(), owner=own_identity()
        )
        file_device.put(gpu.uuid, 200.0)

    @contextmanager
    def watching(self) -> Iterator[None]:
        thread = threading.Thread(target=self.watchdog.run)
        thread.start()
        try:
            yield
        finally:
            self.beats.send(GOODBYE)
            thread.join()


@pytest.fixture
def told(tmp_path: Path, gpu: GpuInfo) -> Iterator[tuple[Scene, int]]:
    reader, writer = os.pipe()
    with StateDir(tmp_path / "state") as state, os.fdopen(reader, "rb"), os.fdopen(writer, "wb"):
        scene = Scene(state, gpu, writer)
        with scene.beats, scene.theirs:
            yield scene, reader
        scene.watchdog._spare.close()


def test_a_controller_that_does_not_get_the_cpu_keeps_its_cap_until_it_sleeps_without_a_beat(told, gpu):
    scene, status = told
    with scene.watching():
        scene.beats.send(ENTRY + encode(scene.entry))
        scene.beats.send(BEAT)
        time.sleep(HANG_S + 0.4)
        assert at(gpu, 200.0)()
        assert os.read(status, 100) == READY + ANSWER
        scene.signs.queued = False
        eventually(at(gpu, 260.0), 0.5 + LOADED_S)
        assert os.read(status, 100) == PUT_BACK


def test_a_controller_that_sleeps_without_a_beat_loses_its_cap_although_it_still_tells_of_entries(told, gpu):
    scene, _ = told
    scene.signs.queued = False
    with scene.watching():
        began_s = time.monotonic()
        while not at(gpu, 260.0)():
            scene.beats.send(ENTRY + encode(scene.entry))
            assert time.monotonic() - began_s < WITHIN_SILENCE_S + LOADED_S
            time.sleep(0.02)


def test_a_watchdog_that_comes_late_believes_the_beats_that_wait_for_it(told):
    scene, _ = told
    heartbeat = select.poll()
    heartbeat.register(scene.theirs.fileno(), select.POLLIN)
    listen = scene.watchdog._listen
    assert listen(heartbeat) is _Heard.NOTHING
    for message in (BEAT, ENTRY + encode(scene.entry), b"x", BEAT, ENTRY + b"{"):
        scene.beats.send(message)
    assert listen(heartbeat) is _Heard.BEAT
    assert scene.watchdog._copies == {scene.entry.uuid: scene.entry}
    scene.beats.send(ENTRY + encode(scene.entry))
    assert listen(heartbeat) is _Heard.NOTHING
    scene.beats.send(BEAT)
    scene.beats.send(GOODBYE)
    assert listen(heartbeat) is _Heard.GOODBYE
    scene.beats.send(BEAT)
    scene.beats.close()
    assert listen(heartbeat) is _Heard.END
