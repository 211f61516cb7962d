"""Faults with the helper between: of a client that lends, sets and dies, of the helper, of its watchdog, of its disk,
and of whole jobs, tuned by a user who may set no limit.

The client is a small one (`bench.helper.talk`), as another user where that is possible.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Self

from autocap.testing.nvml import FileBoard, Limits, machine
from bench.common import until, waited
from bench.faults.outcome import Outcome, difference
from bench.faults.scene import (
    ARRIVALS_MW,
    BACK_WITHIN_S,
    HUNG_BACK_WITHIN_S,
    ITERATIONS,
    LOOKED_AT_S,
    Scene,
    ended,
    inject_into,
    random_moment,
    send,
)
from bench.helper import people, talk
from bench.helper.served import Served, fork_servers_of

FOUND_MW = (247_123, 251_007, 240_001)  # the last is nobody's
LENT = (0, 1)
SOON_S = 15.0
_CAPS_MW = (150_000, 172_500, 201_250)


class Loan:
    """A helper and one client that sets caps; a context manager that leaves no process behind."""

    def __init__(self, folder: Path) -> None:
        made = machine("quadro-rtx-6000/alexnet", gpus=len(FOUND_MW), arrivals_mw=FOUND_MW)
        (folder / "machine").mkdir()
        self.board = FileBoard.create(folder / "machine" / "state.json", replace(made, job_gpus=()))
        self.served = Served(folder / "helper", folder / "machine" / "state.json")
        self._said = folder / "said"
        self._client: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Loan":
        self.served.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._client is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._client.pid, signal.SIGKILL)
            self._client.wait()
        self.served.close()

    def told(self, result: Outcome) -> Outcome:
        result = self.aftermath(result)
        return replace(result, said=(*self.served.log(), *self.said()[-4:]))

    def aftermath(self, result: Outcome) -> Outcome:
        """At the end of all, with the client dead: limits, journal, the other GPU."""
        send(self.client, signal.SIGCONT)
        with suppress(ProcessLookupError):
            os.killpg(self.client, signal.SIGKILL)
        self._process.wait()
        send(self.served.pid, signal.SIGCONT)
        waited(lambda: difference(FOUND_MW, self.served.limits_mw()) is None, 4.0)
        changed = result.changed or difference(FOUND_MW, self.served.limits_mw())
        others = {change.gpu for change in self.board.read().changes} - set(LENT)
        if others:
            changed = changed or f"the limit of GPU {others} was set, which was not lent"
        journal = self.served.state_dir
        if waited(lambda: not list(journal.glob("*.json")), 6.0) is None:
            changed = changed or f"the journal still holds {sorted(one.name for one in journal.glob('*.json'))}"
        return replace(result, changed=changed, silent=_fault(self.served) or result.silent)

    @property
    def client(self) -> int:
        """PID, and that of its process group."""
        return self._process.pid

    @property
    def _process(self) -> "subprocess.Popen[bytes]":
        assert self._client is not None
        return self._client

    def start(self, rng: Random, *words: str) -> None:
        """Start the client, which sets a cap every so often."""
        uuids = ",".join(self.board.read().machine.cards[gpu].uuid for gpu in LENT)
        caps = ",".join(map(str, rng.sample(_CAPS_MW, len(_CAPS_MW))))
        own = ["-I", "-S", talk.__file__, str(self.served.socket), uuids, caps, f"{rng.choice((0.3, 0.5)):g}", *words]
        with open(self._said, "ab") as out:
            self._client = subprocess.Popen(
                [people.python() or "python3", *own],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, **people.as_user(),
            )  # fmt: skip

    def said(self) -> tuple[str, ...]:
        return tuple(self._said.read_text().splitlines()) if self._said.exists() else ()

    def count(self, word: str) -> int:
        return sum(line.startswith(word) for line in self.said())

    def until_set(self, times: int = 1) -> None:
        """Raises Late."""
        before = self.count("set")
        until(lambda: self.count("set") >= before + times, "a cap is set", SOON_S)

    def struck(
        self, result: Outcome, within_s: float, signum: signal.Signals, *pids: int, group: bool = False
    ) -> Outcome:
        """A signal to some processes one after the other, or to the client's whole group; and how the limits come back
        from then on, whoever sets them again."""
        since_s = self.board.now_s()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signum) if group else os.kill(pid, signum)
        changed, back_s = back(self.served, LENT, FOUND_MW, since_s, within_s)
        return replace(result, changed=changed, back_s=back_s)


def _fault(served: Served) -> str | None:
    """The first line of its log that tells of one of ours."""
    return next((line for line in served.log() if "internal fault" in line or "Traceback" in line), None)


def back(
    served: Served, gpus: Sequence[int], found_mw: Sequence[int], since_s: float, within_s: float
) -> tuple[str | None, float | None]:
    """What is wrong with how the limits of some GPUs come back from a moment on, and the seconds that it takes, also
    where caps are set again soon; `None` where there is nothing wrong, or they were not away."""

    def times() -> list[float | None]:
        return [served.back_after_s(gpu, since_s, found_mw[gpu]) for gpu in gpus]

    waited(lambda: None not in times(), within_s + 5.0)
    found = [one for one in times() if one is not None]
    if len(found) < len(gpus):
        return difference(found_mw, served.limits_mw()) or "the limits were not put back", None
    worst_s = max(found)
    return (f"back only after {worst_s:.2f} s" if worst_s > within_s else None), worst_s or None


_BY_NEXT_START_S = 3.0  # where the watchdog is dead as well


def injected(kind: str, seed: int) -> Outcome | None:
    """The outcome of one injection; `None` where it met nothing."""
    return inject_into(KINDS[kind], kind, seed, Loan)


def _once_set(loan: Loan, rng: Random) -> None:
    """A little after the client has set its first cap."""
    loan.start(rng)
    loan.until_set()
    time.sleep(rng.uniform(0.0, 0.3))


def _at_random(loan: Loan, rng: Random, *words: str) -> None:
    """Some time into a client's life: also while it connects, while it is lent to, in the middle of a set."""
    loan.start(rng, *words)
    if rng.random() < 0.25:
        time.sleep(rng.uniform(0.0, 0.8))
    else:
        loan.until_set(rng.choice((1, 1, 2)))
        time.sleep(rng.uniform(0.0, 0.06) if rng.random() < 0.5 else rng.uniform(0.0, 0.5))


