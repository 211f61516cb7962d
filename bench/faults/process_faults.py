"""The faults that need real processes, by name: signals at a random moment, death, hanging, another tool, files, disks,
and what a process has from its surroundings."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from autocap.job.processes import ProcessId, boot_id
from autocap.limits.journal import Entry, Journal
from autocap.limits.state_dir import StateDir
from autocap.testing.nvml import Fault, Steps, Way
from bench.common import Late, waited
from bench.faults.outcome import Outcome, difference, silence
from bench.faults.scene import (
    ARRIVALS_MW,
    BACK_WITHIN_S,
    CHANGES,
    HUNG_BACK_WITHIN_S,
    ITERATIONS,
    LOOKED_AT_S,
    Missed,
    Scene,
    ended,
    inject_into,
    kill,
    put_back,
    random_moment,
    send,
)

_TOLERATED_BYTES = 16_384  # the emulated machine is a file of the controller as well, of half that size


def no_journal(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """A file stands where the state directory should be, from the start or from some moment on."""
    if rng.random() < 0.5:
        scene.state_dir.write_text("in the way")
        mode = rng.choice(("attach", "run"))
        scene.start(mode)
        harmed = scene.failure(1 if mode == "attach" else 0, what=mode)
        scene.state_dir.unlink()
        return ended(scene, replace(result, harmed=harmed), "state directory .* cannot be used")
    scene.capped(rng, 3.0, "attach")
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
    pid = scene.controller.pid
    time.sleep(rng.uniform(0.5, 10.0))
    if not scene.has_ended():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_TOLERATED_BYTES, _TOLERATED_BYTES))
    harmed = scene.failure(0, what="attach")
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
    scene.controller.terminate()
    scene.ended_with()
    return ended(scene, replace(result, changed=difference(ARRIVALS_MW, scene.limits_mw())), pattern)


_ENDS_S = 3.0  # within which a meter ends
_BURNERS = 7  # a CPU, ahead of everything of ours
_AHEAD = -5  # their nice value
_STARVED_S = (4.0, 20.0)
_METER = "trap '' TERM PIPE; while :; do echo 321; sleep 0.2; done"


def no_descriptors(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """From some moment on no further file can be opened; then, perhaps, the watchdog or the controller is killed."""
    pid = scene.capped(rng, 1.0, rng.choice(("attach", "run"))).pid
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
    scene.capped(rng, 1.0, "attach")
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
    harmed = scene.failure(0)
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


_UNKNOWN, _HANGS_S = 999, 6.0  # NVML_ERROR_UNKNOWN, and how long calls take of which GSP firmware answers none
_OTHER_MW = 215_432
_REPLACED_S = 2.0  # a watchdog that was stopped, by then
STARVING = "starved of CPU time"  # disturbs whatever else runs


def injected(kind: str, seed: int, iterations: int = ITERATIONS) -> Outcome | None:
    """The outcome of one injection into a job of so many iterations; `None` where it ended before."""
    return inject_into(KINDS[kind], kind, seed, lambda folder: Scene(folder / "job", iterations))


# What happens, and what must come of it.


def _killed(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """SIGKILL: the watchdog puts the limits back."""
    scene.start(rng.choice(("attach", "attach", "run")))
    random_moment(scene, rng)
    return kill(scene, result)


def _killed_capped(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """SIGKILL while caps are set, for the time until they are back."""
    scene.capped(rng, mode="run")
    return kill(scene, result)


def _hanging_driver(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """Every call about one of two cards takes 6 s and fails, as when its firmware does not answer, and autocap is
    killed, stopped or to end: the other card's limit is back in time."""
    gpu, signum = rng.randrange(2), rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP))
    scene.capped(rng, mode="attach" if signum is signal.SIGTERM else "run")
    hang = Fault(code=_UNKNOWN, gpu=gpu, times=None, delay_s=_HANGS_S)
    scene.become(faults=(hang,))
    time.sleep(rng.uniform(0.0, 1.0))
    other, began_s = 1 - gpu, time.monotonic()
    send(scene.controller.pid, signum)
    scene.until(lambda: scene.limits_mw()[other] == ARRIVALS_MW[other], "the other card's limit is back", 10.0)
    back_s = time.monotonic() - began_s
    scene.become(faults=())
    scene.until(lambda: scene.limits_mw()[gpu] == ARRIVALS_MW[gpu], "the limit is back", 10.0)
    if signum is signal.SIGSTOP:
        scene.controller.kill()
    scene.controller.wait()
    changed = f"back only after {back_s:.2f} s" if back_s > HUNG_BACK_WITHIN_S else None
    return ended(scene, replace(result, changed=changed, back_s=back_s))


