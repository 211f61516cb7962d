"""The faults that need real processes: signals at a random moment, death, hanging, disks, and what a dead run left."""

import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from autocap.guardian.journal import Entry, Journal
from autocap.guardian.statedir import StateDir
from autocap.procs import ProcessId, boot_id
from bench.injections.outcome import Outcome, difference, silence
from bench.injections.processes import ARRIVALS_MW, Late, Missed, Scene

BACK_WITHIN_S, HUNG_BACK_WITHIN_S = 1.0, 2.0  # guarantee 1 of the contract
_LOOKED_AT_S = 0.05  # the emulated call that puts a limit back takes 13 ms a GPU, a look at the machine 4 ms
_ITERATIONS = 210
_LATEST_S = 18.0  # of a random moment; the first cap is set after 7 to 11 s
_CHANGES = 12  # limits that a controller sets in that time
_TOLERATED_BYTES = 16_384  # the emulated machine is a file of the controller as well, of half that size
_OTHER_MW = 215_432


def injected(kind: str, seed: int, iterations: int = _ITERATIONS) -> Outcome | None:
    """The outcome of one injection into a job of so many iterations, 0.11 s each; `None` where it ended before."""
    rng = Random(f"{kind} {seed}")
    with tempfile.TemporaryDirectory(prefix="autocap-faults-") as folder, Scene(Path(folder), iterations) as scene:
        result = Outcome(kind=kind, seed=seed)
        try:
            result = KINDS[kind](scene, rng, result)
        except Missed:
            return None
        except Late as error:
            result = replace(result, hung=str(error))
        return replace(result, said=scene.said())


# What happens, and what must come of it.


