"""The faults of files and disks that need real processes, and what a dead run left on them."""

import resource
import shutil
import time
from dataclasses import replace
from functools import partial
from random import Random

from autocap.job.processes import ProcessId, boot_id
from autocap.limits.journal import Entry, Journal
from autocap.limits.state_dir import StateDir
from bench.faults.aftermath import ended, random_moment
from bench.faults.outcome import Outcome, difference, silence
from bench.faults.processes import ARRIVALS_MW, Missed, Scene

_TOLERATED_BYTES = 16_384  # the emulated machine is a file of the controller as well, of half that size


def no_journal(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """A file stands where the state directory should be, from the start or from some moment on."""
    if rng.random() < 0.5:
        scene.state_dir.write_text("in the way")
        mode = rng.choice(("attach", "run"))
        scene.start(mode)
        status = scene.ended_with()
        right = 1 if mode == "attach" else 0
        harmed = None if status == right else f"{mode} ended with {status}"
        scene.state_dir.unlink()
        return ended(scene, replace(result, harmed=harmed), "state directory .* cannot be used")
    scene.start("attach")
    scene.until_capped()
    time.sleep(rng.uniform(0.0, 3.0))
    if scene.has_ended():
        raise Missed
    shutil.rmtree(scene.state_dir, ignore_errors=True)
    scene.state_dir.write_text("in the way")
    scene.ended_with()
    changed = difference(ARRIVALS_MW, scene.limits_mw())
    scene.state_dir.unlink()
    return ended(scene, replace(result, changed=changed), "journal entry .* cannot be written")


def full(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """The run directory takes no more than so many bytes a file, from some moment on."""
    scene.start("attach", "--sample-hz", "100")
    assert scene.controller is not None
    pid = scene.controller.pid
    time.sleep(rng.uniform(0.5, 10.0))
    if not scene.has_ended():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_TOLERATED_BYTES, _TOLERATED_BYTES))
    status = scene.ended_with()
    harmed = None if status == 0 else f"attach ended with {status}"
    return ended(scene, replace(result, harmed=harmed), "cannot be written")


def no_room(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """No file of the controller may have more than a few bytes, so the journal cannot be written."""
    size = rng.randrange(450)
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
    scene.start("attach", prepare=limit)
    scene.ended_with()
    changed = None if not scene.board.read().changes else "a limit was set without a journal"
    # What is said goes to a file as well: only its first bytes are there.
    return ended(scene, replace(result, changed=changed), "autocap" if size >= len("autocap") else None)


def stale(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """An earlier run and its watchdog were killed with a cap set; or the machine was rebooted since."""
    rebooted = rng.random() < 0.3
    dead = ProcessId(rng.randrange(1, 1 << 22), 1)  # no process has lived since the first tick
    scene.state_dir.mkdir(mode=0o700)
    with StateDir(scene.state_dir) as state:
        for gpu, card in enumerate(scene.board.read().machine.cards):
            entry = Entry(
                kind="nvml",
                uuid=card.uuid,
                original_w=ARRIVALS_MW[gpu] / 1000,
                boot_id="another" if rebooted else boot_id(),
                owner=dead,
                last_w=rng.choice((None, 170.0)),
                next_w=150.0,
            )
            Journal(state).save(entry)
            if not rebooted:  # which takes every limit with it
                scene.board.request(gpu, 150_000)
    pattern = "before a reboot" if rebooted else "put back, where autocap with PID"
    if rng.random() < 0.3:
        done = scene.autocap("restore")
        changed = difference(ARRIVALS_MW, scene.limits_mw())
        return replace(result, changed=changed, silent=silence((done.stdout,), pattern))
    scene.start("attach")
    scene.until(lambda: bool(scene.said()), "it has settled what it found")
    random_moment(scene, rng)
    assert scene.controller is not None
    scene.controller.terminate()
    scene.ended_with()
    return ended(scene, replace(result, changed=difference(ARRIVALS_MW, scene.limits_mw())), pattern)
