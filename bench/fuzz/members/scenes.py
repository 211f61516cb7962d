"""Two services above an emulated machine, with members of their group against them: the helper, and a budget.

A member has a job of their own on two of the GPUs, root has the others. What is taken from root's jobs is the fall of
their limits on the board below what they had before, watts.
"""

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from autocap.limits.helper.connection import Connection, HelperLost, Refused
from autocap.limits.helper.protocol import Beaten, Done, Lent, Op, Status
from autocap.plugins.fleet.budget.calling import SOCKET, call
from autocap.plugins.fleet.budget.words import Ask, Beat, Join, Known, Leave, Request, Set, Standing, encode_request
from bench.budget_faults.scene import Floor
from bench.fuzz.case import Case
from bench.fuzz.members.crowd import UIDS, Crowd, answered
from bench.helper.people import GROUP, forked
from bench.helper.served import Served
from bench.nvml_emulation import FileBoard, machine
from bench.nvml_emulation.board import PlayedJob
from bench.waiting import waited

MOST_S = 2.0  # that the owner waits
_STEP_W = 0.25
_CROWD_S, _LOOK_S, _STEADY_S, _READY_S = 20.0, 0.1, 15.0, 20.0
_WATTS, _LENT_MW = 1450.0, 200_000
_OWN = (6, 7)  # GPUs of the member's job
_CASE_S = 0.15


@dataclass(slots=True, kw_only=True)
class Scene:
    """name: of the service. cases: hostile conversations. moved_w: from another job, at most. waited_s: by the owner
    for each question; others_s: by a fourth user."""

    name: str
    cases: int = 0
    moved_w: float = 0.0
    waited_s: list[float] = field(default_factory=list)
    others_s: list[float] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def row(self) -> str:
        times = f"{len(self.waited_s):9}{1000 * median(self.waited_s):9.1f}{1000 * max(self.waited_s):9.1f}"
        return f"{self.name:12}{self.cases:7}{self.moved_w:10.2f}{times}{1000 * max(self.others_s):12.1f}"


HEAD = f"{'members':12}{'cases':>7}{'moved W':>10}{'owner':>9}{'median':>9}{'longest':>9}{'another':>12}  (ms)"


def played(cases: Sequence[Case]) -> list[Scene]:
    """Both scenes; nothing without root's rights, as there is one user only."""
    if not cases or os.geteuid() != 0:
        return []
    return [_of_helper(cases), _of_budget(cases)]


