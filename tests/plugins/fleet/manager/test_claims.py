"""Who may tune which job of a budget: with real processes of several users, and the GPUs in virtual time."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autocap.errors import DeviceLocked, LimitRefused
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.shares import prior
from autocap.plugins.fleet.manager.allocation import Allocation
from autocap.plugins.fleet.manager.finding import Claim, Claims, FoundJob, NoClaim, claimed, jobs_of
from autocap.wire.who import Peer
from bench.helper import people
from tests.plugins.fleet.manager.stage import TICK_S, Stage, stage

ALICE, MALLORY = people.USER, people.USER + 1
LOW_W = 100.0

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can start processes of several users")


@dataclass
class Site:
    """listed: what the driver lists, by GPU."""

    stage: Stage
    listed: dict[int, list[int]] = field(default_factory=dict)
    started: list[int] = field(default_factory=list)

    def process(self, uid: int) -> int:
        """Another process, which leads a session of its own."""
        self.started.append(people.forked(uid, self._live))
        while os.getsid(self.started[-1]) != self.started[-1]:
            time.sleep(0.001)
        return self.started[-1]

    @staticmethod
    def _live() -> None:
        os.setsid()
        signal.pause()

    def end(self, pid: int) -> None:
        self.started.remove(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def pids(self, uuid: str) -> tuple[int, ...]:
        return next(tuple(pids) for gpu, pids in self.listed.items() if self.stage.uuids(gpu) == (uuid,))

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.stage.jobs[:] = jobs_of({self.stage.uuids(gpu)[0]: pids for gpu, pids in self.listed.items()})
            self.stage.run(TICK_S)

    def join(self, uid: int, pid: int, *gpus: int, peer: Peer | None = None) -> Allocation:
        """A tuner of a user comes for the job of a process."""
        claim = claimed(peer or Peer(uid=uid, pid=pid, groups=()), pid, trusted=uid == 0)
        return self.stage.enforcer.lend(self.stage.now_s, FoundJob(pid=pid, uuids=self.stage.uuids(*gpus)), claim)

    def rows(self) -> list[tuple[str, int | None, bool]]:
        allocations = self.stage.enforcer.allocations.values()
        return [(one.name, one.pid, one.tuned) for one in allocations if not one.free]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with stage(tmp_path, 800.0) as there:
        made = Site(there, {gpu: [] for gpu in range(4)})
        there.enforcer.presence = Claims(made.pids).look
        try:
            yield made
        finally:
            for pid in list(made.started):
                made.end(pid)


@pytest.mark.slow
def test_nobody_registers_another_ones_gpu_with_a_process_of_their_own(site: Site) -> None:
    theirs, own = site.process(ALICE), site.process(MALLORY)
    site.listed[0] = [theirs]
    site.run(3.0)
    before = site.rows()
    with pytest.raises(NoClaim, match=f"process {theirs} is not user {MALLORY}'s"):
        site.join(MALLORY, theirs, 0)
    with pytest.raises(LimitRefused, match=f"GPU 0: process {theirs} of user {ALICE} computes on it"):
        site.join(MALLORY, own, 0)
    site.listed[1] = [own]
    with pytest.raises(LimitRefused, match="does not lend GPU 0"):
        site.join(MALLORY, own, 1, 0)
    assert site.rows() == before
    assert site.join(ALICE, theirs, 0).tuned


def test_a_process_beside_a_job_of_another_user_makes_nobody_its_tuner(site: Site) -> None:
    theirs, own = site.process(ALICE), site.process(MALLORY)
    site.listed[0] = [theirs, own]
    for uid, pid in ((MALLORY, own), (ALICE, theirs)):
        with pytest.raises(LimitRefused, match="computes on it"):
            site.join(uid, pid, 0)
    assert site.join(0, theirs, 0).tuned  # root may tune what others share


@pytest.mark.slow
def test_somebody_who_comes_to_compute_beside_ends_the_tuning(site: Site) -> None:
    theirs = site.process(ALICE)
    site.listed[0] = [theirs]
    allocation = site.join(ALICE, theirs, 0)
    site.stage.enforcer.set_caps(site.stage.now_s, allocation, [120.0])
    site.listed[0].append(site.process(MALLORY))
    site.run(0.4)
    assert not site.stage.enforcer.is_here(allocation)
    assert f"of user {MALLORY} computes on it" in allocation.ended
    site.run(2.0)
    assert [row[2] for row in site.rows()] == [False]
    assert site.stage.limits_w()[0] > 250.0


@pytest.mark.slow
def test_who_waits_for_their_job_on_an_idle_gpu_gives_way_to_whose_job_comes(site: Site) -> None:
    own = site.process(MALLORY)
    waiting = site.join(MALLORY, own, 0)
    site.stage.enforcer.learn(site.stage.now_s, waiting, prior(LOW_W, 260.0))
    site.run(3.0)
    assert site.stage.limits_w() == [LOW_W] * 4  # watts are for who computes
    theirs = site.process(ALICE)
    site.listed[0] = [theirs]
    allocation = site.join(ALICE, theirs, 0)  # before the next look
    assert not site.stage.enforcer.is_here(waiting)
    site.run(3.0)
    assert site.stage.enforcer.is_here(allocation)
    assert site.rows() == [(allocation.name, theirs, True)]
    assert str(theirs) in allocation.name


@pytest.mark.slow
def test_of_two_who_wait_the_second_is_refused(site: Site) -> None:
    site.join(MALLORY, site.process(MALLORY), 0)
    with pytest.raises(DeviceLocked):
        site.join(ALICE, site.process(ALICE), 0)


@pytest.mark.slow
def test_a_job_that_begins_under_its_tuner_gets_what_is_its_and_at_its_end_gives_it_back(site: Site) -> None:
    own = site.process(ALICE)
    allocation = site.join(ALICE, own, 0, 1)
    site.listed[0] = [own]
    site.run(3.0)
    assert site.stage.limits_w() == [LOW_W] * 4  # it may be a while until it computes on all of them
    site.listed[1] = [own]
    site.run(3.0)
    assert allocation.ceiling_w == 260.0
    site.stage.enforcer.set_caps(site.stage.now_s, allocation, [240.0, 250.0])
    assert site.stage.limits_w()[:2] == [240.0, 250.0]
    site.listed[0] = site.listed[1] = []
    site.run(3.0)
    assert site.stage.limits_w() == [LOW_W] * 4
    assert site.stage.enforcer.is_here(allocation)


@pytest.mark.slow
def test_who_names_gpus_on_which_the_job_does_not_compute_loses_all(site: Site) -> None:
    own = site.process(MALLORY)
    site.listed[0] = [own]
    allocation = site.join(MALLORY, own, 0, 1, 2, 3)
    site.run(29.0)
    assert site.stage.limits_w() == [LOW_W] * 4
    site.run(3.0)
    assert allocation.ended == "its job computes on 1 of the 4 GPUs alone that were named"
    assert site.stage.limits_w()[1:] == [LOW_W] * 3


@pytest.mark.slow
def test_workers_of_a_job_are_its_own_and_its_row_follows_them(site: Site) -> None:
    words = ["sh", "-c", "sleep 100 & sleep 100 & echo $!; wait"]
    with subprocess.Popen(words, user=ALICE, stdout=subprocess.PIPE, start_new_session=True) as shell:
        second = int(shell.stdout.readline())
        (first,) = [pid for pid in _children(shell.pid) if pid != second]
        site.listed[0] = [first, second]
        allocation = site.join(ALICE, shell.pid, 0)
        site.run(1.0)
        assert allocation.pid == shell.pid
        shell.kill()
        shell.wait()
        site.run(1.0)
        assert site.stage.enforcer.is_here(allocation)
        assert allocation.name == f"sleep {min(first, second)}"
        os.kill(first, signal.SIGKILL)
        site.listed[0] = [second]
        site.stage.enforcer.release(site.stage.now_s, allocation)
        assert _gone(first)
        site.run(1.0)
        assert site.rows() == [(f"sleep {second}", second, False)]
        assert site.stage.enforcer.weights.put(second, 2.0, [allocation.pid]) == [second]
        os.kill(second, signal.SIGKILL)
    left = [event.why for event in site.stage.said if isinstance(event, budget.JobLeft)]
    assert f"it goes on as sleep {second}" in left


@pytest.mark.slow
def test_another_job_on_the_same_gpus_is_another_row(site: Site) -> None:
    first, second = site.process(ALICE), site.process(ALICE)
    site.listed[0] = [first]
    site.run(1.0)
    site.stage.enforcer.ledger.drew(site.rows()[0][0], 120.0)
    site.end(first)
    site.listed[0] = [second]
    site.run(3.0)
    assert [row[1] for row in site.rows()] == [second]
    assert site.stage.limits_w()[0] > 250.0  # what the first one drew says nothing of it


def test_a_container_is_known_by_what_it_computes_on_whatever_number_it_names(site: Site) -> None:
    there = Peer(uid=0, pid=0, groups=(), namespace="pid:[1]")
    theirs = site.process(0)
    site.listed[0] = [theirs]
    claim = claimed(there, 1, trusted=True)
    assert claim == Claim(peer=there, trusted=False, root=None)
    with pytest.raises(LimitRefused, match="of another container computes on it"):
        site.join(0, theirs, 0, peer=there)
    with pytest.raises(LimitRefused, match="none of root's processes in their container computes on it"):
        site.join(0, theirs, 1, peer=there)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _gone(pid: int) -> bool:
    while Path(f"/proc/{pid}").exists():
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.001)
    return True
