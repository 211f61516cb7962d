"""A watchdog in a thread, whose controller gives beats or none, and shows in /proc what a test wants.

Whether a silent controller is hung, or only does not get the CPU.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autocap.job.processes import ProcessId, boot_id, identify, own_identity
from autocap.limits.journal import Entry, encode
from autocap.limits.state_dir import StateDir
from autocap.limits.times import HANG_S, STARVED_S
from autocap.limits.vital_signs import Look, VitalSigns, is_hung, next_look_s
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


QUEUED = Look(cpu_s=10.01, runnable=True)
BEFORE = Look(cpu_s=10.0, runnable=False)


@pytest.mark.parametrize("silence_s", [0.0, 0.4, HANG_S - 0.01])
@pytest.mark.parametrize("now", [None, QUEUED, Look(cpu_s=99.0, runnable=False)])
def test_a_beat_is_not_due_yet(silence_s, now):
    assert not is_hung(silence_s, BEFORE, now)


@pytest.mark.parametrize(
    ("silence_s", "now", "hung"),
    [
        (HANG_S, QUEUED, False),  # in the queue for a CPU
        (STARVED_S - 0.1, QUEUED, False),
        (STARVED_S, QUEUED, True),  # however that may be
        (HANG_S, Look(cpu_s=10.0, runnable=False), True),  # it sleeps, waits or is stopped
        (HANG_S, Look(cpu_s=11.5, runnable=True), True),  # it computes without an end
        (2.0, Look(cpu_s=10.7, runnable=True), False),  # half a core's worth in two seconds of crowding
        (5.0, Look(cpu_s=10.8, runnable=True), True),  # the same endless computation with little of a CPU
        (HANG_S, None, True),  # /proc does not say
    ],
)
def test_only_a_runnable_controller_that_gets_no_cpu_time_has_longer(silence_s, now, hung):
    assert is_hung(silence_s, BEFORE, now) == hung


@pytest.mark.parametrize("after_s", [0.0, HANG_S - 0.07, HANG_S, STARVED_S - 0.04])
def test_a_silent_controller_is_looked_at_when_it_may_count_as_hung_and_not_later(after_s):
    looks_s = [after_s]
    while looks_s[-1] < STARVED_S:
        looks_s.append(looks_s[-1] + next_look_s(looks_s[-1]))
    assert looks_s[-1] == pytest.approx(STARVED_S, abs=0.002)
    assert after_s > HANG_S or any(one_s == pytest.approx(HANG_S, abs=0.002) for one_s in looks_s)
    assert len(looks_s) < 100


def test_without_a_look_at_its_last_beat_silence_alone_counts():
    assert is_hung(HANG_S, None, QUEUED)


@contextmanager
def process(code: str) -> Iterator[tuple["subprocess.Popen[str]", VitalSigns]]:
    with subprocess.Popen(
        [sys.executable, "-ISc", f"print(flush=True)\n{code}"], stdout=subprocess.PIPE, text=True
    ) as it:
        it.stdout.readline()
        identity = identify(it.pid)
        signs = VitalSigns(identity)
        try:
            yield it, signs
        finally:
            signs.close()
            it.kill()


def _runnable(signs: VitalSigns) -> bool:
    look = signs.look(threads=True)
    return look is not None and look.runnable


def test_a_process_that_computes_is_runnable_and_uses_cpu_time_until_it_is_stopped():
    with process("while True: pass") as (it, signs):
        first = signs.look(threads=True)
        eventually(lambda: _runnable(signs), 5.0)
        eventually(lambda: (signs.look(threads=False) or first).cpu_s > first.cpu_s, 10.0)
        it.send_signal(signal.SIGSTOP)
        eventually(lambda: not _runnable(signs), 5.0)


def test_a_process_is_runnable_when_one_of_its_other_threads_is():
    code = (
        "import threading, time\ndef burn():\n while True: pass\nthreading.Thread(target=burn).start(); time.sleep(60)"
    )
    with process(code) as (_, signs):
        eventually(lambda: _runnable(signs), 5.0)


def test_a_process_that_sleeps_is_not_runnable_and_one_that_has_ended_shows_nothing():
    with process("import time; time.sleep(60)") as (it, signs):
        eventually(lambda: not _runnable(signs), 5.0)
        assert signs.are_there()
        it.kill()
        eventually(lambda: not signs.are_there(), 5.0)  # a zombie, too
        it.wait()
        assert not signs.are_there()
        assert signs.look(threads=True) is None


@pytest.mark.parametrize("owner", [ProcessId(2**22 + 1, 1), ProcessId(os.getpid(), own_identity().start_ticks - 1)])
def test_of_a_process_that_is_gone_or_whose_number_is_anothers_nothing_is_seen(owner):
    signs = VitalSigns(owner)
    assert signs.look(threads=True) is None
    assert not signs.are_there()
    signs.close()
