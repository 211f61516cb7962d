"""Which GPUs a job uses, from hand-made facts: no driver, no processes."""

from dataclasses import replace

import pytest

from autocap.devices.inventory import named
from autocap.devices.nvml import job_gpus
from autocap.devices.nvml.library import NvmlGpu
from autocap.errors import DeviceError, DeviceUnavailable

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
