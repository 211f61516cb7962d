"""Sessions of a user without rights, whose limits a helper sets: real processes, two users, the emulated NVML library.

Whatever ends them, limits are back to the milliwatt.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocap.testing.nvml import machine
from tests.doubles.lent_node import LentNode, lent_node, needs_two_users
from tests.doubles.waiting import eventually

pytestmark = needs_two_users

PLAYER = ("-m", "autocap.testing.nvml.player")
QUICK = ("--strategy", "fixed", "--strategy-option", "cap=150", "--target-stderr", "20%", "--trial-seconds", "20")
SWEEP = ("sweep", "--caps", "150", "--repeats", "1", "--no-warm-up", "--cool-down", "0")
# A client that holds a cap until it is ended: what a session is to the helper, without the seconds of a baseline.
HOLDER = """
import sys, time
from functools import partial
from pathlib import Path
from autocap.devices.nvml.library import open_library
from autocap.devices.nvml.limits import HeldLimits
from autocap.limits.helper.client import RemoteGuardian
from autocap.limits.helper.connection import connect
from autocap.limits.helper.protocol import socket_path
from autocap.records import CapRange, GpuInfo
library = open_library()
cap_range = CapRange(min_w=100.0, max_w=260.0, default_w=260.0)
gpus = [GpuInfo(index=gpu.index, uuid=gpu.uuid, name=gpu.name, cap_range=cap_range) for gpu in library.inventory()]
with RemoteGuardian(gpus=gpus, verifier=HeldLimits(library), connect=partial(connect, socket_path())) as guardian:
    guardian.set_caps([150.0] * len(gpus))
    while True:
        time.sleep(0.3)
        guardian.beat()
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[LentNode]:
    made = machine("quadro-rtx-6000/alexnet", gpus=2, arrivals_mw=[250_123, 249_123])
    with lent_node(made) as node:
        yield node


@pytest.fixture
def node(shared: LentNode) -> Iterator[LentNode]:
    yield shared
    shared.end()
    if shared.helper is None or shared.helper.poll() is not None:
        shared.serve()
    eventually(shared.are_back)


@pytest.fixture
def holder(node):
    """One that has set its caps."""
    started = node.start("-c", HOLDER)
    eventually(lambda: capped(node))
    return started


def capped(node: LentNode) -> bool:
    return node.limits_mw() == [150_000, 150_000]


def result(node: LentNode, out: str = "run") -> dict:
    return json.loads((node.home / out / "result.json").read_text())


def events(node: LentNode, kind: str, out: str = "run") -> list[dict]:
    file = node.home / out / "events.jsonl"
    found = map(json.loads, file.read_text().splitlines() if file.exists() else ())
    return [event for event in found if event["event"] == kind]


@pytest.mark.slow
def test_a_run_is_tuned_also_by_a_helper_that_is_killed_meanwhile_and_whoever_sets_its_limits_is_on_record(
    node,
) -> None:
    run = node.start(
        "-m", "autocap", "run", "--gpus", "0-1", "--out", "run", *QUICK, "--", sys.executable, *PLAYER, "--steps"
    )
    eventually(lambda: capped(node), 60.0)
    node.kill_helper()
    eventually(node.are_back, 5.0)
    node.serve()
    eventually(lambda: capped(node))
    # It is said at the next beat, which may come after the caps.
    stopped = "what guards its limits, was stopped for a while"
    eventually(lambda: any(stopped in event["text"] for event in events(node, "warned")))
    run.send_signal(signal.SIGTERM)
    assert run.wait(120) == 128 + signal.SIGTERM, node.said()
    assert node.are_back()
    said = [event["text"] for event in events(node, "warned")]
    assert any("the helper has ended the connection, and is back; the limits were put back" in text for text in said)
    assert not any("somebody else" in text for text in said)
    (chosen,) = events(node, "actuator_chosen")
    assert (chosen["name"], chosen["where"]) == ("helper", str(node.socket))
    assert chosen["reason"] == "setting a limit needs root or CAP_SYS_ADMIN"
    assert f"autocap: limits are set by the helper at {node.socket}, as setting a limit needs root" in node.said()
    found = result(node)["device"]["gpus"]
    assert [gpu["cap_original_w"] for gpu in found] == [gpu["cap_final_w"] for gpu in found] == [250.123, 249.123]
    assert all(gpu["restored"] for gpu in found)
    assert not list(node.home.rglob("*.lock"))  # no journal and no lock of its own


@pytest.mark.slow
def test_attached_and_killed_with_everything_of_the_users_the_limits_are_back(node) -> None:
    job = node.start(*PLAYER, out="job")
    eventually(lambda: node.board.read().job_pid)
    attached = node.start(
        "-m", "autocap", "attach", "--pid", str(job.pid), "--out", "attached", *QUICK, "--progress", "speed"
    )
    eventually(lambda: capped(node), 60.0)
    for group in (attached.pid, job.pid):
        os.killpg(group, signal.SIGKILL)
    eventually(node.are_back, 5.0)


