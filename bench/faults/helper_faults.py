"""Faults with the helper between: of a client that lends, sets and dies, of the helper, of its watchdog, of its disk.

The client is a small one (`bench.helper.talk`), as another user where that is possible; of whole jobs under the helper
are the faults in `helper_job_faults`.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import TracebackType

from bench.faults.aftermath import BACK_WITHIN_S, HUNG_BACK_WITHIN_S, send
from bench.faults.outcome import Outcome, difference
from bench.faults.processes import Late, Missed
from bench.helper import people, talk
from bench.helper.served import Served, until
from bench.nvml_emulation import FileBoard, machine

_ARRIVALS_MW = (247_123, 251_007, 240_001)  # the last is nobody's
_LENT = (0, 1)
_CAPS_MW = (150_000, 172_500, 201_250)
_SOON_S = 15.0
_BY_NEXT_START_S = 3.0  # where the watchdog is dead as well
_LOOKED_AT_S = 0.05


class Loan:
    """A helper and one client that sets caps; a context manager that leaves no process behind."""

    def __init__(self, folder: Path) -> None:
        made = machine("quadro-rtx-6000/alexnet", gpus=len(_ARRIVALS_MW), arrivals_mw=_ARRIVALS_MW)
        (folder / "machine").mkdir()
        self.board = FileBoard.create(folder / "machine" / "state.json", replace(made, job_gpus=()))
        self.served = Served(folder / "helper", folder / "machine" / "state.json")
        self._stack = ExitStack()
        self._said = folder / "said"
        self._client: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Loan":
        self._stack.enter_context(self.served)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._client is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._client.pid, signal.SIGKILL)
            self._client.wait()
        self._stack.close()

    @property
    def client(self) -> int:
        """PID, and that of its process group."""
        assert self._client is not None
        return self._client.pid

    def start(self, rng: Random, *words: str) -> None:
        """Start the client, which sets a cap every so often."""
        uuids = ",".join(self.board.read().machine.cards[gpu].uuid for gpu in _LENT)
        caps = ",".join(map(str, rng.sample(_CAPS_MW, len(_CAPS_MW))))
        own = ["-I", "-S", talk.__file__, str(self.served.socket), uuids, caps, f"{rng.choice((0.3, 0.5)):g}", *words]
        with open(self._said, "ab") as out:
            self._client = subprocess.Popen(
                [people.python() or "python3", *own],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, **people.as_user(),
            )  # fmt: skip

    def reap(self) -> None:
        assert self._client is not None
        self._client.wait()

    def said(self) -> tuple[str, ...]:
        return tuple(self._said.read_text().splitlines()) if self._said.exists() else ()

    def count(self, word: str) -> int:
        return sum(line.startswith(word) for line in self.said())

    def until_set(self, times: int = 1) -> None:
        """Raises Late."""
        before = self.count("set")
        if until(lambda: self.count("set") >= before + times, _SOON_S) is None:
            raise Late(f"not within {_SOON_S:g} s: a cap is set")

    def now_s(self) -> float:
        return self.board.now_s()

    def back(self, since_s: float, within_s: float) -> tuple[str | None, float | None]:
        """What is wrong with how the limits come back from a moment on, and the seconds that it takes; `None` where
        there is nothing wrong, or they were not away."""

        def times() -> list[float | None]:
            return [self.served.back_after_s(gpu, since_s, _ARRIVALS_MW[gpu]) for gpu in _LENT]

        until(lambda: None not in times(), within_s + 5.0)
        found = [one for one in times() if one is not None]
        if len(found) < len(_LENT):
            return difference(_ARRIVALS_MW, self.served.limits_mw()) or "the limits were not put back", None
        worst_s = max(found)
        return (f"back only after {worst_s:.2f} s" if worst_s > within_s else None), worst_s or None


def injected(kind: str, seed: int) -> Outcome | None:
    """The outcome of one injection; `None` where it met nothing."""
    rng = Random(f"{kind} {seed}")
    with tempfile.TemporaryDirectory(prefix="autocap-faults-") as name:
        Path(name).chmod(0o755)
        with Loan(Path(name)) as loan:
            result = Outcome(kind=kind, seed=seed)
            try:
                result = KINDS[kind](loan, rng, result)
            except Missed:
                return None
            except Late as error:
                result = replace(result, hung=str(error))
            result = _aftermath(loan, result)
            return replace(result, said=(*loan.served.log(), *loan.said()[-4:]))


def _aftermath(loan: Loan, result: Outcome) -> Outcome:
    """At the end of all, with the client dead: limits, journal, the other GPU."""
    send(loan.client, signal.SIGCONT)
    with suppress(ProcessLookupError):
        os.killpg(loan.client, signal.SIGKILL)
    loan.reap()
    send(loan.served.pid, signal.SIGCONT)
    until(lambda: difference(_ARRIVALS_MW, loan.served.limits_mw()) is None, 4.0)
    changed = result.changed or difference(_ARRIVALS_MW, loan.served.limits_mw())
    others = {change.gpu for change in loan.board.read().changes} - set(_LENT)
    if others:
        changed = changed or f"the limit of GPU {others} was set, which was not lent"
    journal = loan.served.state_dir
    if until(lambda: not list(journal.glob("*.json")), 6.0) is None:
        changed = changed or f"the journal still holds {sorted(one.name for one in journal.glob('*.json'))}"
    faults = [line for line in loan.served.log() if "internal fault" in line or "Traceback" in line]
    return replace(result, changed=changed, silent=faults[0] if faults else result.silent)


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
        since_s = loan.now_s()
        os.killpg(loan.client, signum) if group else os.kill(loan.client, signum)
        changed, back_s = loan.back(since_s, HUNG_BACK_WITHIN_S)
        return replace(result, changed=changed, back_s=back_s)

    return inject


def _client_stopped(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """SIGSTOP: the helper puts the limits back; once it goes on, the client is told, and sets its caps again."""
    loan.start(rng)
    loan.until_set()
    time.sleep(rng.uniform(0.0, 0.3))
    since_s = loan.now_s()
    send(loan.client, signal.SIGSTOP)
    changed, back_s = loan.back(since_s, HUNG_BACK_WITHIN_S + _LOOKED_AT_S)
    time.sleep(rng.uniform(0.0, 0.3))
    told = loan.count("put back")
    send(loan.client, signal.SIGCONT)
    if back_s is not None and until(lambda: loan.count("put back") > told, _SOON_S) is None:
        result = replace(result, silent="the client is not told that its limits were put back")
    loan.until_set()
    return replace(result, changed=changed, back_s=back_s)


def _helper(signum: signal.Signals) -> Injection:
    """A signal that ends the helper: its watchdog, or it, puts the limits back, and the next one lends anew."""

    def inject(loan: Loan, rng: Random, result: Outcome) -> Outcome:
        _at_random(loan, rng)
        since_s = loan.now_s()
        send(loan.served.pid, signum)
        changed, back_s = loan.back(since_s, BACK_WITHIN_S)
        loan.until_set()
        return replace(result, changed=changed, back_s=back_s)

    return inject


def _helper_stopped(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """SIGSTOP: the watchdog puts the limits back; the helper goes on, or is killed."""
    loan.start(rng)
    loan.until_set()
    time.sleep(rng.uniform(0.0, 0.3))
    since_s = loan.now_s()
    send(loan.served.pid, signal.SIGSTOP)
    changed, back_s = loan.back(since_s, HUNG_BACK_WITHIN_S + _LOOKED_AT_S)
    time.sleep(rng.uniform(0.0, 0.5))
    send(loan.served.pid, rng.choice((signal.SIGCONT, signal.SIGKILL)))
    loan.until_set()
    return replace(result, changed=changed, back_s=back_s)


def _both(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """Helper and client are killed at once, in either order."""
    _at_random(loan, rng)
    since_s = loan.now_s()
    pids = [loan.served.pid, loan.client]
    rng.shuffle(pids)
    for pid in pids:
        send(pid, signal.SIGKILL)
    changed, back_s = loan.back(since_s, BACK_WITHIN_S)
    return replace(result, changed=changed, back_s=back_s)


def _watchdog(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """The watchdog is killed; the helper starts another, which does its duty when the helper is killed."""
    loan.start(rng)
    loan.until_set()
    for pid in loan.served.vitals().watchdogs:
        send(pid, signal.SIGKILL)
    time.sleep(rng.uniform(1.2, 2.0))
    since_s = loan.now_s()
    send(loan.served.pid, signal.SIGKILL)
    changed, back_s = loan.back(since_s, BACK_WITHIN_S)
    return replace(result, changed=changed, back_s=back_s)


def _everything(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """Helper and watchdog are killed at once, and perhaps the client: the next start of the helper puts back."""
    loan.start(rng)
    loan.until_set()
    time.sleep(rng.uniform(0.0, 0.3))
    pids = [loan.served.pid, *loan.served.vitals().watchdogs, *((loan.client,) if rng.random() < 0.5 else ())]
    rng.shuffle(pids)
    since_s = loan.now_s()
    for pid in pids:
        send(pid, signal.SIGKILL)
    changed, back_s = loan.back(since_s, _BY_NEXT_START_S)
    return replace(result, changed=changed, back_s=back_s)


def _disk_full(loan: Loan, rng: Random, result: Outcome) -> Outcome:
    """The state directory's disk is full, from the start or from some moment on; then the client or the helper is
    killed."""
    state = loan.served.state_dir
    until(state.is_dir, _SOON_S)
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
        since_s = loan.now_s()
        helper = rng.random() < 0.5
        send(loan.served.pid if helper else loan.client, signal.SIGKILL)
        changed, back_s = loan.back(since_s, BACK_WITHIN_S if helper else HUNG_BACK_WITHIN_S)
        return _aftermath(loan, replace(result, changed=changed, back_s=back_s))
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
    "helper: helper and watchdog killed": _everything,
}
if os.geteuid() == 0:  # who may mount
    KINDS["helper: state directory's disk full"] = _disk_full
