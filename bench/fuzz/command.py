"""python -m bench fuzz: hostile clients of the helper, and what must hold whatever they say."""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from random import Random
from statistics import median, quantiles

from autocap.testing.nvml import FileBoard
from autocap.testing.nvml.board import State
from bench.common import waited
from bench.fuzz import players
from bench.fuzz.law import ARRIVALS_MW, Computing, Law, users
from bench.fuzz.speech import Case
from bench.helper.people import become
from bench.helper.served import OPEN_BOUNDS, USUAL, Served, Vitals
from bench.helper.talk import Lost, Refused, lend

_BETWEEN_S = 0.05
_LOW_MW, _HIGH_MW = 120_000, 240_000


def start(uid: int, path: str, uuid: str, log: Path, seed: int) -> int:
    """PID of a process that asks twenty times a second for this and that until SIGTERM, and then writes down the
    milliseconds of each."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with open(log, "w") as file:
                become(uid)
                stopped: list[int] = []
                signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
                json.dump(_asked(path, uuid, Random(seed), stopped), file)
            status = 0
        finally:
            os._exit(status)
    return pid


@dataclass(frozen=True, slots=True)
class Asked:
    """at_s: when, by the system's monotonic clock. taken_ms: until it was answered."""

    op: str
    at_s: float
    taken_ms: float


def read(log: Path) -> tuple[list[Asked], list[str]]:
    """What was asked, and what went wrong."""
    found = json.loads(log.read_text() or '[[], ["the witness wrote nothing"]]')
    return [Asked(*one) for one in found[0]], list(found[1])


def _asked(
    path: str, uuid: str, random: Random, stopped: Sequence[int]
) -> tuple[list[tuple[str, float, float]], list[str]]:
    taken: list[tuple[str, float, float]] = []
    wrong: list[str] = []
    try:
        talk = lend(path, [uuid])
        due_s = time.monotonic()
        while not stopped:
            due_s = max(due_s + _BETWEEN_S, time.monotonic())
            time.sleep(max(0.0, due_s - time.monotonic()))
            op = random.choice(("beat", "beat", "beat", "beat", "hello", "devices", "status", "set", "restore"))
            own = {"watts": [random.randint(_LOW_MW, _HIGH_MW) / 1000]} if op == "set" else {}
            began_s = time.monotonic()
            try:
                talk.ask(op, **own)
            except Refused as error:
                if error.code != "too_fast":
                    raise
            taken.append((op, began_s, 1000 * (time.monotonic() - began_s)))
        talk.ask("give_back")
        talk.close()
    except (Lost, Refused, OSError) as error:
        wrong.append(f"the well-behaved client: {type(error).__name__}: {error}")
    return taken, wrong


CASES_A_ROUND = 500
_PLAYERS = 10
_LOOK_S = 0.25
_GROWTH_MB = 4.0  # of resident memory from a tenth of the cases on
_BACK_S = 3.0
_READY_S = 20.0
_PATIENCE_S = 900.0
_REFUSES_S = 0.03
_ALONE_S = 4.0
_WARM = 0.1  # of the cases
USUAL_BOUNDS = "usual bounds"
COLUMNS = ("crashes", "leaks", "outside", "left", "wrong")


@dataclass(slots=True, kw_only=True)
class Round:
    """circumstances: in words. complaints: by column, each with the case that repeats it where that is known. taken:
    what the well-behaved client asked, and milliseconds; alone: before the others came. sets: limits that were
    requested. peak_mb: of the helper; growth_mb: from a tenth of the cases to the end."""

    circumstances: str
    cases: int = 0
    messages: int = 0
    seconds: float = 0.0
    sets: int = 0
    peak_mb: float = 0.0
    growth_mb: float = 0.0
    taken: list[tuple[str, float]] = field(default_factory=list)
    alone: list[tuple[str, float]] = field(default_factory=list)
    complaints: list[tuple[str, str]] = field(default_factory=list)

    def complain(self, column: str, text: str) -> None:
        self.complaints.append((column, text))


