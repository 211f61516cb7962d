"""`--node-power slurm`: the node's power as Slurm reads it, for a job that has the node for itself."""

from contextlib import closing
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.devices.node.slurm import SlurmMeter
from autocap.errors import DeviceUnavailable
from tests.doubles.slurm_stand import SlurmStand
from tests.doubles.waiting import eventually


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
