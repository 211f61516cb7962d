"""Faults with the helper between: of a client that lends, sets and dies, of the helper, of its watchdog, of its disk.

The client is a small one (`bench.helper.talk`), as another user where that is possible; of whole jobs under the helper
are the faults in `helper_job_faults`.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from bench.faults.aftermath import BACK_WITHIN_S, HUNG_BACK_WITHIN_S, send
from bench.faults.loan import ARRIVALS_MW, LENT, SOON_S, Loan
from bench.faults.outcome import Outcome, difference
from bench.faults.processes import carried_out
from bench.helper.served import fork_servers_of
from bench.waiting import waited

_BY_NEXT_START_S = 3.0  # where the watchdog is dead as well
_LOOKED_AT_S = 0.05


def injected(kind: str, seed: int) -> Outcome | None:
    """The outcome of one injection; `None` where it met nothing."""
    rng = Random(f"{kind} {seed}")
    with tempfile.TemporaryDirectory(prefix="autocap-faults-") as name:
        Path(name).chmod(0o755)
        with Loan(Path(name)) as loan:
            result = carried_out(KINDS[kind], loan, rng, Outcome(kind=kind, seed=seed))
            if result is None:
                return None
            result = _aftermath(loan, result)
            return replace(result, said=(*loan.served.log(), *loan.said()[-4:]))


def _aftermath(loan: Loan, result: Outcome) -> Outcome:
    """At the end of all, with the client dead: limits, journal, the other GPU."""
    send(loan.client, signal.SIGCONT)
    with suppress(ProcessLookupError):
        os.killpg(loan.client, signal.SIGKILL)
    loan.reap()
    send(loan.served.pid, signal.SIGCONT)
    waited(lambda: difference(ARRIVALS_MW, loan.served.limits_mw()) is None, 4.0)
    changed = result.changed or difference(ARRIVALS_MW, loan.served.limits_mw())
    others = {change.gpu for change in loan.board.read().changes} - set(LENT)
    if others:
        changed = changed or f"the limit of GPU {others} was set, which was not lent"
    journal = loan.served.state_dir
    if waited(lambda: not list(journal.glob("*.json")), 6.0) is None:
        changed = changed or f"the journal still holds {sorted(one.name for one in journal.glob('*.json'))}"
    faults = [line for line in loan.served.log() if "internal fault" in line or "Traceback" in line]
    return replace(result, changed=changed, silent=faults[0] if faults else result.silent)


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
    result = loan.struck(result, HUNG_BACK_WITHIN_S + _LOOKED_AT_S, signal.SIGSTOP, loan.client)
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
    result = loan.struck(result, HUNG_BACK_WITHIN_S + _LOOKED_AT_S, signal.SIGSTOP, loan.served.pid)
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
        return _aftermath(loan, loan.struck(result, within_s, signal.SIGKILL, victim))
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