def _of_helper(cases: Sequence[Case]) -> Scene:
    scene = Scene(name="helper")
    with tempfile.TemporaryDirectory(prefix="autocap-members-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "machine").mkdir()
        FileBoard.create(folder / "machine" / "state.json", machine("quadro-rtx-6000/resnet50", gpus=2))
        with Served(folder / "helper", folder / "machine" / "state.json", supervised=False) as served:
            found_mw = served.limits_mw()
            uuid = served.board.read().machine.cards[0].uuid
            with _Lessee(served.socket, uuid) as lessee:
                with Crowd(served.socket):
                    scene.others_s = _of_another(lambda: Connection(served.socket).close())
                    scene.waited_s = answered(lambda: _ask_helper(served.socket), _CROWD_S)
                if lessee.put_back or served.limits_mw()[0] != _LENT_MW:
                    scene.complaints.append(f"a lease was harmed: its GPU is at {served.limits_mw()[0] / 1000:g} W")
            if waited(lambda: served.limits_mw() == found_mw, _READY_S) is None:
                scene.complaints.append("a limit is not back")
            scene.complaints += [line for line in served.log() if "Traceback" in line or "internal fault" in line]
    _judge(scene)
    return scene


class _Lessee:
    """Has a GPU lent, and beats twice a second, in a thread. put_back: its cap was put back meanwhile."""

    def __init__(self, path: Path, uuid: str) -> None:
        self.put_back = False
        self._over = threading.Event()
        self._connection = Connection(path, _READY_S)
        self._connection.ask(Op.LEND, Lent, devices=(uuid,), within_s=_READY_S)
        self._connection.ask(Op.SET, Done, watts=(_LENT_MW / 1000,), within_s=_READY_S)
        self._thread = threading.Thread(target=self._beat)

    def __enter__(self) -> "_Lessee":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._connection.close()

    def _beat(self) -> None:
        try:
            while not self._over.wait(0.5):
                self.put_back |= self._connection.ask(Op.BEAT, Beaten).put_back
        except (HelperLost, Refused):
            self.put_back = True


def _ask_helper(path: Path) -> None:
    with closing(Connection(path)) as root:
        root.ask(Op.STATUS, Status)


def _of_another(question: Callable[[], object]) -> list[float]:
    """What a fourth user waits, who is no owner."""
    reader, writer = os.pipe()

    def ask() -> None:
        took_s = answered(question, _CROWD_S / 4)
        os.write(writer, repr([min(one, 1e9) for one in took_s]).encode())

    pid = forked(UIDS[-1] + 1, ask)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return [float(word) for word in text.strip("[]").split(", ")]


def _of_budget(cases: Sequence[Case]) -> Scene:
    scene = Scene(name="budget", cases=len(cases))
    with tempfile.TemporaryDirectory(prefix="autocap-members-") as name, Floor(Path(name) / "floor") as floor:
        for folder in (Path(name), floor.folder):
            folder.chmod(0o755)
        floor.start_jobs(3)
        own = forked(UIDS[0], signal.pause)
        try:
            start_s = floor.board.now_s()
            job = PlayedJob(gpus=_OWN, pid=own, start_s=start_s, profile="quadro-rtx-6000/vgg19")
            floor.board.update(lambda state: state.with_job(job))
            floor.start_budget(_WATTS)
            socket = floor.state_dir / SOCKET
            floor.state_dir.chmod(0o711)
            os.chown(socket, 0, GROUP)
            floor.until(lambda: floor.joined() == 4, "all jobs have joined")
            uuids = [card.uuid for card in floor.board.read().machine.cards]
            time.sleep(_STEADY_S)
            before = _lowest(floor, _STEADY_S)
            pids = [own, *(player.pid for player in floor.players), 1, 2**22]
            playing = [
                forked(uid, partial(_attack, cases[number :: len(UIDS)], socket, uuids, pids, uid))
                for number, uid in enumerate(UIDS)
            ]
            lowest = _lowest(floor, len(cases) / len(UIDS) * _CASE_S + 5.0)
            with Crowd(socket):
                scene.waited_s = answered(lambda: _ask_budget(socket), _CROWD_S)
                scene.others_s = _of_another(lambda: _ask_budget(socket))
                lowest = [min(pair) for pair in zip(lowest, _lowest(floor, 2.0), strict=True)]
            for pid in playing:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            scene.moved_w = max(0.0, *(was_w - now_w for was_w, now_w in zip(before, lowest, strict=True)))
            floor.end()
            if not floor.are_back():
                scene.complaints.append("a limit is not back")
            scene.complaints += [line for line in floor.said() if "Traceback" in line or "internal fault" in line]
        finally:
            os.kill(own, signal.SIGKILL)
            os.waitpid(own, 0)
    _judge(scene)
    return scene


def _ask_budget(path: Path) -> Standing:
    with closing(call([path])) as there:
        return there.ask(Ask(), Standing)


def _lowest(floor: Floor, for_s: float) -> list[float]:
    """The lowest limits of root's GPUs in that time, watts."""
    found: list[float] = []
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        limits_w = [limit_mw / 1000 for limit_mw in floor.limits_mw()[: _OWN[0]]]
        found = [min(pair) for pair in zip(found or limits_w, limits_w, strict=True)]
        time.sleep(_LOOK_S)
    return found


def _attack(cases: Sequence[Case], path: Path, uuids: Sequence[str], pids: Sequence[int], uid: int) -> None:
    """Play conversations as a member, each for a while."""
    for case in cases:
        rng = case.random()
        try:
            with closing(call([path])) as there:
                if uid == UIDS[0] and rng.random() < 0.7:  # with the job that is theirs
                    there.post(Join(devices=tuple(uuids[gpu] for gpu in _OWN), pid=pids[0]))
                for _ in range(rng.randrange(1, 12)):
                    there.post(_word(rng, uuids, pids))
                    there.drain(0.02)
                if rng.random() < 0.2:
                    there._socket.sendall(encode_request(1, Beat())[: rng.randrange(1, 20)] + rng.randbytes(30))
                time.sleep(rng.random() * _CASE_S)
        except Exception:  # noqa: BLE001 - refused, as it should be
            continue


def _word(rng: random.Random, uuids: Sequence[str], pids: Sequence[int]) -> Request:
    match rng.randrange(6):
        case 0:
            return Join(devices=tuple(rng.sample(list(uuids), rng.randrange(1, 5))), pid=rng.choice(pids))
        case 1:
            return Set(watts=tuple(rng.choice((100.0, 150.0, 260.0, 900.0, -1.0)) for _ in range(rng.randrange(1, 5))))
        case 2 | 3:
            return _lie(rng)
        case 4:
            return Leave()
        case _:
            return Beat()


def _lie(rng: random.Random) -> Known:
    """A curve; its errors are small, so that nothing is lent for a baseline."""
    top_w = rng.choice((150.0, 240.0, 260.0, 880.0, 5000.0))
    caps_w = sorted({rng.uniform(50.0, top_w) for _ in range(rng.randrange(1, 8))} | {top_w})
    steep = rng.choice((0.0, 0.3, 1.0, 10.0, 1e5))
    slowdown = tuple(steep * (top_w - cap_w) / top_w - rng.choice((0.0, 0.0, 0.5)) for cap_w in caps_w)
    energy = tuple(rng.choice((1e-6, 1.0, 1e6)) for _ in caps_w)
    return Known(
        caps_w=tuple(caps_w), slowdown=slowdown, energy=energy, slowdown_stderr=tuple(0.001 for _ in caps_w),
        energy_stderr=tuple(0.001 for _ in caps_w),
    )  # fmt: skip


def _judge(scene: Scene) -> None:
    if scene.moved_w > _STEP_W:
        scene.complaints.append(f"{scene.moved_w:g} W were taken from another job")
    longest_s = max(scene.waited_s)
    if longest_s > MOST_S:
        scene.complaints.append(f"the owner waited {longest_s:g} s")
    if max(scene.others_s) > MOST_S:
        scene.complaints.append(f"another member waited {max(scene.others_s):g} s")