def _hanging_set(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """Every set of one of two cards takes 6 s, and run is killed, stopped or to end meanwhile: the other limit is
    back in time, and the job is told to end as soon."""
    gpu, signum = rng.randrange(2), rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGTERM, signal.SIGSTOP))
    name = "nvmlDeviceSetPowerManagementLimit"
    hang = Fault(code=0, function=name, gpu=gpu, times=None, after=1, delay_s=_HANGS_S)  # the first rehearses
    scene.become(faults=(hang,))
    scene.start("run")
    other = 1 - gpu
    scene.until(lambda: scene.limits_mw()[other] != ARRIVALS_MW[other], "the other card has its cap", 60.0)
    time.sleep(rng.uniform(0.0, 3.0))
    controller, job, began_s = scene.controller, scene.job, time.monotonic()
    assert job is not None
    send(controller.pid, signum)
    scene.until(lambda: scene.limits_mw()[other] == ARRIVALS_MW[other], "the other card's limit is back", 20.0)
    back_s = time.monotonic() - began_s
    changed = f"back only after {back_s:.2f} s" if back_s > HUNG_BACK_WITHIN_S else None
    if signum is signal.SIGTERM:
        scene.until(lambda: not job.is_alive(), "the job has ended", 20.0)
        told_s = time.monotonic() - began_s
        harmed = f"told to end only after {told_s:.2f} s" if told_s > HUNG_BACK_WITHIN_S else None
        controller.wait()
        changed = changed or difference(ARRIVALS_MW, scene.limits_mw())
        return replace(result, changed=changed, back_s=back_s, harmed=harmed)
    if signum is signal.SIGSTOP:
        controller.kill()
    controller.wait()
    scene.until(lambda: scene.limits_mw() == ARRIVALS_MW, "the limit is back", 30.0)
    return ended(scene, replace(result, changed=changed, back_s=back_s))


