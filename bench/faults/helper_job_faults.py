"""Faults of whole jobs, tuned by a user who may set no limit, with the helper between."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from autocap.testing.nvml import Limits
from bench.faults.aftermath import BACK_WITHIN_S, HUNG_BACK_WITHIN_S, ended, random_moment, send
from bench.faults.loan import back
from bench.faults.outcome import Outcome, difference
from bench.faults.processes import ARRIVALS_MW, Scene, carried_out
from bench.helper import people
from bench.helper.served import Served
from bench.waiting import waited

_ITERATIONS = 300
_LOOKED_AT_S = 0.05


class UserScene(Scene):
    """A job of a user's, tuned by them, and the helper that sets the limits, which only root may."""

    def __init__(self, folder: Path, iterations: int) -> None:
        super().__init__(folder, iterations)
        made = self.board.read().machine
        cards = tuple(replace(card, limits=Limits.ROOTS) for card in made.cards) if os.geteuid() == 0 else made.cards
        self.board.update(lambda state: replace(state, machine=replace(made, cards=cards)))
        self.served = Served(folder.parent / "helper", folder / "machine.json")
        self.python, self.rights = people.python() or self.python, people.as_user()
        helper = {"AUTOCAP_HELPER": str(self.served.socket), "AUTOCAP_STATE_DIR": str(folder / "own")}
        self.env = people.modules(people.home({**self.env, **helper}, str(folder)))
        self.state_dir = self.served.state_dir
        for name in ("out", "err"):
            (folder / name).touch()

    def start(self, mode: str, *words: str, **more: object) -> None:
        super().start(mode, "--actuator", "helper", *words, **more)  # type: ignore[arg-type]  # passed on as they are

    def leftovers(self) -> list[str]:
        return [name for name in super().leftovers() if name.endswith(".json")]

    def capped(self, rng: Random, most_s: float = 1.5, mode: str | None = None) -> "subprocess.Popen[bytes]":
        """Start tuning, and return up to so long after caps were set; the controller."""
        self.start(mode or rng.choice(("run", "attach")))
        self.until_capped()
        time.sleep(rng.uniform(0.0, most_s))
        assert self.controller is not None
        return self.controller

    def back(self, result: Outcome, since_s: float, within_s: float) -> Outcome:
        """How all limits come back from a moment on, also where caps are set again soon."""
        changed, back_s = back(self.served, range(len(ARRIVALS_MW)), ARRIVALS_MW, since_s, within_s)
        return replace(result, changed=changed, back_s=back_s)

    def tuned(self, result: Outcome) -> Outcome:
        """Once it has tuned to its end: it may not have failed, and the limits stay as they were found."""
        status = self.ended_with()
        harmed = None if status == 0 else f"autocap ended with {status}"
        changed = result.changed or difference(ARRIVALS_MW, self.limits_mw())
        return ended(self, replace(result, harmed=harmed, changed=changed))


def injected(kind: str, seed: int, iterations: int = _ITERATIONS) -> Outcome | None:
    """The outcome of one injection into a job of so many iterations, 0.11 s each; `None` where it ended before."""
    rng = Random(f"{kind} {seed}")
    with tempfile.TemporaryDirectory(prefix="autocap-faults-") as name:
        Path(name).chmod(0o755)
        with UserScene(Path(name) / "job", iterations) as scene, scene.served:
            result = carried_out(KINDS[kind], scene, rng, Outcome(kind=kind, seed=seed))
            if result is None:
                return None
            faults = [line for line in scene.served.log() if "internal fault" in line or "Traceback" in line]
            silent = faults[0] if faults else result.silent
            return replace(result, silent=silent, said=(*scene.served.log()[-4:], *scene.said()))


def _undisturbed(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    """No fault at all: caps are set, and the limits are back at the job's end."""
    scene.capped(rng, 0.0)
    return scene.tuned(result)


def _controller_killed(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    scene.start(rng.choice(("run", "attach")))
    random_moment(scene, rng)
    assert scene.controller is not None
    since_s = scene.now_s()
    scene.controller.kill()
    scene.controller.wait()
    return ended(scene, scene.back(result, since_s, HUNG_BACK_WITHIN_S))


def _controller_terminated(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    scene.capped(rng, mode="attach").terminate()
    scene.ended_with()
    return ended(scene, replace(result, changed=difference(ARRIVALS_MW, scene.limits_mw())), "SIGTERM ended autocap")


def _controller_stopped(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    """SIGSTOP for a while, after which it tunes on."""
    controller, since_s = scene.capped(rng, 0.5, "attach"), scene.now_s()
    controller.send_signal(signal.SIGSTOP)
    result = scene.back(result, since_s, HUNG_BACK_WITHIN_S + _LOOKED_AT_S)
    time.sleep(rng.uniform(0.0, 1.0))
    controller.send_signal(signal.SIGCONT)
    return scene.tuned(result)


def _everything_of_the_user(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    """SIGKILL to all processes of the user at once, the job as well."""
    controller, job, since_s = scene.capped(rng), scene.job, scene.now_s()
    with suppress(ProcessLookupError):
        os.killpg(controller.pid, signal.SIGKILL)
    if job is not None:
        send(job.pid, signal.SIGKILL)
    result = scene.back(result, since_s, HUNG_BACK_WITHIN_S)
    waited(scene.are_back, _LOOKED_AT_S)  # a call that sets a limit has begun by then, and not returned
    return replace(result, changed=result.changed or difference(ARRIVALS_MW, scene.limits_mw()))


def _helper_killed(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    """The helper is killed; the next one lends anew, and the tuning goes on."""
    scene.capped(rng, 2.0)
    since_s = scene.now_s()
    scene.served.signal(signal.SIGKILL)
    return scene.tuned(scene.back(result, since_s, BACK_WITHIN_S))


def _both_killed(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    controller = scene.capped(rng)
    pids, since_s = rng.sample((scene.served.pid, controller.pid), 2), scene.now_s()
    for pid in pids:
        send(pid, signal.SIGKILL)
    controller.wait()
    return ended(scene, scene.back(result, since_s, BACK_WITHIN_S))


def _job_killed(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    scene.capped(rng)
    job = scene.job
    if job is not None:
        send(job.pid, signal.SIGKILL)
    scene.ended_with()
    return replace(result, changed=difference(ARRIVALS_MW, scene.limits_mw()))


KINDS: dict[str, Callable[[UserScene, Random, Outcome], Outcome]] = {
    "helper jobs: no fault": _undisturbed,
    "helper jobs: autocap killed": _controller_killed,
    "helper jobs: SIGTERM to attach": _controller_terminated,
    "helper jobs: autocap stopped": _controller_stopped,
    "helper jobs: user's all killed": _everything_of_the_user,
    "helper jobs: helper killed": _helper_killed,
    "helper jobs: both killed": _both_killed,
    "helper jobs: job killed": _job_killed,
}