Injection = Callable[[Loan, Random, Outcome], Outcome]


def _client(signum: signal.Signals, *words: str, group: bool = False) -> Injection:
    """A signal to the client that ends it, or to all of its process group."""

    def inject(loan: Loan, rng: Random, result: Outcome) -> Outcome:
        _at_random(loan, rng, *words)
        return loan.struck(result, HUNG_BACK_WITHIN_S, signum, loan.client, group=group)

    return inject


def _client_stopped(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """SIGSTOP: the helper puts the limits back; once it goes on, the client is told, and sets its caps again."""
    _once_set(loan, rng)
    result = loan.struck(result, HUNG_BACK_WITHIN_S + LOOKED_AT_S, signal.SIGSTOP, loan.client)
    time.sleep(rng.uniform(0.0, 0.3))
    told = loan.count("put back")
    send(loan.client, signal.SIGCONT)
    if result.back_s is not None and waited(lambda: loan.count("put back") > told, SOON_S) is None:
        result = replace(result, silent="the client is not told that its limits were put back")
    loan.until_set()
    return result


def _helper(signum: signal.Signals) -> Injection:
    """A signal that ends the helper: its watchdog, or it, puts the limits back, and the next one lends anew."""

    def inject(loan: Loan, rng: Random, result: Outcome) -> Outcome:
        _at_random(loan, rng)
        result = loan.struck(result, BACK_WITHIN_S, signum, loan.served.pid)
        loan.until_set()
        return result

    return inject


def _helper_stopped(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """SIGSTOP: the watchdog puts the limits back; the helper goes on, or is killed."""
    _once_set(loan, rng)
    result = loan.struck(result, HUNG_BACK_WITHIN_S + LOOKED_AT_S, signal.SIGSTOP, loan.served.pid)
    time.sleep(rng.uniform(0.0, 0.5))
    send(loan.served.pid, rng.choice((signal.SIGCONT, signal.SIGKILL)))
    loan.until_set()
    return result


def _both(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """Helper and client are killed at once, in either order."""
    _at_random(loan, rng)
    pids = rng.sample((loan.served.pid, loan.client), 2)
    return loan.struck(result, BACK_WITHIN_S, signal.SIGKILL, *pids)


def _watchdog(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """The watchdog is killed; the helper starts another, which does its duty when the helper is killed."""
    _once_set(loan, rng)
    return _then_helper(loan, rng, result, loan.served.vitals().watchdogs)


def _watchdog_stopped(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """SIGSTOP to the watchdog; the same within two seconds."""
    _once_set(loan, rng)
    for pid in loan.served.vitals().watchdogs:
        send(pid, signal.SIGSTOP)
    time.sleep(rng.uniform(0.8, 1.2))
    return _then_helper(loan, rng, result, ())


def _fork_server(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """The process that forks watchdogs is killed, and perhaps the watchdog, for which the helper then starts another;
    when the helper is killed, whichever there is does its duty."""
    _once_set(loan, rng)
    watchdogs = loan.served.vitals().watchdogs if rng.random() < 0.5 else ()
    return _then_helper(loan, rng, result, (*fork_servers_of(loan.served.pid), *watchdogs))


def _then_helper(loan: Loan, rng: Random, result: Outcome, pids: Sequence[int]) -> Outcome:
    """Some processes are killed, and the helper a little later."""
    for pid in pids:
        send(pid, signal.SIGKILL)
    time.sleep(rng.uniform(1.2, 2.0))
    return loan.struck(result, BACK_WITHIN_S, signal.SIGKILL, loan.served.pid)


def _everything(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """Helper and watchdog are killed at once, and perhaps the client: the next start of the helper puts back."""
    _once_set(loan, rng)
    pids = [loan.served.pid, *loan.served.vitals().watchdogs, *((loan.client,) if rng.random() < 0.5 else ())]
    rng.shuffle(pids)
    return loan.struck(result, _BY_NEXT_START_S, signal.SIGKILL, *pids)


def _disk_full(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """The state directory's disk is full, from the start or from some moment on; then the client or the helper is
    killed."""
    state = loan.served.state_dir
    waited(state.is_dir, SOON_S)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=711", "none", state], check=True)
    try:
        if rng.random() < 0.5:
            loan.start(rng)
            loan.until_set()
            time.sleep(rng.uniform(0.0, 0.5))
            _fill(state)
            time.sleep(rng.uniform(0.0, 1.0))
        else:
            _fill(state)
            loan.start(rng)
            time.sleep(rng.uniform(0.2, 1.2))
        victim, within_s = rng.choice(((loan.served.pid, BACK_WITHIN_S), (loan.client, HUNG_BACK_WITHIN_S)))
        return loan.aftermath(loan.struck(result, within_s, signal.SIGKILL, victim))
    finally:
        subprocess.run(["umount", "--lazy", state], check=True)


def _fill(folder: Path) -> None:
    with suppress(OSError), open(folder / "filler", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


KINDS: dict[str, Injection] = {
    "helper: client killed": _client(signal.SIGKILL),
    "helper: client's whole group killed": _client(signal.SIGKILL, "heir", group=True),
    "helper: client killed, child holds on": _client(signal.SIGKILL, "heir"),
    "helper: SIGTERM to the client": _client(signal.SIGTERM),
    "helper: client stopped": _client_stopped,
    "helper: helper killed": _helper(signal.SIGKILL),
    "helper: SIGTERM to the helper": _helper(signal.SIGTERM),
    "helper: helper stopped": _helper_stopped,
    "helper: both killed": _both,
    "helper: watchdog, then helper killed": _watchdog,
    "helper: watchdog stopped before a SIGKILL": _watchdog_stopped,
    "helper: fork server, helper killed": _fork_server,
    "helper: helper and watchdog killed": _everything,
}
if os.geteuid() == 0:  # who may mount
    KINDS["helper: state directory's disk full"] = _disk_full


class UserScene(Scene):
    """A job of a user's, tuned by them, and the helper that sets the limits, which only root may."""

    def __init__(self, folder: Path, iterations: int) -> None:
        super().__init__(folder, iterations)
        if os.geteuid() == 0:
            self.become(cards=tuple(replace(card, limits=Limits.ROOTS) for card in self.board.read().machine.cards))
        self.served = Served(folder.parent / "helper", folder / "machine.json")
        self.python, self.rights = people.python() or self.python, people.as_user()
        helper = {"AUTOCAP_HELPER": str(self.served.socket), "AUTOCAP_STATE_DIR": str(folder / "own")}
        self.env = people.modules(people.home({**self.env, **helper}, str(folder)))
        self.state_dir = self.served.state_dir
        for name in ("out", "err"):
            (folder / name).touch()

    def start(self, mode: str, *words: str, **more: object) -> None:
        super().start(mode, "--via", "helper", *words, **more)  # type: ignore[arg-type]  # passed on as they are

    def __enter__(self) -> Self:
        self.served.__enter__()
        return self

    def close(self) -> None:
        self.served.close()
        super().close()

    def told(self, result: Outcome) -> Outcome:
        result = replace(result, silent=_fault(self.served) or result.silent)
        return replace(result, said=(*self.served.log()[-4:], *self.said()))

    def leftovers(self) -> list[str]:
        return [name for name in super().leftovers() if name.endswith(".json")]

    def back(self, result: Outcome, since_s: float, within_s: float) -> Outcome:
        """How all limits come back from a moment on, also where caps are set again soon."""
        changed, back_s = back(self.served, range(len(ARRIVALS_MW)), ARRIVALS_MW, since_s, within_s)
        return replace(result, changed=changed, back_s=back_s)

    def tuned(self, result: Outcome) -> Outcome:
        """Once it has tuned to its end: it may not have failed, and the limits stay as they were found."""
        harmed = self.failure(0)
        changed = result.changed or difference(ARRIVALS_MW, self.limits_mw())
        return ended(self, replace(result, harmed=harmed, changed=changed))


def injected_into_job(kind: str, seed: int) -> Outcome | None:
    """The outcome of one injection into a job; `None` where it ended before."""
    return inject_into(JOB_KINDS[kind], kind, seed, lambda folder: UserScene(folder / "job", ITERATIONS))


def _undisturbed(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    """No fault at all: caps are set, and the limits are back at the job's end."""
    scene.capped(rng, 0.0)
    return scene.tuned(result)


def _controller_killed(scene: UserScene, rng: Random, result: Outcome) -> Outcome:
    scene.start(rng.choice(("run", "attach")))
    random_moment(scene, rng)
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
    result = scene.back(result, since_s, HUNG_BACK_WITHIN_S + LOOKED_AT_S)
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
    waited(scene.are_back, LOOKED_AT_S)  # a call that sets a limit has begun by then, and not returned
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


JOB_KINDS: dict[str, Callable[[UserScene, Random, Outcome], Outcome]] = {
    "helper jobs: no fault": _undisturbed,
    "helper jobs: autocap killed": _controller_killed,
    "helper jobs: SIGTERM to attach": _controller_terminated,
    "helper jobs: autocap stopped": _controller_stopped,
    "helper jobs: user's all killed": _everything_of_the_user,
    "helper jobs: helper killed": _helper_killed,
    "helper jobs: both killed": _both_killed,
    "helper jobs: job killed": _job_killed,
}
