"""The faults of what a process has from its surroundings: streams, descriptors, CPU time, the state directory."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from bench.faults.aftermath import ended, kill, put_back, send
from bench.faults.outcome import Outcome, difference
from bench.faults.processes import ARRIVALS_MW, Scene
from bench.waiting import Late

_ENDS_S = 3.0  # within which a meter ends
_BURNERS = 7  # a CPU, ahead of everything of ours
_AHEAD = -5  # their nice value
_STARVED_S = (4.0, 20.0)
_METER = "trap '' TERM PIPE; while :; do echo 321; sleep 0.2; done"


def no_descriptors(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """From some moment on no further file can be opened; then, perhaps, the watchdog or the controller is killed."""
    scene.start(rng.choice(("attach", "run")))
    scene.until_capped()
    assert scene.controller is not None
    pid = scene.controller.pid
    time.sleep(rng.uniform(0.0, 1.0))
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    lowest = next(number for number in range(len(used) + 1) if number not in used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, lowest))
    next_ = rng.choice(("watchdog", "controller", "nothing"))
    if next_ == "nothing":
        scene.ended_with()
        return ended(scene, result)
    if next_ == "watchdog":
        before = scene.watchdogs()
        for one in before:
            send(one, signal.SIGKILL)
        scene.until(lambda: scene.has_ended() or bool(set(scene.watchdogs()) - set(before)), "another watches", 10.0)
        time.sleep(rng.uniform(0.0, 0.5))
    return kill(scene, result)


def state_directory_gone(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """The state directory is removed, renamed or replaced while caps are set; then the controller dies or hangs."""
    scene.start("attach")
    scene.until_capped()
    time.sleep(rng.uniform(0.0, 1.0))
    away = scene.folder / "away"
    how = rng.choice(("removed", "renamed", "replaced", "emptied", "linked"))
    if how == "emptied":
        for name in scene.leftovers():
            (scene.state_dir / name).unlink(missing_ok=True)
    else:
        scene.state_dir.rename(away)
    if how == "removed":
        shutil.rmtree(away)
    elif how == "replaced":
        scene.state_dir.mkdir(mode=0o700)
    elif how == "linked":
        scene.state_dir.symlink_to(away)
    assert scene.controller is not None
    scene.controller.send_signal(signal.SIGKILL if rng.random() < 0.7 else signal.SIGSTOP)
    changed, back_s = put_back(scene, within_s=2.05)
    scene.controller.kill()
    scene.controller.wait()
    time.sleep(0.1)
    changed = changed or difference(ARRIVALS_MW, scene.limits_mw())
    shutil.rmtree(away, ignore_errors=True)
    scene.state_dir.unlink() if scene.state_dir.is_symlink() else shutil.rmtree(scene.state_dir, ignore_errors=True)
    return ended(scene, replace(result, changed=changed, back_s=back_s))


def meter_left(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """SIGKILL while a meter of the user's runs beside, which does not listen to SIGTERM: it dies with us."""
    scene.start("attach", "--node-power", f"command:{_METER}")
    scene.until_capped()
    meters = _meters(scene.folder)
    result = kill(scene, result)
    try:
        scene.until(lambda: not _meters(scene.folder), "the meter ends", _ENDS_S)
    except Late as error:
        for pid in _meters(scene.folder):
            send(pid, signal.SIGKILL)
        return replace(result, hung=str(error))
    return result if meters else replace(result, silent="no meter was found")


def _meters(folder: Path) -> list[int]:
    """The meters' processes, by their command and directory."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and b"echo 321" in (entry / "cmdline").read_bytes():
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words[:2] == [b"/bin/sh", b"-c"] and (entry / "cwd").resolve() == folder.resolve():
                    found.append(int(entry.name))
    return found


def starved(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """Others take nearly all CPU time for a while. The controller is no hung one: it tunes on, or ends as it should."""
    scene.start(rng.choice(("attach", "run")))
    time.sleep(rng.uniform(2.0, 8.0))
    with _burning():
        time.sleep(rng.uniform(*_STARVED_S))
        if rng.random() < 0.3:
            return kill(scene, result)
    status = scene.ended_with()
    harmed = None if status == 0 else f"autocap ended with {status}"
    if any("internal fault" in text for text in scene.said()):
        harmed = "an internal fault"
    return ended(scene, replace(result, harmed=harmed))


@contextmanager
def _burning() -> Iterator[None]:
    """Processes that leave others little of every CPU."""
    busy = f"import os\nos.nice({_AHEAD})\nwhile True: pass"
    burners = [
        subprocess.Popen([sys.executable, "-I", "-S", "-c", busy], stderr=subprocess.DEVNULL)
        for _ in range(_BURNERS * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()
