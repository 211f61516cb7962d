"""What /proc tells: of this very machine, and of a folder that looks like it."""

import os
from pathlib import Path

from autocap.devices.nvml import job_gpus
from autocap.devices.nvml.job_gpus import ProcessFacts
from autocap.job.processes import own_identity
from tests.doubles.jobs import SLEEPING, job

STATUS = "Name:\tpython\nTgid:\t4242\nPid:\t4242\nUid:\t1000\t0\t0\t0\nNSpid:\t4242\t7\n"


def make(proc: Path, *files: str, environ: bytes = b"", status: str = STATUS) -> None:
    folder = proc / "4242"
    (folder / "fd").mkdir(parents=True)
    for number, file in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(file)
    (folder / "environ").write_bytes(environ)
    (folder / "status").write_text(status)


def test_numbers_device_files_and_variables_are_read(tmp_path: Path) -> None:
    environ = b"PATH=/bin\0CUDA_VISIBLE_DEVICES=GPU-1,GPU-2\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0"
    files = ("/dev/nvidia3", "/dev/nvidia10", "/dev/nvidiactl", "/dev/nvidia-uvm", "pipe:[12]")
    make(tmp_path, *files, environ=environ)
    assert job_gpus.of_pids([4242, 4243], tmp_path) == (
        ProcessFacts(
            ns_pids=(4242, 7),
            uid=1000,
            readable=True,
            cuda=True,
            minors=frozenset({3, 10}),
            visible="GPU-1,GPU-2",
            order="PCI_BUS_ID",
        ),
    )


def test_an_empty_variable_is_not_an_unset_one_and_an_old_kernel_without_namespaces_has_one_number(tmp_path) -> None:
    status = "Name:\tpython\nPid:\t4242\nUid:\t0\t0\t0\t0\n"
    make(tmp_path, environ=b"CUDA_VISIBLE_DEVICES=\0", status=status)
    (facts,) = job_gpus.of_pids([4242], tmp_path)
    assert (facts.visible, facts.order, facts.cuda, facts.ns_pids) == ("", None, False, (4242,))


def test_a_whole_tree_is_read_and_what_ended_is_left_out() -> None:
    with job(SLEEPING) as root:
        assert [facts.pid for facts in job_gpus.of_tree(root)] == [root.pid]
    assert job_gpus.of_tree(root) == ()


def test_of_our_own_process_everything_can_be_read() -> None:
    (own,) = [facts for facts in job_gpus.of_pids([os.getpid()]) if facts.pid == own_identity().pid]
    assert own.readable
    assert own.uid == os.getuid()