@pytest.mark.slow
def test_a_tuned_block_of_a_script_is_tuned(node) -> None:
    script = node.home / "script.py"
    script.write_text(
        "import sys, subprocess, time, autocap\n"
        "from pathlib import Path\n"
        "log = Path('block/events.jsonl')\n"
        "with autocap.tune(gpus='0', via='helper', out='block', progress='speed', strategy='fixed', "
        "strategy_option={'cap': 150}) as run:\n"
        "    player = subprocess.Popen([sys.executable, '-m', 'autocap.testing.nvml.player'])\n"
        "    while not (log.exists() and 'actuator_chosen' in log.read_text()) and player.poll() is None:\n"
        "        time.sleep(0.1)\n"
        "    player.kill(); player.wait()\n"
        "print(run.result.ended_because)\n"
    )
    done = node.run(str(script))
    assert done.returncode == 0, done.stderr
    assert [event["name"] for event in events(node, "actuator_chosen", "block")] == ["helper"]
    assert node.are_back()


@pytest.mark.slow
def test_a_sweep_sets_each_cap_through_the_helper_and_none_above_the_limit_found(node) -> None:
    done = node.run("-m", "autocap", *SWEEP, "--gpus", "1", "--out", "sweep", "--", "sh", "-c", "sleep 0.4")
    assert done.returncode == 0, done.stderr
    assert [event["cap_w"] for event in events(node, "cap_set", "sweep")].count([150.0]) == 1
    assert len(events(node, "actuator_chosen", "sweep")) == 1
    assert node.are_back()
    over = node.run("-m", "autocap", *SWEEP, "--gpus", "1", "--caps", "255", "--out", "over", "--", "true")
    assert over.returncode == 1
    assert "--caps 255 W is above the 249.123 W maximum of GPU 1; pass --caps 249.123 or less" in over.stderr


def test_when_helper_and_client_are_killed_at_once_limits_are_back(node, holder) -> None:
    os.killpg(holder.pid, signal.SIGKILL)
    node.kill_helper()
    eventually(node.are_back, 5.0)


@pytest.mark.slow
def test_a_run_whose_helper_does_not_come_back_ends_its_tuning_and_not_its_job(node) -> None:
    job = "until [ -e over ]; do sleep 0.1; done; exit 3"
    run = node.start("-m", "autocap", *SWEEP, "--gpus", "0", "--out", "left", "--", "sh", "-c", job)
    eventually(lambda: events(node, "sweep_run_started", "left"))
    node.kill_helper()
    eventually(lambda: events(node, "warned", "left"), 60.0)
    (node.home / "over").touch()
    assert run.wait(120) == 1
    (ended,) = events(node, "sweep_run_ended", "left")
    assert ended["finished"]["exit_status"] == 3
    assert any(
        "the helper has ended the connection, and is not back within 5 s (nobody listens at" in event["text"]
        for event in events(node, "warned", "left")
    )
    assert node.are_back()


@pytest.mark.slow
def test_a_second_user_of_a_gpu_is_told_whose_it_is(node, holder) -> None:
    done = node.run("-m", "autocap", *SWEEP, "--gpus", "0", "--out", "second", "--", "true")
    assert done.returncode == 1
    assert f"the helper has lent GPU 0 to nobody (PID {holder.pid}); wait for that run, or have it end" in done.stderr
    shown = node.run("-m", "autocap", "devices").stdout
    assert f"PID {holder.pid} of user 65534 has it now" in shown


@pytest.mark.slow
def test_what_the_helper_does_not_allow_is_refused_before_the_job_starts_with_its_reason(node) -> None:
    policy = Path(node.state) / "policy.d"
    policy.mkdir(mode=0o755)
    try:
        (policy / "others.toml").write_text('version = 1\n[[rule]]\nusers = ["root"]\ndevices = ["*"]\ngiven = true\n')
        found = json.loads(node.run("-m", "autocap", "devices", "--json").stdout)["gpus"][0]
        assert found["settable"] is False
        assert [one["name"] for one in found["setters"]] == ["direct", "helper", "zeusd"]
        assert "it was given to root by" in found["setters"][1]["why"]
        done = node.run("-m", "autocap", *SWEEP, "--gpus", "0", "--via", "helper", "--out", "no", "--", "true")
        assert done.returncode == 1
        assert "the helper does not lend GPU 0: it was given to root by" in done.stderr
        done = node.run("-m", "autocap", *SWEEP, "--gpus", "0", "--out", "no", "--", "true")
        assert done.returncode == 1
        assert "autocap: the helper does not lend GPU 0: it was given to root by" in done.stderr
        assert "sudo" not in done.stderr  # which is no way round a policy
        assert not (node.home / "no").exists()
    finally:
        for file in policy.iterdir():
            file.unlink()
        policy.rmdir()


@pytest.mark.slow
def test_an_setter_that_is_not_there_is_refused_before_the_job_starts(node) -> None:
    marker = node.home / "started"
    done = node.run(
        *("-m", "autocap", "run", "--via", "helper", "--", "touch", str(marker)), AUTOCAP_HELPER="/nowhere/sock"
    )
    assert done.returncode == 1
    assert "autocap: no helper serves /nowhere/sock; an administrator sets one up with" in done.stderr
    assert not marker.exists()
