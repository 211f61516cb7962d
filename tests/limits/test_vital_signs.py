"""Whether a silent controller is hung, or only does not get the CPU."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autocap.job.processes import ProcessId, identify, own_identity
from autocap.limits.times import HANG_S, STARVED_S
from autocap.limits.vital_signs import Look, VitalSigns, is_hung, next_look_s
from tests.doubles.waiting import eventually

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
