"""The GPUs of a real process tree, as a driver that is a double lists them.

Which GPUs a job uses, from hand-made facts: no driver, no processes.

What /proc tells: of this very machine, and of a folder that looks like it.
"""

import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from autocap.config import RunConfig, TuneConfig
from autocap.devices.inventory import named
from autocap.devices.nvml import job_gpus
from autocap.devices.nvml.job_gpus import ProcessFacts
from autocap.devices.nvml.library import NvmlGpu
from autocap.devices.nvml.source import NvmlSource
from autocap.errors import DeviceError, DeviceUnavailable
from autocap.job.processes import own_identity, tree
from autocap.metrics import Metric
from autocap.records import CapRange
from autocap.session.search_space import checker
from tests.doubles.jobs import PARENT, SLEEPING, has_a_working_child, job
from tests.doubles.waiting import eventually

CONFIG = RunConfig(command=("train",), tune=TuneConfig(metric=Metric(name="energy")))
OF_TWO = ", and of the 2 that the job may see"
RANGE = CapRange(min_w=100.0, max_w=400.0, default_w=300.0)


@dataclass(frozen=True)
class Gpu:
    index: int
    uuid: str
    cap_range: CapRange | None = RANGE
    name: str = "H100"
    minor_number: int | None = None
    mig: bool = False


@dataclass
class Driver:
    """Knows some GPUs, and who computes on them."""

    gpus: tuple[Gpu, ...] = (Gpu(0, "GPU-a"), Gpu(1, "GPU-b"))
    pids: dict[str, tuple[int, ...] | None] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    unreadable: tuple[str, ...] = ()

    def close(self) -> None:
        """Nothing is held."""

    def inventory(self) -> tuple[Gpu, ...]:
        return self.gpus

    def compute_pids(self, uuid: str) -> tuple[int, ...] | None:
        return self.pids.get(uuid, ())

    def is_busy(self, uuid: str) -> bool:
        return uuid in self.busy


def source(driver: Driver, config: RunConfig = CONFIG, *, attached: bool = False) -> NvmlSource:
    """A source that "opens" GPUs as their UUIDs."""
    return NvmlSource(config, driver, lambda uuids: uuids, checker(config.tune), attached=attached)


def test_a_job_has_no_gpus_until_it_computes_and_its_ranks_have_all_come() -> None:
    driver = Driver(gpus=(Gpu(0, "GPU-a"), Gpu(1, "GPU-b"), Gpu(2, "GPU-c")))
    with job(SLEEPING) as root, source(driver) as gpus:
        assert gpus.find(root, 0.0) is None
        driver.pids["GPU-b"] = (root.pid,)
        assert gpus.find(root, 1.0) is None
        driver.pids["GPU-a"] = (root.pid,)
        assert gpus.find(root, 4.0) is None
        assert gpus.find(root, 8.0) is None
        assert gpus.find(root, 9.0) == ("GPU-a", "GPU-b")


def test_a_job_that_computes_on_all_gpus_there_are_is_not_waited_for() -> None:
    driver = Driver()
    with job(SLEEPING) as root, source(driver) as gpus:
        driver.pids["GPU-b"] = (root.pid,)
        assert gpus.find(root, 1.0) is None
        driver.pids["GPU-a"] = (root.pid,)
        assert gpus.find(root, 1.5) == ("GPU-a", "GPU-b")


def test_where_the_driver_does_not_tell_who_computes_the_gpu_is_the_one_whose_load_began_with_the_job() -> None:
    driver = Driver(pids=dict.fromkeys(("GPU-a", "GPU-b")), busy={"GPU-a"})
    with job(SLEEPING) as root, source(driver) as gpus:
        assert gpus.find(root, 1.0) is None
        driver.busy.add("GPU-b")
        assert gpus.find(root, 2.0) is None  # it may yet come to more of them
        assert gpus.find(root, 7.0) == ("GPU-b",)


@pytest.mark.parametrize(
    ("attached", "busy", "said"),
    [
        (False, ("GPU-a", "GPU-b"), f"{OF_TWO} 2 have come into use since it began; pass --g"),
        (False, (), f"{OF_TWO} none has come into use since it began; pass --gpus"),
        (True, ("GPU-a",), "the driver does not tell who computes on the GPUs here, as in some containers; pass --g"),
    ],
)
def test_where_nothing_tells_which_gpu_a_job_uses_the_reason_is_the_true_one(attached, busy, said) -> None:
    driver = Driver(pids=dict.fromkeys(("GPU-a", "GPU-b")))
    with job(SLEEPING) as root, source(driver, attached=attached) as gpus:
        driver.busy.update(busy)
        with pytest.raises(DeviceError, match=said):
            gpus.find(root, math.inf)


