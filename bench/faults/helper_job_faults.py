"""Faults of whole jobs, tuned by a user who may set no limit, with the helper between."""

import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from bench.faults.aftermath import BACK_WITHIN_S, HUNG_BACK_WITHIN_S, ended, random_moment, send
from bench.faults.outcome import Outcome, difference
from bench.faults.processes import ARRIVALS_MW, Scene, carried_out
from bench.helper import people
from bench.helper.served import Served, until
from bench.nvml_emulation import Limits

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

    def back(self, since_s: float, within_s: float) -> tuple[str | None, float | None]:
        """As `put_back`, also where caps are set again soon."""

        def times() -> list[float | None]:
            return [self.served.back_after_s(gpu, since_s, found_mw) for gpu, found_mw in enumerate(ARRIVALS_MW)]

        until(lambda: None not in times(), within_s + 5.0)
        found = [one for one in times() if one is not None]
        if len(found) < len(ARRIVALS_MW):
            return difference(ARRIVALS_MW, self.limits_mw()) or "the limits were not put back", None
        return (f"back only after {max(found):.2f} s" if max(found) > within_s else None), max(found) or None


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
    mode = rng.choice(("run", "attach"))
    scene.start(mode)
    scene.until_capped()
    status = scene.ended_with()
    harmed = None if status == 0 else f"{mode} ended with {status}"
    changed = difference(ARRIVALS_MW, scene.limits_mw())
    return ended(scene, replace(result, harmed=harmed, changed=changed))


def _controller_killed(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    scene.start(rng.choice(("run", "attach")))
    random_moment(scene, rng)
    assert scene.controller is not None
    since_s = scene.board.now_s()
    scene.controller.kill()
    scene.controller.wait()
    changed, back_s = scene.back(since_s, HUNG_BACK_WITHIN_S)
    return ended(scene, replace(result, changed=changed, back_s=back_s))


def _controller_terminated(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    scene.start("attach")
    scene.until_capped()
    time.sleep(rng.uniform(0.0, 1.5))
    assert scene.controller is not None
    scene.controller.terminate()
    scene.ended_with()
    return ended(scene, replace(result, changed=difference(ARRIVALS_MW, scene.limits_mw())), "SIGTERM ended autocap")


def _controller_stopped(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    """SIGSTOP for a while, after which it tunes on."""
    scene.start("attach")
    scene.until_capped()
    time.sleep(rng.uniform(0.0, 0.5))
    assert scene.controller is not None
    since_s = scene.board.now_s()
    scene.controller.send_signal(signal.SIGSTOP)
    changed, back_s = scene.back(since_s, HUNG_BACK_WITHIN_S + _LOOKED_AT_S)
    time.sleep(rng.uniform(0.0, 1.0))
    scene.controller.send_signal(signal.SIGCONT)
    status = scene.ended_with()
    harmed = None if status == 0 else f"attach ended with {status}"
    return ended(scene, replace(result, harmed=harmed, changed=changed, back_s=back_s))


def _everything_of_the_user(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    """SIGKILL to all processes of the user at once, the job as well."""
    scene.start(rng.choice(("run", "attach")))
    scene.until_capped()
    time.sleep(rng.uniform(0.0, 1.5))
    assert scene.controller is not None
    job = scene.job
    since_s = scene.board.now_s()
    with suppress(ProcessLookupError):
        os.killpg(scene.controller.pid, signal.SIGKILL)
    if job is not None:
        send(job.pid, signal.SIGKILL)
    changed, back_s = scene.back(since_s, HUNG_BACK_WITHIN_S)
    until(scene.are_back, _LOOKED_AT_S)  # a call that sets a limit has begun by then, and not returned
    return replace(result, changed=changed or difference(ARRIVALS_MW, scene.limits_mw()), back_s=back_s)


def _helper_killed(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    """The helper is killed; the next one lends anew, and the tuning goes on."""
    scene.start(rng.choice(("run", "attach")))
    scene.until_capped()
    time.sleep(rng.uniform(0.0, 2.0))
    since_s = scene.board.now_s()
    scene.served.signal(signal.SIGKILL)
    changed, back_s = scene.back(since_s, BACK_WITHIN_S)
    status = scene.ended_with()
    harmed = None if status == 0 else f"autocap ended with {status}"
    return ended(scene, replace(result, harmed=harmed, changed=changed, back_s=back_s))


def _both_killed(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    scene.start(rng.choice(("run", "attach")))
    scene.until_capped()
    time.sleep(rng.uniform(0.0, 1.5))
    assert scene.controller is not None
    pids = [scene.served.pid, scene.controller.pid]
    rng.shuffle(pids)
    since_s = scene.board.now_s()
    for pid in pids:
        send(pid, signal.SIGKILL)
    scene.controller.wait()
    changed, back_s = scene.back(since_s, BACK_WITHIN_S)
    return ended(scene, replace(result, changed=changed, back_s=back_s))


def _job_killed(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    scene.start(rng.choice(("run", "attach")))
    scene.until_capped()
    time.sleep(rng.uniform(0.0, 1.5))
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
