"""Jobs whose limits zeusd sets: it puts nothing back, so the guardian, its watchdog and `autocap restore` do, by it."""

import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.testing.nvml import Limits
from tests.cli.test_gpu_jobs import Node, alike
from tests.doubles import warm
from tests.doubles.waiting import eventually
from tests.doubles.zeusd_stand import ZeusdStand, serving

# A controller that holds a cap until it is ended, without the seconds of a baseline.
HOLDER = """
import sys, time
from autocap.devices import outside_limits
from autocap.limits import Guardian
from autocap.records import CapRange, GpuInfo
kind, uuid = sys.argv[1:]
gpu = GpuInfo(index=0, uuid=uuid, name="GPU", cap_range=CapRange(min_w=100.0, max_w=260.0, default_w=260.0))
with Guardian(kind=kind, gpus=[gpu], limits=outside_limits(kind, None), job=None) as guardian:
    guardian.set_caps([150.0])
    while True:
        time.sleep(0.3)
        guardian.beat()
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = alike(2)
    refused = [replace(card, limits=Limits.REFUSED) for card in made.cards]  # to all but zeusd
    one = Node(tmp_path, replace(made, cards=tuple(refused)))
    one.env["ZEUSD_SOCK_PATH"] = str(tmp_path / "zeusd.sock")
    yield one
    one.end()


@pytest.fixture
def zeusd(node: Node) -> ZeusdStand:
    return ZeusdStand(pci={0: "0000:3b:00.0", 1: "0000:1b:00.0"}, set_mw=lambda id, mw: node.board.request(1 - id, mw))


def hold(node: Node) -> warm.WarmProcess:
    kind, uuid = f"zeusd:{node.folder / 'zeusd.sock'}", node.board.read().machine.cards[0].uuid
    node.jobs.append(warm.start([sys.executable, "-c", HOLDER, kind, uuid], env=node.env, start_new_session=True))
    eventually(lambda: node.limits_mw()[0] == 150_000)
    return node.jobs[-1]


@pytest.mark.slow
def test_a_sweep_sets_its_caps_through_zeusd_and_says_so(node, zeusd) -> None:
    with serving(zeusd, node.folder / "zeusd.sock"):
        done = node(
            *("sweep", "--via", "zeusd", "--gpus", "0", "--caps", "150", "--repeats", "1", "--no-warm-up"),
            *("--cool-down", "0", "--out", "run", "--", "sh", "-c", "sleep 0.4"),
        )
    assert done.returncode == 0, done.stderr
    assert f"autocap: limits are set by zeusd at {node.folder / 'zeusd.sock'}\n" in done.stderr
    assert [event["name"] for event in node.events("actuator_chosen")] == ["zeusd"]
    assert 150_000 in {change.limit_mw for change in node.board.read().changes if change.gpu == 0}
    assert {change.gpu for change in node.board.read().changes} == {0}
    assert node.limits_mw() == node.arrival_mw
    assert node.leftovers() == []


def test_after_sigkill_the_watchdog_puts_the_limit_back_through_zeusd(node, zeusd) -> None:
    with serving(zeusd, node.folder / "zeusd.sock"):
        hold(node).kill()
        eventually(lambda: node.limits_mw() == node.arrival_mw, 5.0)
        eventually(lambda: node.leftovers() == [], 5.0)


def test_with_zeusd_dead_as_well_the_journal_stays_and_the_limit_is_put_back_once_it_lives(node, zeusd) -> None:
    with serving(zeusd, node.folder / "zeusd.sock"):
        holder = hold(node)
    (node.folder / "zeusd.sock").unlink()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    would = node("restore")
    assert would.returncode == 1
    assert "250.123 W could not be put back" in would.stdout or "is in use" in would.stdout
    assert node.limits_mw()[0] == 150_000
    with serving(zeusd, node.folder / "zeusd.sock"):
        eventually(lambda: node.limits_mw() == node.arrival_mw, 5.0)
        eventually(lambda: node.leftovers() == [], 5.0)
