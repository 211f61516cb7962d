"""What the helper costs: the time until a limit is set through it and without it, CPU time and memory of it and of its
watchdog, and how long many clients wait."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import psutil

from autocap.testing.nvml import FileBoard, machine
from autocap.testing.nvml.install import COST_VARIABLE, emulated_s, spent_s
from bench.helper import people, talk
from bench.helper.served import Served
from bench.helper.talk import Talk, lend

_ARRIVALS_MW = (247_123, 251_007)
_CAPS_W = (150.0, 170.0)
_SETS, _SETS_PER_S = 150, 3.0  # below the rate that the helper lets a client have
_CLIENTS, _CLIENTS_OF_USER, _ASKS = 64, 15, 30
_ASKS_PER_S = 2.0  # of each client
_SETTLED_S = 3.0
_BEATS_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperCost:
    """direct_ms, through_ms: until each of some sets had returned. core_pct: of a core, by one client that holds a
    lease and beats every half second; watchdog_pct: the watchdog's. Both without the emulated library's own. rss_mb,
    watchdog_mb: resident. crowd: what each of the clients asked, and milliseconds."""

    direct_ms: tuple[float, ...]
    through_ms: tuple[float, ...]
    core_pct: float
    watchdog_pct: float
    rss_mb: float
    watchdog_mb: float
    crowd: tuple[tuple[str, float], ...]
    clients: int

    @property
    def added_ms(self) -> float:
        """What the helper adds to a set: the median over the pairs."""
        return median(after - before for before, after in zip(self.direct_ms, self.through_ms, strict=True))


def measure(seconds: float) -> HelperCost:
    """seconds: for which a client holds its lease."""
    with tempfile.TemporaryDirectory(prefix="autocap-cost-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "machine").mkdir()
        file = folder / "machine" / "state.json"
        made = machine("quadro-rtx-6000/alexnet", gpus=len(_ARRIVALS_MW), arrivals_mw=_ARRIVALS_MW)
        FileBoard.create(file, replace(made, job_gpus=()))
        served = Served(folder / "helper", file)
        served.env[COST_VARIABLE] = str(folder / "cost")
        with served:
            uuid = made.cards[0].uuid
            direct_ms, through_ms = _sets(served, folder)
            core_pct, watchdog_pct, rss_mb, watchdog_mb = _held(served, folder, uuid, seconds)
            crowd, clients = _crowd(str(served.socket), folder)
        return HelperCost(
            direct_ms=direct_ms,
            through_ms=through_ms,
            core_pct=core_pct,
            watchdog_pct=watchdog_pct,
            rss_mb=rss_mb,
            watchdog_mb=watchdog_mb,
            crowd=crowd,
            clients=clients,
        )


def _sets(served: Served, folder: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """One directly, as a session of root's does, and one through the helper, in turns: each of its own GPU, guarded,
    with its journal entry on the disk first, and on the emulated library, whose sets take 13 ms."""
    mine, lent = (card.uuid for card in served.board.read().machine.cards)
    direct: list[float] = []
    through: list[float] = []
    words = [sys.executable, "-P", "-m", "bench.overhead.helper_direct", str(folder / "own"), mine]
    with subprocess.Popen(words, env=served.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as root:
        assert root.stdin is not None
        assert root.stdout is not None
        root.stdout.readline()
        client = lend(str(served.socket), [lent])
        for number in range(_SETS):
            cap_w = _CAPS_W[number % 2]
            root.stdin.write(f"{cap_w}\n")
            root.stdin.flush()
            direct.append(float(root.stdout.readline()))
            began_s = time.perf_counter()
            client.ask("set", watts=[cap_w])
            through.append(1000 * (time.perf_counter() - began_s))
            client.ask("beat")
            _forget(served.board)
            time.sleep(1 / _SETS_PER_S)
        client.ask("give_back")
        client.close()
        root.stdin.close()
    return tuple(direct), tuple(through)


def _forget(board: FileBoard) -> None:
    """What the emulated machine keeps of earlier sets makes each later one slower."""
    board.update(lambda state: replace(state, changes=state.changes[-2:]))


def _held(served: Served, folder: Path, uuid: str, seconds: float) -> tuple[float, float, float, float]:
    """Per cent of a core of the helper and of its watchdog, and their resident megabytes."""
    holder = lend(str(served.socket), [uuid])
    holder.ask("set", watts=[_CAPS_W[0]])
    vitals = served.vitals()
    (watchdog,) = vitals.watchdogs
    _beat(holder, _SETTLED_S)

    def own_s() -> tuple[float, ...]:
        return tuple(spent_s(pid) - emulated_s(folder / "cost", pid) for pid in (served.pid, watchdog))

    before, began_s = own_s(), time.monotonic()
    _beat(holder, seconds)
    after, took_s = own_s(), time.monotonic() - began_s
    rss_mb, watchdog_mb = served.vitals().rss_mb, psutil.Process(watchdog).memory_info().rss / 2**20
    holder.ask("give_back")
    holder.close()
    return 100 * (after[0] - before[0]) / took_s, 100 * (after[1] - before[1]) / took_s, rss_mb, watchdog_mb


def _beat(holder: Talk, seconds: float) -> None:
    due_s = time.monotonic()
    end_s = due_s + seconds
    while due_s < end_s:
        holder.ask("beat")
        due_s += _BEATS_S
        time.sleep(max(0.0, due_s - time.monotonic()))


def _crowd(path: str, folder: Path) -> tuple[tuple[tuple[str, float], ...], int]:
    """Clients that are all connected at once, of as many users as it takes; each asks twice a second."""
    root = os.geteuid() == 0
    users = [people.USER + number for number in range(-(-_CLIENTS // _CLIENTS_OF_USER))] if root else [os.getuid()]
    count = _CLIENTS if root else _CLIENTS_OF_USER
    started: list[subprocess.Popen[str]] = []
    for number, uid in enumerate(users):
        own = min(_CLIENTS_OF_USER, count - number * _CLIENTS_OF_USER)
        words = [people.python() or sys.executable, "-I", "-S", _ASKER, str(Path(talk.__file__).parent), path, str(own)]
        started.append(
            subprocess.Popen(
                [*words, str(_ASKS), str(_ASKS_PER_S)], stdout=subprocess.PIPE, text=True, **people.as_user(uid)
            )
        )
    found: list[tuple[str, float]] = []
    served = 0
    for one in started:
        out, _ = one.communicate(timeout=120)
        lines = [line.split() for line in out.splitlines()]
        served += sum(words[0] == "connected" for words in lines)
        found += [(words[0], float(words[1])) for words in lines if words[0] != "connected"]
    return tuple(found), served


_ASKER = str(Path(__file__).with_name("helper_asker.py"))