def test_where_the_driver_does_not_tell_who_computes_the_only_gpu_of_a_job_is_its_own_once_it_is_loaded() -> None:
    driver = Driver(gpus=(Gpu(0, "GPU-a"),), pids={"GPU-a": None})
    with job(SLEEPING) as root, source(driver, attached=True) as gpus:
        with pytest.raises(DeviceError, match="does not tell who computes"):
            gpus.find(root, math.inf)
        driver.busy.add("GPU-a")
        assert gpus.find(root, math.inf) == ("GPU-a",)


def test_a_last_look_does_not_wait() -> None:
    driver = Driver()
    with job(SLEEPING) as root, source(driver) as gpus:
        assert gpus.find(root, math.inf) is None
        driver.pids["GPU-b"] = (root.pid,)
        assert gpus.find(root, math.inf) == ("GPU-b",)


def test_a_worker_below_the_process_is_found() -> None:
    with job(PARENT) as root:
        eventually(lambda: has_a_working_child(root))
        worker = tree(root)[1]
        with source(Driver(pids={"GPU-a": (worker.pid,)})) as gpus:
            assert gpus.find(root, math.inf) == ("GPU-a",)


def test_another_process_on_the_gpu_is_refused_unless_sharing_is_allowed() -> None:
    with job(SLEEPING) as root, job(SLEEPING) as other:
        driver = Driver(pids={"GPU-a": (root.pid, other.pid), "GPU-b": (other.pid,)})
        shared = f"GPU 0 is shared: PID {other.pid} computes on it as well.*--shared-gpu"
        with source(driver) as gpus, pytest.raises(DeviceError, match=shared):
            gpus.find(root, math.inf)
        with source(driver, replace(CONFIG, shared_gpu=True)) as gpus:
            assert gpus.find(root, math.inf) == ("GPU-a",)


def test_gpus_that_are_named_are_taken_before_the_job_computes_but_not_from_others() -> None:
    with job(SLEEPING) as root, job(SLEEPING) as other:
        driver = Driver(pids={"GPU-a": (other.pid,)})
        with source(driver, replace(CONFIG, gpus=("1",))) as gpus:
            assert gpus.find(root, 0.0) == ("GPU-b",)
        with source(driver, replace(CONFIG, gpus=("0", "1"))) as gpus, pytest.raises(DeviceError, match="GPU 0 is sha"):
            gpus.find(root, 0.0)


@pytest.mark.parametrize(
    ("driver", "change", "message"),
    [
        (Driver(gpus=()), {}, "the NVIDIA driver shows no GPU here"),
        (Driver(), {"gpus": ("2",)}, r"--gpus 2 is not there; this machine has 0 \(GPU-a\), 1 \(GPU-b\)"),
        (Driver(), {"tune": replace(CONFIG.tune, max_cap_w=500.0)}, "--max-cap 500 W is above the 400 W maximum"),
    ],
    ids=["no gpu", "no such gpu", "no such cap"],
)
def test_what_no_job_could_change_is_refused_before_it_starts(driver, change, message) -> None:
    with pytest.raises(DeviceUnavailable if "cap" not in message else DeviceError, match=message):
        source(driver, replace(CONFIG, **change))


def test_a_cap_that_only_some_gpus_take_is_not_refused_before_it_is_known_which_the_job_uses() -> None:
    driver = Driver(gpus=(Gpu(0, "GPU-a"), Gpu(1, "GPU-b", cap_range=replace(RANGE, max_w=700.0))))
    source(driver, replace(CONFIG, tune=replace(CONFIG.tune, max_cap_w=500.0)))