def _killed(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """SIGKILL: the watchdog puts the limits back."""
    scene.start(rng.choice(("attach", "attach", "run")))
    _random_moment(scene, rng)
    return _kill(scene, result)


def _killed_capped(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """SIGKILL while caps are set, for the time until they are back."""
    scene.start("run")
    scene.until_capped()
    time.sleep(rng.uniform(0.0, 1.5))
    return _kill(scene, result)


def _kill(scene: Scene, result: Outcome) -> Outcome:
    assert scene.controller is not None
    scene.controller.kill()
    scene.controller.wait()
    died_s = time.monotonic()
    changed = back_s = None
    if not scene.are_back():
        try:
            scene.until(scene.are_back, "the limits are back", 10.0)
        except Late:
            changed = difference(ARRIVALS_MW, scene.limits_mw())
        else:
            back_s = time.monotonic() - died_s
            changed = f"back only after {back_s:.2f} s" if back_s > BACK_WITHIN_S else None
    return _ended(scene, replace(result, changed=changed, back_s=back_s))


def _ended(
    scene: Scene, result: Outcome, pattern: str | None = None, expected: tuple[int, ...] = ARRIVALS_MW
) -> Outcome:
    """The job goes on to its end, and the limits stay."""
    harmed = scene.harm()
    with_message = silence(scene.said(), pattern)
    changed = result.changed or difference(expected, scene.limits_mw())
    try:
        scene.until(lambda: not scene.leftovers(), "the journal is empty", 5.0)
    except Late:
        changed = changed or f"the journal still holds {', '.join(scene.leftovers())}"
    return replace(result, harmed=result.harmed or harmed, silent=with_message, changed=changed)


def _left(signum: signal.Signals) -> Callable[[Scene, Random, Outcome], Outcome]:
    """A signal to attach, which puts the limits back and leaves the job alone."""

    def inject(scene: Scene, rng: Random, result: Outcome) -> Outcome:
        scene.start("attach")
        _random_moment(scene, rng)
        assert scene.controller is not None
        scene.controller.send_signal(signum)
        status = scene.ended_with()
        changed = difference(ARRIVALS_MW, scene.limits_mw())  # at once
        # Before it listens for signals, Python's own ways apply; then nothing was set either.
        early = status in (-signum, 130) and not scene.board.read().changes
        pattern = None if early else f"{signum.name} ended autocap|the job ended"
        return _ended(scene, replace(result, changed=changed), pattern)

    return inject


def _forwarded(signum: signal.Signals) -> Callable[[Scene, Random, Outcome], Outcome]:
    """A signal to run, which puts the limits back, passes it on and ends as its child does."""

    def inject(scene: Scene, rng: Random, result: Outcome) -> Outcome:
        scene.start("run")
        scene.until(scene.computes, "the job computes")
        _random_moment(scene, rng)
        assert scene.controller is not None
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
    scene.until(lambda: scene.changes(3 + rng.randrange(_CHANGES - 3)), "a cap is set")
    time.sleep(rng.uniform(0.0, 0.1))
    assert scene.controller is not None
    scene.controller.send_signal(signal.SIGSTOP)
    began_s, changed, back_s = time.monotonic(), None, None
    if not scene.are_back():
        try:
            scene.until(scene.are_back, "the limits are back", 10.0)
        except Late:
            changed = difference(ARRIVALS_MW, scene.limits_mw())
        else:
            back_s = time.monotonic() - began_s
            changed = f"back only after {back_s:.2f} s" if back_s > HUNG_BACK_WITHIN_S + _LOOKED_AT_S else None
    time.sleep(rng.uniform(0.0, 1.0))
    scene.controller.send_signal(signal.SIGCONT)
    scene.until(lambda: "stopped for a while" in "\n".join(scene.said()) or scene.has_ended(), "it goes on")
    time.sleep(rng.uniform(0.0, 2.0))
    scene.controller.send_signal(signal.SIGTERM)
    scene.ended_with()
    changed = changed or difference(ARRIVALS_MW, scene.limits_mw())
    pattern = None if back_s is None else "stopped for a while"
    return _ended(scene, replace(result, changed=changed), pattern)


def _job_dies(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """The job is killed by somebody else."""
    mode = rng.choice(("attach", "run"))
    scene.start(mode)
    scene.until(scene.computes, "the job computes")
    job = scene.job
    _random_moment(scene, rng)
    if job is not None and job.is_alive():
        _send(job.pid, signal.SIGKILL)
    status = scene.ended_with()
    changed = difference(ARRIVALS_MW, scene.limits_mw())
    right = (0, 1) if mode == "attach" else (137, 0)
    harmed = None if status in right else f"{mode} ended with {status}"
    pattern = "the job ended|has ended|there is no process|no GPU|untuned|hidden"
    return replace(result, harmed=harmed, changed=changed, silent=silence(scene.said(), pattern))


def _no_journal(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """A file stands where the state directory should be, from the start or from some moment on."""
    if rng.random() < 0.5:
        scene.state_dir.write_text("in the way")
        mode = rng.choice(("attach", "run"))
        scene.start(mode)
        status = scene.ended_with()
        right = 1 if mode == "attach" else 0
        harmed = None if status == right else f"{mode} ended with {status}"
        scene.state_dir.unlink()
        return _ended(scene, replace(result, harmed=harmed), "state directory .* cannot be used")
    scene.start("attach")
    scene.until(lambda: scene.changes(1 + rng.randrange(6)), "a limit is set")
    shutil.rmtree(scene.state_dir, ignore_errors=True)
    scene.state_dir.write_text("in the way")
    scene.ended_with()
    changed = difference(ARRIVALS_MW, scene.limits_mw())
    scene.state_dir.unlink()
    return _ended(scene, replace(result, changed=changed), "journal entry .* cannot be written")


def _full(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """The run directory takes no more than so many bytes a file, from some moment on."""
    scene.start("attach", "--sample-hz", "100")
    assert scene.controller is not None
    pid = scene.controller.pid
    time.sleep(rng.uniform(0.5, 10.0))
    if not scene.has_ended():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_TOLERATED_BYTES, _TOLERATED_BYTES))
    status = scene.ended_with()
    harmed = None if status == 0 else f"attach ended with {status}"
    return _ended(scene, replace(result, harmed=harmed), "cannot be written")


def _no_room(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """No file of the controller may have more than a few bytes, so the journal cannot be written."""
    size = rng.randrange(450)
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
    scene.start("attach", prepare=limit)
    scene.ended_with()
    changed = None if not scene.board.read().changes else "a limit was set without a journal"
    # What is said goes to a file as well: only its first bytes are there.
    return _ended(scene, replace(result, changed=changed), "autocap" if size >= len("autocap") else None)


def _stale(scene: Scene, rng: Random, result: Outcome) -> Outcome:
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
    _random_moment(scene, rng, after_s=6.0)
    assert scene.controller is not None
    scene.controller.terminate()
    scene.ended_with()
    return _ended(scene, replace(result, changed=difference(ARRIVALS_MW, scene.limits_mw())), pattern)


def _other_tool(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """Another process sets a limit while ours holds a cap; then ours is killed, or ends."""
    scene.start("attach")
    scene.until_capped()
    time.sleep(rng.uniform(0.4, 1.5))  # past our own set
    scene.board.request(1, _OTHER_MW)
    time.sleep(rng.uniform(0.0, 1.0))
    assert scene.controller is not None
    kill = rng.random() < 0.5
    scene.controller.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
    scene.ended_with()
    expected = (ARRIVALS_MW[0], _OTHER_MW)
    with_watchdog_s = BACK_WITHIN_S if kill else 0.0
    began_s = time.monotonic()
    while scene.limits_mw() != expected and time.monotonic() - began_s < with_watchdog_s:
        time.sleep(0.01)
    changed = difference(expected, scene.limits_mw())
    return _ended(scene, replace(result, changed=changed), None if kill else "somebody else", expected)


def _watchdog_dies(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """The watchdog is killed; the controller starts another, which does its duty when the controller is killed."""
    scene.start("attach")
    scene.until_capped()
    for pid in scene.watchdogs():
        _send(pid, signal.SIGKILL)
    time.sleep(rng.uniform(0.8, 2.0))
    return _kill(scene, result)


def _terminal_gone(scene: Scene, rng: Random, result: Outcome) -> Outcome:
    """Whoever read our stderr has gone: nothing can be said, and the child must not feel it."""

    def hang_up() -> None:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 2)

    scene.start("run", prepare=hang_up)
    status = scene.ended_with()
    harmed = None if status == 0 else f"run ended with {status}"
    return _ended(scene, replace(result, harmed=harmed))


# Small moves.


def _random_moment(scene: Scene, rng: Random, after_s: float = 0.0) -> None:
    """Some time after the start; or right after one of the limits was set, also in the middle of the next."""
    if rng.random() < 0.5:
        time.sleep(rng.uniform(after_s, _LATEST_S))
    else:
        count = rng.randint(1, _CHANGES)
        scene.until(lambda: scene.changes(count), f"limit {count} is set")
        time.sleep(rng.uniform(0.0, 0.06))


def _send(pid: int, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)


KINDS: dict[str, Callable[[Scene, Random, Outcome], Outcome]] = {
    "SIGKILL at a random moment": _killed,
    "SIGKILL with a cap set": _killed_capped,
    "SIGTERM to attach": _left(signal.SIGTERM),
    "SIGINT to attach": _left(signal.SIGINT),
    "SIGTERM to run": _forwarded(signal.SIGTERM),
    "SIGINT to run": _forwarded(signal.SIGINT),
    "controller hung (SIGSTOP)": _hung,
    "watchdog killed, then the controller": _watchdog_dies,
    "job killed": _job_dies,
    "state directory unusable": _no_journal,
    "no room for the journal": _no_room,
    "run directory's disk full": _full,
    "journal of a dead owner": _stale,
    "another process sets a limit": _other_tool,
    "terminal gone": _terminal_gone,
}