def play(cases: Sequence[Case]) -> Iterator[Round]:
    """One round after the other: in each a helper is served, hostile clients play, one behaves well, and what must hold
    is looked at all the while and at the end. A case meets the same circumstances whichever are played beside it."""
    for number, group in groupby(cases, key=lambda case: case.index // CASES_A_ROUND):
        own = list(group)
        with tempfile.TemporaryDirectory(prefix="autocap-fuzz-") as name:
            Path(name).chmod(0o755)
            yield _played(own, number, Path(name))


def _played(cases: Sequence[Case], number: int, folder: Path) -> Round:
    with_policy, usual = number % 4 < 2, number % 2 == 1
    words = f"{'a policy' if with_policy else 'no policy'}, {USUAL_BOUNDS if usual else 'open bounds'}"
    result = Round(circumstances=words, cases=len(cases))
    with Computing(users()) as computing:
        law = computing.law(with_policy)
        (folder / "machine").mkdir()
        FileBoard.create(folder / "machine" / "state.json", law.machine)
        served = Served(
            folder / "helper",
            folder / "machine" / "state.json",
            policy=law.policy,
            command=USUAL if usual else OPEN_BOUNDS,
            supervised=False,
        )
        with served:
            before = _ready(served)
            _Round(served, law, result, folder).run(cases, before)
    return result


def _ready(served: Served) -> Vitals:
    """Once it has answered somebody, who has gone."""
    from bench.helper.talk import Talk

    talk = Talk(str(served.socket), _READY_S)
    talk.ask("devices")
    talk.close()
    waited(lambda: served.vitals().threads == 1, _READY_S)
    return served.vitals()


class _Round:
    def __init__(self, served: Served, law: Law, result: Round, folder: Path) -> None:
        self._served, self._law, self._result, self._folder = served, law, result, folder
        self._warm_mb: float | None = None
        self._seen: set[tuple[float, int]] = set()  # changes of limits

    def run(self, cases: Sequence[Case], before: Vitals) -> None:
        path, people = str(self._served.socket), self._law.users
        door = players.Door(path=path, refuses_s=_REFUSES_S if USUAL_BOUNDS in self._result.circumstances else 0.0)
        good = start(people.witness, path, self._law.uuids[7], self._folder / "witness", cases[0].index)
        time.sleep(_ALONE_S)
        begun_s = time.monotonic()
        logs = {number: self._folder / f"player-{number}" for number in range(_PLAYERS)}
        pids = []
        for number, log in logs.items():
            uid = people.hostile[number % len(people.hostile)]
            pids.append(players.start(cases[number::_PLAYERS], uid, self._law, door, log))
        self._watch(pids, len(cases), list(logs.values()))
        os.kill(good, signal.SIGTERM)
        os.waitpid(good, 0)
        self._result.seconds = time.monotonic() - begun_s
        asked, wrong = read(self._folder / "witness")
        self._result.alone = [(one.op, one.taken_ms) for one in asked if one.at_s < begun_s]
        self._result.taken = [(one.op, one.taken_ms) for one in asked if one.at_s >= begun_s]
        for text in wrong:
            self._result.complain("wrong", text)
        self._told(cases, list(logs.values()))
        self._at_the_end(before)

    def _watch(self, pids: list[int], count: int, logs: Sequence[Path]) -> None:
        """While they play."""
        deadline_s = time.monotonic() + _PATIENCE_S
        running = list(pids)
        while running:
            time.sleep(_LOOK_S)
            running = [pid for pid in running if os.waitpid(pid, os.WNOHANG) == (0, 0)]
            if not self._look(sum(log.read_bytes().count(b"\n") for log in logs if log.exists()) / count):
                break
            if time.monotonic() > deadline_s:
                self._result.complain("wrong", f"the cases were not played within {_PATIENCE_S:g} s")
                break
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _look(self, share: float) -> bool:
        """Whether the helper lives; and what it has done meanwhile."""
        self._take_changes()
        try:
            vitals = self._served.vitals()
        except OSError:
            self._result.complain("crashes", "the helper has died: " + " / ".join(self._served.log()[-3:]))
            return False
        self._result.peak_mb = max(self._result.peak_mb, vitals.rss_mb)
        if share >= _WARM and self._warm_mb is None:
            self._warm_mb = vitals.rss_mb
        return True

    def _take_changes(self) -> None:
        """Look at what was requested since the last time, and have the machine forget it: it would grow for ever."""
        taken: list[State] = []

        def forget(state: State) -> State:
            taken.append(state)
            now_s = self._served.board.now_s()
            last = {one.gpu: one for one in state.changes if one.t_s < now_s}
            later = [one for one in state.changes if one.t_s >= now_s]
            kept = sorted((*last.values(), *later), key=lambda one: one.t_s)
            return replace(state, changes=tuple(kept))

        if len(self._served.board.read().changes) > 2 * len(ARRIVALS_MW):
            self._served.board.update(forget)
        else:
            taken.append(self._served.board.read())
        for one in taken[-1].changes:
            if (one.t_s, one.gpu) in self._seen:
                continue
            self._seen.add((one.t_s, one.gpu))
            self._result.sets += 1
            complaint = self._law.complaint(one.gpu, one.limit_mw)
            if complaint is not None:
                self._result.complain("outside", complaint)

    def _told(self, cases: Sequence[Case], logs: Sequence[Path]) -> None:
        of = {case.index: case for case in cases}
        played = [one for log in logs for one in players.read(log)]
        self._result.messages = sum(one.messages for one in played)
        for one in played:
            for text in one.complaints:
                self._result.complain("wrong", f"{of[one.index]}: {text}")
        if len(played) < len(cases):
            self._result.complain("wrong", f"{len(cases) - len(played)} cases were not played")

    def _at_the_end(self, before: Vitals) -> None:
        """With all clients gone: everything is as it was before them."""
        served = self._served
        waited(lambda: served.limits_mw() == ARRIVALS_MW, _BACK_S)
        for gpu, (found_mw, limit_mw) in enumerate(zip(ARRIVALS_MW, served.limits_mw(), strict=True)):
            if found_mw != limit_mw:
                self._result.complain("left", f"GPU {gpu} is at {limit_mw / 1000:g} W instead of {found_mw / 1000:g} W")
        self._take_changes()
        for line in served.log():
            if "Traceback" in line or "internal fault" in line or "Error:" in line:
                self._result.complain("crashes", line)
            if not line.isprintable():
                self._result.complain("wrong", f"a line of the log is not printable: {line!r}")
        if not served.is_alive():
            return
        waited(lambda: served.vitals().threads <= before.threads and not served.vitals().watchdogs, _BACK_S)
        after = served.vitals()
        self._result.growth_mb = after.rss_mb - (self._warm_mb or after.rss_mb)
        counts = (
            ("descriptors", before.descriptors, after.descriptors),
            ("threads", before.threads, after.threads),
            ("watchdogs", 0, len(after.watchdogs)),
        )
        for name, was, number in counts:
            if number > was:
                self._result.complain("leaks", f"{number} {name}, {was} before the first client")
        if self._result.growth_mb > _GROWTH_MB:
            self._result.complain("leaks", f"{self._result.growth_mb:.1f} MB more than after the first cases")
        left = sorted(path.name for path in served.state_dir.glob("*.json"))
        if left:
            self._result.complain("left", f"the journal holds {', '.join(left)}")


_WANTED_MS = 50.0


def complaints(rounds: Sequence[Round]) -> list[tuple[str, str]]:
    return [(column, f"{one.circumstances}: {text}") for one in rounds for column, text in one.complaints]


def table(rounds: Sequence[Round]) -> Iterator[str]:
    """A row for each kind of circumstances, and one of all; then how long a client that behaves well waited."""
    yield f"{'helper':26}{'cases':>7}{'messages':>10}{'a second':>10}{'sets':>7}" + "".join(
        f"{name:>9}" for name in COLUMNS
    ) + f"{'peak':>9}{'growth':>9}"  # fmt: skip
    kinds = {one.circumstances: [each for each in rounds if each.circumstances == one.circumstances] for one in rounds}
    rows = {**kinds, **({"all": list(rounds)} if len(kinds) > 1 else {})}
    for name, group in rows.items():
        messages, seconds = sum(one.messages for one in group), sum(one.seconds for one in group)
        counts = [sum(column == each for one in group for each, _ in one.complaints) for column in COLUMNS]
        yield (
            f"{name:26}{sum(one.cases for one in group):7}{messages:10}{messages / max(seconds, 1e-9):10.0f}"
            f"{sum(one.sets for one in group):7}" + "".join(f"{count:9}" for count in counts)
            + f"{max(one.peak_mb for one in group):6.1f} MB{max(one.growth_mb for one in group):6.1f} MB"
        )  # fmt: skip
    yield ""
    yield f"{'a client that behaves well, ms':34}{'requests':>10}{'median':>9}{'p99':>9}{'longest':>9}"
    for name, group in rows.items():
        for words, taken in (
            (f"{name}: before", [one for each in group for one in each.alone]),
            (f"{name}: beside", [one for each in group for one in each.taken]),
        ):
            if taken:
                yield _times(words, [ms for _, ms in taken])


def p99(values: Sequence[float]) -> float:
    """What one in a hundred of them exceeds."""
    return quantiles(values, n=100)[-1] if len(values) > 1 else max(values)


def _times(words: str, taken_ms: Sequence[float]) -> str:
    p99_ms = p99(taken_ms)
    much = f"  p99 is more than the {_WANTED_MS:g} ms that are wanted" if p99_ms > _WANTED_MS else ""
    return f"{words:34}{len(taken_ms):10}{median(taken_ms):9.1f}{p99_ms:9.1f}{max(taken_ms):9.1f}{much}"


def main(argv: Sequence[str]) -> int:
    """Play the cases and print the tables; 1 where something gave way."""
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, metavar="N", help="conversations (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of all of them (default: 0)")
    parser.add_argument("--case", type=int, metavar="I", help="only the one of this number")
    args = parser.parse_args(argv)
    if args.cases < 1:
        parser.error("--cases is at least 1")
    began_s = time.monotonic()
    cases = [Case(args.seed, index) for index in (range(args.cases) if args.case is None else [args.case])]
    try:
        clients = list(play(cases))
    except KeyboardInterrupt:
        print("bench fuzz: interrupted", file=sys.stderr)
        return 130
    print("\n".join(table(clients)))
    print(f"{len(cases)} cases, seed {args.seed}, {time.monotonic() - began_s:.0f} s")
    for column, complaint in complaints(clients):
        print(f"{column}: {complaint[:400]}")
    return int(bool(complaints(clients)))
