"""Sources of the machine's power: what they read, hold, and refuse to take for data.

`--node-power slurm`: the node's power as Slurm reads it, for a job that has the node for itself.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autocap.clock import Clock, MonotonicClock, VirtualClock
from autocap.devices.node import open_source
from autocap.devices.node.asked import HeldPower, watts
from autocap.devices.node.meters import CommandMeter, IpmiMeter, RaplPower, SlurmMeter
from autocap.devices.powercap import Sysfs
from autocap.errors import DeviceUnavailable
from autocap.job.processes import identify
from autocap.records import NodeReading
from tests.doubles.jobs import state
from tests.doubles.rapl_tree import RANGE_UJ, RaplTree
from tests.doubles.slurm_stand import SlurmStand
from tests.doubles.waiting import eventually

ANSWER = """
    Instantaneous power reading:                   {} Watts
    Minimum during sampling period:                 10 Watts
    Average power reading over sample period:      300 Watts
    Power reading state is:                   activated
"""


def test_a_line_is_a_power_with_or_without_its_unit_and_what_is_none_above_zero_is_not() -> None:
    assert [watts(text) for text in ("220", " 2.2e2 W\n", "220 Watts", "220.")] == [220.0] * 4
    odd = ("", "0", "0.0 W", "-5", "nan", "inf", "P", "1_000", "12 34", "1e9", "230 V", "0x20")
    assert {text: watts(text) for text in odd} == dict.fromkeys(odd)


def test_a_reading_is_held_under_its_own_stamp_until_the_next() -> None:
    held = HeldPower("the meter", 1.0)
    held.put(10.0, 500.0)
    assert held.at(10.7) == NodeReading(t_s=10.0, power_w=500.0, whole=True)
    held.put(11.0, 510.0)
    assert held.at(11.5) == NodeReading(t_s=11.0, power_w=510.0, whole=True)


def test_a_meter_that_says_nothing_for_long_is_a_gap_with_one_warning_until_it_speaks_again() -> None:
    held = HeldPower("the meter", 1.0)
    held.put(10.0, 500.0)
    assert held.at(14.9).power_w == 500.0
    assert held.at(15.1).power_w is None
    assert held.at(16.0).power_w is None
    assert held.notes() == (
        "the meter has said nothing for 5 s; until it tells the node's power again nothing is measured",
    )
    held.put(17.0, 500.0)
    assert held.at(17.1).power_w == 500.0
    assert held.notes() == ()


def test_a_value_that_comes_again_too_soon_is_the_old_reading() -> None:
    held = HeldPower("ipmitool", 1.0)
    stamps = []
    for second in range(20):  # asked every second, but it looks every five
        held.put(float(second), 400.0 + second // 5)
        stamps.append(held.at(float(second)).t_s)
    assert stamps[10:] == [10.0] * 5 + [15.0] * 5
    assert held.refresh_s == pytest.approx(5.0)


@pytest.mark.parametrize(("every_s", "count"), [(1.0, 20), (0.1, 4)])  # as asked for, and quicker than it need be
def test_a_steady_machine_has_fresh_readings_from_the_start(every_s: float, count: int) -> None:
    held = HeldPower("the meter", 1.0)
    stamps = []
    for tick in range(count):
        held.put(every_s * tick, 400.0)
        stamps.append(held.at(every_s * tick).t_s)
    assert stamps == [pytest.approx(every_s * tick) for tick in range(count)]


@pytest.fixture
def meter() -> Iterator[Callable[[str], CommandMeter]]:
    started = []

    def start(command: str) -> CommandMeter:
        started.append(CommandMeter(command, MonotonicClock()))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_a_meter_has_its_first_reading_at_once_and_is_of_the_whole_node(meter: Callable[[str], CommandMeter]) -> None:
    one = meter("echo P; echo 523.5; exec sleep 60")  # a heading is no fault
    assert one.read().power_w == 523.5
    assert one.whole
    assert one.notes() == ()


def test_lines_that_came_together_are_averaged_and_the_last_says_whether_there_is_a_power(meter) -> None:
    one = meter("echo 100; read _ < /dev/null; sleep 0.05; printf '200\\n300\\n'; exec sleep 60")
    eventually(lambda: one.read().power_w == 250.0)


def test_rubbish_is_a_gap_and_never_data(meter: Callable[[str], CommandMeter]) -> None:
    one = meter("echo 100; sleep 0.05; echo overload; exec sleep 60")
    eventually(lambda: one.read().power_w is None)
    assert one.notes()[0].endswith(
        "says 'overload', which is no power in watts above 0; until it tells the node's power again nothing is measured"
    )


def test_a_meter_that_dies_is_a_gap_for_good_with_its_last_words(meter: Callable[[str], CommandMeter]) -> None:
    one = meter("echo 100; sleep 0.05; echo 'bus error' >&2; exit 3")
    eventually(lambda: one.read().power_w is None)
    assert "has ended with status 3: bus error" in one.notes()[0]
    assert one.read().power_w is None
    assert one.notes() == ()


@pytest.mark.parametrize(
    ("meter", "said"),
    [
        (lambda _: CommandMeter("exit 7", MonotonicClock()), "it ended with status 7 before its first reading"),
        (
            lambda _: CommandMeter("no-such-meter", MonotonicClock()),
            r"it ended with status 127: .*not found before its first reading",
        ),
        (
            lambda _: CommandMeter("echo nothing here", MonotonicClock()),
            r"before its first reading \(the meter `echo nothing here` says 'nothing here'",
        ),
        (
            lambda tmp: IpmiMeter(VirtualClock(), ipmitool(tmp, "echo 'Could not open device' >&2; exit 1")),
            r"status 1 and told no power \(Could not open device\); it needs root",
        ),
        (
            lambda tmp: IpmiMeter(VirtualClock(), ipmitool(tmp, "echo 'Power reading state is: deactivated'")),
            "ended with status 0 and told no power; it needs root",
        ),
        (
            lambda _: IpmiMeter(VirtualClock(), ("no-such-ipmitool",)),
            "there is no ipmitool; install it, or choose another source",
        ),
        (lambda tmp: RaplPower(VirtualClock(), Sysfs(tmp)), r"^--node-power rapl: no CPU package"),
    ],
)
def test_a_meter_that_gives_no_power_is_refused_before_the_job_starts(tmp_path: Path, meter, said: str) -> None:
    with pytest.raises(DeviceUnavailable, match=said):
        meter(tmp_path)


def runs(pid: int) -> bool:
    identity = identify(pid)
    with contextlib.suppress(FileNotFoundError):
        return identity is not None and state(identity) != "Z"
    return False


@pytest.mark.slow
def test_closing_ends_the_meter_and_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    one = CommandMeter(f"sh -c 'trap : TERM; echo $$ >> {pids}; while :; do sleep 1; done' & echo $$ >> {pids}; "
                       "while :; do echo 5; sleep 0.05; done", MonotonicClock())  # fmt: skip
    eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    one.close()
    eventually(lambda: not any(runs(int(pid)) for pid in pids.read_text().split()))


Ipmi = Callable[[Clock, tuple[str, ...]], IpmiMeter]


@pytest.fixture
def ipmi() -> Iterator[Ipmi]:
    with contextlib.ExitStack() as stack:
        yield lambda clock, command: stack.enter_context(contextlib.closing(IpmiMeter(clock, command)))


def ipmitool(folder: Path, script: str) -> tuple[str, ...]:
    """A program that plays ipmitool."""
    path = folder / "ipmitool"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return (str(path), "dcmi", "power", "reading")


@pytest.mark.slow
def test_ipmi_reads_the_instantaneous_power_of_the_whole_node(tmp_path: Path, ipmi: Ipmi) -> None:
    one = ipmi(VirtualClock(), ipmitool(tmp_path, f"echo '{ANSWER.format(412)}'"))
    assert (one.whole, one.read().power_w) == (True, 412.0)


@pytest.mark.slow
def test_ipmi_asks_anew_after_a_second_without_being_waited_for(tmp_path: Path, ipmi: Ipmi) -> None:
    (tmp_path / "power").write_text("100")
    clock = VirtualClock()
    answer = f"echo 'Instantaneous power reading: '$(cat {tmp_path}/power)"
    one = ipmi(clock, ipmitool(tmp_path, f"sleep 0.1; {answer}"))
    (tmp_path / "power").write_text("200")
    clock.wait_until(1.0)
    assert one.read().power_w == 100.0  # asks, and does not wait for the answer
    eventually(lambda: one.read().power_w == 200.0)
    assert one.read().t_s == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["echo 'Instantaneous power reading: 0 Watts'", r"printf '\000x\n\000\377\n'"])
def test_an_answer_without_a_power_is_a_gap_whatever_its_bytes(tmp_path: Path, ipmi: Ipmi, answer: str) -> None:
    clock = VirtualClock()
    script = f"[ -e {tmp_path}/odd ] && {answer} || echo 'Instantaneous power reading: 100'"
    one = ipmi(clock, ipmitool(tmp_path, script))
    (tmp_path / "odd").touch()
    clock.wait_until(1.0)
    eventually(lambda: one.read().power_w is None)
    assert "which is no power in watts above 0" in one.notes()[0]


@pytest.mark.slow
def test_a_question_that_hangs_is_ended_with_all_that_it_started_and_the_next_one_is_answered(tmp_path, ipmi) -> None:
    clock, pids = VirtualClock(), tmp_path / "pids"
    hangs = f"if [ -e {tmp_path}/hang ]; then trap '' TERM; echo $$ > {pids}; sleep 60; fi; "
    one = ipmi(clock, ipmitool(tmp_path, hangs + "echo 'Instantaneous power reading: 100 Watts'"))
    (tmp_path / "hang").touch()
    clock.wait_until(1.0)
    assert one.read().power_w == 100.0
    eventually(lambda: pids.exists() and pids.read_text() != "")
    clock.wait_until(11.5)
    assert one.read().power_w is None
    assert "ipmitool says 'nothing within 10 s'" in one.notes()[0]
    assert not runs(int(pids.read_text()))
    (tmp_path / "hang").unlink()
    clock.wait_until(13.0)
    eventually(lambda: one.read().power_w == 100.0)


def test_rapl_adds_packages_and_memory_across_the_end_of_a_counter(tmp_path: Path) -> None:
    tree, clock = RaplTree(tmp_path), VirtualClock()
    zones = [tree.package(0), tree.package(1)]
    tree.put(zones[0], "energy_uj", RANGE_UJ - 10_000_000)
    one = RaplPower(clock, Sysfs(tmp_path))
    assert not one.whole
    clock.wait_until(1.0)
    for zone in zones:
        tree.use(zone, 50.0)
        tree.use(f"{zone}:1", 10.0)
    assert one.read() == NodeReading(t_s=1.0, power_w=120.0, whole=False, energy_j=120.0)


def test_a_zone_that_vanishes_is_a_gap_with_one_warning(tmp_path: Path) -> None:
    tree, clock = RaplTree(tmp_path), VirtualClock()
    zone = tree.package(0)
    one = RaplPower(clock, Sysfs(tmp_path))
    os.unlink(tree.top / zone / "energy_uj")
    clock.wait_until(1.0)
    assert one.read() == NodeReading(t_s=1.0, power_w=None, whole=False)
    assert one.read().energy_j is None
    assert len(one.notes()) == 1


def test_a_number_is_what_the_rest_of_the_machine_draws() -> None:
    one = open_source("350", VirtualClock())
    assert one.read() == NodeReading(t_s=0.0, power_w=350.0, whole=False)
    assert one.name == "350 W"


@pytest.fixture
def slurm(tmp_path: Path) -> SlurmStand:
    return SlurmStand(tmp_path)


def test_the_nodes_power_is_asked_for_at_most_every_five_seconds_and_zero_is_a_gap(slurm: SlurmStand) -> None:
    clock = VirtualClock()
    with closing(SlurmMeter(clock, slurm.environ)) as meter:
        assert meter.whole
        assert meter.read().power_w == 412.0
        slurm.watts("0")
        clock.wait_until(4.9)
        assert meter.read().power_w == 412.0
        clock.wait_until(5.0)
        eventually(lambda: meter.read().power_w is None)
        assert "scontrol says 'CurrentWatts=0', which is no power" in meter.notes()[0]


@pytest.mark.slow
def test_what_is_read_by_rapl_is_beside_the_gpus_and_a_job_with_all_cpus_is_alone_there(slurm: SlurmStand) -> None:
    slurm.job("OK", cpus=8)
    with closing(SlurmMeter(VirtualClock(), slurm.environ)) as meter:
        assert meter.read().power_w == 412.0
    slurm.config("acct_gather_energy/rapl")
    with closing(SlurmMeter(VirtualClock(), slurm.environ)) as meter:
        assert meter.read().whole is False


@pytest.mark.parametrize(
    ("upset", "said"),
    [
        (lambda slurm: slurm.environ.pop("SLURMD_NODENAME"), "this is not on a node of a Slurm job"),
        (lambda slurm: slurm.config("acct_gather_energy/none"), "counts no energy here"),
        (lambda slurm: slurm.config("acct_gather_energy/gpu"), "only the GPUs' energy here"),
        (lambda slurm: slurm.config("acct_gather_energy/gpu,acct_gather_energy/rapl"), "by gpu, rapl is no whole node"),
        (lambda slurm: slurm.config(every_s=0), r"not between \(AcctGatherNodeFreq=0\); compare .* --slurm 4711"),
        (lambda slurm: slurm.job("OK", cpus=4), "job 4711 had 4 of its nodes' 8 CPUs, and others"),
        (lambda slurm: slurm.job("YES"), "job 4711 lets others have its CPUs as well; submit it with --exclusive"),
        (lambda slurm: slurm.watts("n/s"), "told no power; Slurm knows no power of node1, or choose another source"),
        (lambda slurm: slurm.environ.update(PATH="/nowhere"), "there is no scontrol on PATH"),
        (lambda slurm: slurm.fail("config", "error: x\nno controller"), "cannot be asked: no controller; try"),
    ],
)  # fmt: skip
def test_where_slurm_does_not_tell_the_power_of_this_job_alone_it_is_refused(slurm, upset, said) -> None:
    upset(slurm)
    with pytest.raises(DeviceUnavailable, match=f"^--node-power slurm: .*{said}"):
        SlurmMeter(VirtualClock(), slurm.environ)