def _killed_in_steps(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """SIGKILL at cards whose firmware takes limits in steps, by a driver that ignores a set now and then: at any moment
    from a set until what the cards make of it was seen, or after that."""
    lag_s, share = rng.choice((0.0, rng.uniform(0.0, 0.03), rng.uniform(0.03, 0.8))), rng.choice((0.0, 0.0, 0.2))
    steps = Steps(step_mw=25_000, lag_s=lag_s, way=rng.choice(list(Way)), untouched_mw=ARRIVALS_MW)
    cards = scene.board.read().machine.cards
    scene.become(cards=tuple(replace(card, steps=steps, ignored_share=share) for card in cards))
    scene.start(rng.choice(("run", "attach")))
    scene.until_capped()
    time.sleep(rng.uniform(0.0, 0.1) if rng.random() < 0.5 else rng.uniform(0.0, 4.0))
    return kill(scene, result)


def _left(signum: signal.Signals) -> Callable[[Scene, Random, Outcome], Outcome]:
    """A signal to attach, which puts the limits back and leaves the job alone."""

    def inject(scene: Scene, rng: Random, result: Outcome) -> Outcome:
        scene.start("attach")
        random_moment(scene, rng)
        scene.controller.send_signal(signum)
        status = scene.ended_with()
        changed = difference(ARRIVALS_MW, scene.limits_mw())  # at once
        # Before it listens for signals, Python's own ways apply; then nothing was set either.
        early = status in (-signum, 130) and not scene.board.read().changes
        pattern = None if early else f"{signum.name} ended autocap|the job ended"
        return ended(scene, replace(result, changed=changed), pattern)

    return inject


def _forwarded(signum: signal.Signals) -> Callable[[Scene, Random, Outcome], Outcome]:
    """A signal to run, which puts the limits back, passes it on and ends as its child does."""

    def inject(scene: Scene, rng: Random, result: Outcome) -> Outcome:
        scene.start("run")
        scene.until(scene.computes, "the job computes")
        random_moment(scene, rng)
        ended_before = scene.has_ended()
        scene.controller.send_signal(signum)
        status = scene.ended_with()
        right = 0 if ended_before or scene.done() == scene.iterations else 128 + signum
        harmed = None if status == right else f"run ended with {status} instead of {right}"
        changed = difference(ARRIVALS_MW, scene.limits_mw())
        return replace(
            result, harmed=harmed, changed=changed, silent=silence(scene.said(), "signal|the job ended|minimising")
        )

    return inject


def _hung(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """SIGSTOP for a while: the watchdog puts the limits back, and the controller goes on afterwards."""
    scene.start("attach")
    scene.until(lambda: scene.changes(3 + rng.randrange(CHANGES - 3)), "a cap is set")
    time.sleep(rng.uniform(0.0, 0.1))
    scene.controller.send_signal(signal.SIGSTOP)
    changed, back_s = put_back(scene, within_s=HUNG_BACK_WITHIN_S + LOOKED_AT_S)
    time.sleep(rng.uniform(0.0, 1.0))
    scene.controller.send_signal(signal.SIGCONT)
    scene.until(lambda: "stopped for a while" in "\n".join(scene.said()) or scene.has_ended(), "it goes on")
    time.sleep(rng.uniform(0.0, 2.0))
    scene.controller.send_signal(signal.SIGTERM)
    scene.ended_with()
    changed = changed or difference(ARRIVALS_MW, scene.limits_mw())
    pattern = None if back_s is None else "stopped for a while"
    return ended(scene, replace(result, changed=changed), pattern)


def _job_dies(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """The job is killed by somebody else."""
    mode = rng.choice(("attach", "run"))
    scene.start(mode)
    scene.until(scene.computes, "the job computes")
    job = scene.job
    random_moment(scene, rng)
    if job is not None and job.is_alive():
        send(job.pid, signal.SIGKILL)
    harmed = scene.failure(*((0, 1) if mode == "attach" else (137, 0)), what=mode)
    changed = difference(ARRIVALS_MW, scene.limits_mw())
    pattern = "the job ended|has ended|there is no process|no GPU|untuned|hidden"
    return replace(result, harmed=harmed, changed=changed, silent=silence(scene.said(), pattern))


def _other_tool(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """Another process sets a limit while ours holds a cap; then ours is killed, or ends."""
    scene.start("attach")
    scene.until_capped()
    time.sleep(rng.uniform(0.4, 1.5))  # past our own set
    scene.board.request(1, _OTHER_MW)
    time.sleep(rng.uniform(0.0, 1.0))
    killed = rng.random() < 0.5
    scene.controller.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
    scene.ended_with()
    expected = (ARRIVALS_MW[0], _OTHER_MW)
    waited(lambda: scene.limits_mw() == expected, BACK_WITHIN_S if killed else 0.0)
    changed = difference(expected, scene.limits_mw())
    return ended(scene, replace(result, changed=changed), None if killed else "somebody else", expected)


def _watchdog_lost(signum: signal.Signals, after_s: float) -> Callable[[Scene, Random, Outcome], Outcome]:
    """A signal to the watchdog; the controller starts another, which does its duty when the controller is killed so
    much later, or up to 1.2 s more."""

    def inject(scene: Scene, rng: Random, result: Outcome) -> Outcome:
        scene.start("attach")
        scene.until_capped()
        for pid in scene.watchdogs():
            send(pid, signum)
        time.sleep(rng.uniform(after_s, after_s + 1.2))
        return kill(scene, result)

    return inject


KINDS: dict[str, Callable[[Scene, Random, Outcome], Outcome]] = {
    "SIGKILL at a random moment": _killed,
    "SIGKILL with a cap set": _killed_capped,
    "SIGKILL at cards that take steps": _killed_in_steps,
    "one card's driver hangs": _hanging_driver,
    "one card's set hangs": _hanging_set,
    "SIGTERM to attach": _left(signal.SIGTERM),
    "SIGINT to attach": _left(signal.SIGINT),
    "SIGTERM to run": _forwarded(signal.SIGTERM),
    "SIGINT to run": _forwarded(signal.SIGINT),
    "controller hung (SIGSTOP)": _hung,
    "watchdog killed, then the controller": _watchdog_lost(signal.SIGKILL, 0.8),
    "watchdog stopped before a SIGKILL": _watchdog_lost(signal.SIGSTOP, _REPLACED_S),
    "job killed": _job_dies,
    "state directory unusable": no_journal,
    "no room for the journal": no_room,
    "run directory's disk full": full,
    "journal of a dead owner": stale,
    "another process sets a limit": _other_tool,
    "descriptors used up": no_descriptors,
    "state directory gone and killed": state_directory_gone,
    "killed beside a meter": meter_left,
    STARVING: starved,
}