def test_before_a_job_those_that_are_named_are_opened_and_else_what_cuda_is_shown_or_the_only_one() -> None:
    named = replace(CONFIG, gpus=("1",))
    with source(Driver(), named) as gpus:
        assert gpus.ahead({"CUDA_VISIBLE_DEVICES": "0"}) == ("GPU-b",)
    with source(Driver()) as gpus:
        assert gpus.ahead({"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}) == ("GPU-a", "GPU-b")
        assert gpus.ahead({"CUDA_VISIBLE_DEVICES": "1"}) == ("GPU-b",)
        assert gpus.ahead({"CUDA_VISIBLE_DEVICES": ""}) is None
        assert gpus.ahead({}) is None
    with source(Driver(gpus=(Gpu(3, "GPU-c"),))) as gpus:
        assert gpus.ahead({}) == ("GPU-c",)


def test_before_a_job_whoever_computes_on_its_gpus_is_a_stranger() -> None:
    driver = Driver(pids={"GPU-a": (1,)})
    shared = pytest.raises(DeviceError, match="GPU 0 is shared: PID 1")
    with source(driver, replace(CONFIG, gpus=("0",))) as gpus, shared:
        gpus.ahead({})
    with source(driver, replace(CONFIG, gpus=("0",), shared_gpu=True)) as gpus:
        assert gpus.ahead({}) == ("GPU-a",)
    with source(driver, replace(CONFIG, gpus=("1",))) as gpus:
        assert gpus.ahead({}) == ("GPU-b",)


A, B, C = (
    NvmlGpu(index=i, uuid=f"GPU-{letter * 4}-{i}", name="H100", minor_number=i) for i, letter in enumerate("abc")
)
ALIKE = (A, B, C)
MIXED = (A, B, replace(C, name="T400"))
JOB = job_gpus.ProcessFacts(ns_pids=(4242,), uid=1000, readable=True, cuda=True, minors=frozenset({0, 1, 2}))
IDLE = replace(JOB, cuda=False, minors=frozenset())


def listings(*pids: tuple[int, ...], gpus: tuple[NvmlGpu, ...] = ALIKE) -> list[job_gpus.Listing]:
    return [job_gpus.Listing(gpu=gpu, pids=here) for gpu, here in zip(gpus, [*pids, *[()] * len(gpus)], strict=False)]


def found(gpus: job_gpus.JobGpus | None) -> tuple[str, ...] | None:
    return None if gpus is None else gpus.uuids


def test_gpus_are_named_by_index_uuid_or_its_beginning_and_come_in_the_drivers_order() -> None:
    assert named(ALIKE, ["2", "GPU-aaaa"]) == (A.uuid, C.uuid)
    assert named(ALIKE, [B.uuid, "1"]) == (B.uuid,)


@pytest.mark.parametrize(
    ("name", "message"), [("3", "--gpus 3 is not there"), ("GPU-", "--gpus GPU- fits several"), ("GPU-d", "not there")]
)
def test_a_name_that_fits_none_or_several_is_refused_with_what_there_is(name: str, message: str) -> None:
    with pytest.raises(DeviceUnavailable, match=rf"{message}.*0 \(GPU-aaaa-0\), 1 \(GPU-bbbb-1\)"):
        named(ALIKE, [name])


def test_the_drivers_list_decides_whatever_else_the_job_has_open() -> None:
    gpus = job_gpus.used(listings((), (4242,)), [JOB], [])
    assert found(gpus) == (B.uuid,)
    assert gpus.computing


def test_a_grandchilds_gpus_are_the_jobs() -> None:
    worker = replace(IDLE, ns_pids=(4300,))
    assert found(job_gpus.used(listings((4300,), (), (4300,)), [IDLE, worker], [])) == (A.uuid, C.uuid)


def test_a_container_pid_is_matched_by_its_process_here() -> None:
    inside = replace(IDLE, ns_pids=(4242, 7))
    assert found(job_gpus.used(listings((7,)), [inside], [])) == (A.uuid,)


def test_a_container_pid_that_a_computing_process_here_has_is_that_process() -> None:
    inside = replace(IDLE, ns_pids=(4242, 7))
    other = replace(JOB, ns_pids=(7,))
    assert job_gpus.used(listings((7,)), [inside], [other]) is None
    assert [one.pid for one in job_gpus.strangers(listings((7,)), [A.uuid], [inside], [other])] == [7]
    kernel_thread = replace(IDLE, ns_pids=(7,))
    assert found(job_gpus.used(listings((7,)), [inside], [kernel_thread])) == (A.uuid,)


def test_without_a_list_what_a_cuda_process_has_open_counts() -> None:
    gpus = job_gpus.used(listings(), [replace(JOB, minors=frozenset({1}))], [])
    assert found(gpus) == (B.uuid,)
    assert not gpus.computing


def test_a_monitor_that_has_gpus_open_without_cuda_uses_none() -> None:
    assert job_gpus.used(listings(), [replace(JOB, cuda=False)], []) is None


@pytest.mark.parametrize(
    ("text", "order", "expected"),
    [
        ("1", None, (B,)),
        ("GPU-cccc", None, (C,)),
        ("GPU-cccc,0", None, (A, C)),
        ("1,7,0", None, (B,)),  # what follows an entry that fits nothing is ignored
        ("-1", None, (A, B, C)),  # nothing visible contradicts what is open
        ("MIG-GPU-bbbb-1/7/0", None, (B,)),
        ("MIG-12345678", None, (A, B, C)),
        (None, None, (A, B, C)),
    ],
)
def test_what_is_open_is_narrowed_to_what_cuda_may_see(text, order, expected) -> None:
    process = replace(JOB, visible=text, order=order)
    assert found(job_gpus.used(listings(), [process], [])) == tuple(gpu.uuid for gpu in expected)


def test_numbers_are_the_drivers_only_where_order_or_likeness_says_so() -> None:
    assert job_gpus.visible(MIXED, "0", None) is None
    assert job_gpus.visible(MIXED, "0", "FASTEST_FIRST") is None
    assert job_gpus.visible(MIXED, "0", "PCI_BUS_ID") == {A.uuid}
    assert job_gpus.visible(MIXED, "2,0,1", None) == {A.uuid, B.uuid, C.uuid}
    assert job_gpus.visible(MIXED, "GPU-cccc", None) == {C.uuid}
    assert job_gpus.visible(ALIKE, "0", None) == {A.uuid}
    assert (
        job_gpus.visible(ALIKE, "", None) == job_gpus.visible(ALIKE, "GPU-", None) == frozenset()
    )  # none, and an ambiguous beginning


def test_numbers_of_a_container_do_not_overrule_the_file_that_is_open() -> None:
    process = replace(JOB, minors=frozenset({2}), visible="0")
    assert found(job_gpus.used(listings(), [process], [])) == (C.uuid,)


def test_where_files_have_no_number_the_variable_or_the_only_gpu_tells() -> None:
    nameless = tuple(replace(gpu, minor_number=None) for gpu in ALIKE)
    process = replace(JOB, minors=frozenset())
    assert found(job_gpus.used(listings(gpus=nameless), [replace(process, visible="GPU-bbbb")], [])) == (B.uuid,)
    assert found(job_gpus.used(listings(gpus=nameless[:1]), [process], [])) == (A.uuid,)
    with pytest.raises(DeviceError, match="process 4242 runs CUDA, but on which of the 3 GPUs cannot be seen; pass --"):
        job_gpus.used(listings(gpus=nameless), [process], [])


def test_another_users_process_hides_what_it_uses_unless_the_driver_tells() -> None:
    hidden = job_gpus.ProcessFacts(ns_pids=(4242,), uid=1001, readable=False)
    assert found(job_gpus.used(listings((4242,)), [hidden], [])) == (A.uuid,)
    with pytest.raises(DeviceError, match=r"process 4242 uses cannot be seen: it belongs to user 1001.*or pass --gpus"):
        job_gpus.used(listings(), [hidden], [])


def test_a_job_may_come_to_all_gpus_that_any_of_its_processes_may_see() -> None:
    first, second = replace(JOB, visible="0", order="PCI_BUS_ID"), replace(JOB, visible="2", order="PCI_BUS_ID")
    assert job_gpus.reachable(listings(), [first, second]) == {A.uuid, C.uuid}
    assert job_gpus.reachable(listings(), [first, JOB]) == {A.uuid, B.uuid, C.uuid}
    assert job_gpus.reachable(listings(), [first, replace(second, readable=False, visible=None)]) == {
        A.uuid,
        B.uuid,
        C.uuid,
    }


def test_processes_outside_the_job_are_strangers_on_its_gpus_alone() -> None:
    other = replace(JOB, ns_pids=(99,))
    there = listings((4242, 99), (), (77,))
    shared = job_gpus.strangers(there, [A.uuid, B.uuid], [JOB], [other])
    assert [(one.gpu_index, one.pid, one.seen) for one in shared] == [(0, 99, True)]
    assert job_gpus.strangers(there, [B.uuid], [JOB], [other]) == ()


def test_a_shared_gpu_is_refused_with_the_pids_that_share_it() -> None:
    job_gpus.refuse_strangers([])
    shared = job_gpus.strangers(listings((4242, 99, 31000)), [A.uuid], [JOB], [replace(JOB, ns_pids=(99,))])
    said = r"GPU 0 is shared: PID 99, PID 31000 \(not all of them can be seen.*or pass --shared-gpu"
    with pytest.raises(DeviceError, match=said):
        job_gpus.refuse_strangers(shared)


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
