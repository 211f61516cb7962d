"""Calls that the kernel counts, made into one count of the job's; the kernel itself is a double here.

Where a function begins in a file that a process maps, told by the dynamic loader and by us.
"""

import ctypes
import io
import mmap
import os
import random
from pathlib import Path

import numpy as np
import pytest

from autocap.devices.model.sensor import PRESETS
from autocap.errors import AutocapError, UsageError
from autocap.job.processes import ProcessId
from autocap.progress import COUNTED, Mark, StepProgress
from autocap.progress.calls.counter import CallCounter
from autocap.progress.calls.host import MappedFile, function_offset, mapped_file, open_mapped
from autocap.progress.calls.target import TORCH_BACKWARD, CallsUnavailable, CallTarget, call_target
from autocap.records import Sample, StepReading
from tests.doubles import called

ROOT = ProcessId(1, 1)


def job_of(*processes: called.CalledProcess, cost_s: float = 2e-6) -> called.CalledJob:
    """Each process is known by the number of its first thread."""
    return called.CalledJob({next(iter(each.threads)): each for each in processes}, cost_s=cost_s)


def one_thread(tid: int = 1, rank: int | None = None) -> called.CalledProcess:
    return called.CalledProcess({tid: called.CalledThread()}, rank=rank)


def watching(job: called.CalledJob) -> CallCounter:
    counter = CallCounter(TORCH_BACKWARD, job, job.now, job.pause)
    counter.watch(ROOT)
    return counter


def go_on(
    job: called.CalledJob, counter: CallCounter, seconds: float, *calling: called.CalledThread, every_s: float = 0.5
) -> None:
    """The threads call the function, and the counter is read in between."""
    for _ in range(round(seconds / every_s)):
        job.now_s += every_s
        for thread in calling:
            thread.call(job.now_s - 0.1)
        counter.read(0.0)
    called.await_dropped_calls()


def test_the_count_and_the_time_of_the_last_call_are_the_jobs() -> None:
    job = job_of(one_thread())
    counter = watching(job)
    go_on(job, counter, 5.0, job.processes_by_pid[1].threads[1])
    assert counter.read(100.0) == StepReading(count=10, t_s=pytest.approx(4.92), of_calls=True)
    assert counter.trouble is None


def test_nothing_is_said_before_it_is_known_how_often_the_function_is_called() -> None:
    job = job_of(one_thread())
    counter = watching(job)
    job.processes_by_pid[1].threads[1].call(job.now_s)
    job.now_s += 0.5
    assert counter.read(0.0) is None
    job.now_s += 0.6
    assert counter.read(0.0) == StepReading(count=1, t_s=pytest.approx(100.02), of_calls=True)


@pytest.mark.parametrize(("rate_hz", "refused"), [(2400, False), (2700, True)])
def test_a_function_that_would_cost_more_than_half_a_percent_of_the_time_is_refused(rate_hz, refused) -> None:
    job = job_of(one_thread())
    counter = watching(job)
    job.processes_by_pid[1].threads[1].call(job.now_s, rate_hz)
    job.now_s += 1.0
    counter.read(0.0)
    assert counter.hopeless == refused
    if refused:
        assert "is called 2647 times a second, which to count would take 0.53% of" in (counter.trouble or "")
        assert job.is_closed


def test_once_it_is_counted_twice_that_is_tolerated_and_no_more() -> None:
    job = job_of(one_thread())
    counter, thread = watching(job), job.processes_by_pid[1].threads[1]
    for rate_hz in (2000, 4500, 5500):
        assert not counter.hopeless
        thread.call(job.now_s + 1.0, rate_hz)
        job.now_s += 1.01
        counter.read(0.0)
    assert counter.hopeless
    assert counter.has_counted


def test_one_that_is_called_all_the_time_is_not_counted_for_a_second_to_know_that() -> None:
    job = job_of(one_thread())

    def pause(seconds: float) -> None:
        job.now_s += seconds
        job.processes_by_pid[1].threads[1].call(job.now_s, 600)

    counter = CallCounter(TORCH_BACKWARD, job, job.now, pause)
    counter.watch(ROOT)
    assert counter.hopeless
    assert job.now_s < 100.1


def test_of_several_ranks_the_slowest_counts() -> None:
    job = job_of(one_thread(1, rank=0), one_thread(2, rank=1))
    counter = watching(job)
    first, second = (job.processes_by_pid[pid].threads[pid] for pid in (1, 2))
    go_on(job, counter, 5.0, first, second)
    first.call(job.now_s)
    reading = counter.read(0.0)
    assert reading.count == second.count == 10


def test_processes_that_appear_later_are_counted() -> None:
    launcher = called.CalledProcess({1: called.CalledThread()}, has_library=False)
    job = job_of(launcher)
    counter = watching(job)
    assert counter.trouble == "no process of the job has loaded libtorch_cpu.so"
    assert not counter.is_watching
    job.processes_by_pid[2] = one_thread(2)
    go_on(job, counter, 5.0, job.processes_by_pid[2].threads[2])
    reading = counter.read(0.0)
    assert reading.count >= 8
    assert counter.trouble is None


def test_a_process_that_hides_what_it_has_loaded_is_the_reason_only_where_no_other_one_is_counted_in() -> None:
    job = job_of(called.CalledProcess({1: called.CalledThread()}, is_hidden=True))
    counter = watching(job)
    assert counter.trouble == "process 1 hides what it has loaded; run autocap as root"
    job.processes_by_pid[2] = one_thread(2)
    go_on(job, counter, 3.0)
    assert (counter.trouble, counter.is_watching) == (None, True)


def test_a_process_without_the_library_is_asked_ever_more_rarely() -> None:
    job = job_of(called.CalledProcess({1: called.CalledThread()}, has_library=False))
    counter = watching(job)
    go_on(job, counter, 120.0)
    assert job.looks < 10


def test_threads_that_take_no_part_are_let_go() -> None:
    job = job_of(called.CalledProcess({tid: called.CalledThread() for tid in range(1, 9)}), one_thread(20))
    counter = watching(job)
    assert job.watched == {1, 2, 3, 4, 20}
    go_on(job, counter, 6.0, job.processes_by_pid[1].threads[2])
    assert job.watched == {2}


def test_where_none_of_the_watched_calls_others_are_tried_in_turn() -> None:
    job = job_of(called.CalledProcess({tid: called.CalledThread() for tid in range(1, 13)}))
    counter, caller = watching(job), job.processes_by_pid[1].threads[11]
    go_on(job, counter, 60.0, caller)
    reading = counter.read(0.0)
    assert reading.t_s == pytest.approx(caller.last_s)
    assert job.watched == {11}


def test_where_the_calls_move_to_another_thread_they_are_found_again_and_the_count_goes_on() -> None:
    job = job_of(called.CalledProcess({tid: called.CalledThread() for tid in range(1, 7)}))
    counter, threads = watching(job), job.processes_by_pid[1].threads
    go_on(job, counter, 20.0, threads[1])
    assert job.watched == {1}
    before = counter.read(0.0)
    go_on(job, counter, 60.0, threads[5])
    after = counter.read(0.0)
    assert after.count > before.count + 20
    assert after.t_s == pytest.approx(threads[5].last_s)


def test_the_calls_of_a_thread_that_has_ended_still_count() -> None:
    job = job_of(called.CalledProcess({1: called.CalledThread(), 2: called.CalledThread()}))
    counter, threads = watching(job), job.processes_by_pid[1].threads
    go_on(job, counter, 3.0, threads[2])
    threads[2].is_alive = False
    go_on(job, counter, 3.0, threads[1])
    reading = counter.read(0.0)
    assert reading.count == 12


def test_threads_that_come_and_go_are_refused() -> None:
    job = job_of(one_thread())
    counter, threads = watching(job), job.processes_by_pid[1].threads
    for tid in range(2, 30):
        threads[tid] = called.CalledThread()
        go_on(job, counter, 2.0, threads[tid])
        threads[tid].is_alive = False
    assert counter.hopeless
    assert "makes its calls in threads that come and go, so some would be missed" in (counter.trouble or "")


def test_nothing_stays_watched_at_the_end() -> None:
    job = job_of(called.CalledProcess({tid: called.CalledThread() for tid in range(1, 5)}))
    with watching(job) as counter:
        assert job.watched
    go_on(job, counter, 0.5)
    assert not job.watched
    assert job.is_closed


def test_the_function_is_named_on_the_command_line() -> None:
    assert call_target("calls") is TORCH_BACKWARD
    assert call_target("calls:/opt/a:b/libx.so:run").library == "/opt/a:b/libx.so"
    for named in ("", "libx.so", "libx.so:", ":run", "lib\x1b:run", f"a:{'b' * 999}"):
        with pytest.raises(UsageError, match="names no function; give calls:LIBRARY:SYMBOL, such as"):
            call_target(f"calls:{named}")


@pytest.mark.parametrize(
    ("library", "path", "fits"),
    [
        ("libcuda.so", "/usr/lib/libcuda.so.550.54", True),
        ("libcuda.so", "/usr/lib/libcudart.so", False),
        ("trainer", "/home/me/trainer", True),
        ("/usr/lib/libcuda.so", "/usr/lib/libcuda.so.1", False),
        ("/usr/lib/libcuda.so.1", "/usr/lib/libcuda.so.1", True),
    ],
)
def test_a_library_is_known_by_its_name_or_its_whole_path(library: str, path: str, fits: bool) -> None:
    assert CallTarget(library=library, symbol="run").is_in(path) == fits


class TestIterationCounter:
    """What it makes of `--progress`."""

    def test_attach_counts_calls_as_soon_as_it_can(self) -> None:
        job = job_of(one_thread())
        with called.iteration_counter("auto", job) as counting:
            counting.follow(ROOT)
            progress = counting.progress(PRESETS["a100"].info())
            for _ in range(4):
                job.now_s += 0.5
                job.processes_by_pid[1].threads[1].call(job.now_s)
                sample = called.counted_sample(job, counting)
                marks = progress.marks(sample)
            assert marks == (Mark(t_s=job.now_s, iterations=4.0),)
            assert (progress.kind, progress.confidence, counting.fault) == ("calls", "high", None)
            assert progress.kind in COUNTED

    @pytest.mark.parametrize("refusal", [None, "the kernel does not let autocap count calls"])
    def test_attach_does_without_and_says_why(self, refusal: str | None) -> None:
        job = job_of(one_thread())
        job.refusal, job.processes_by_pid[1].has_library = refusal, refusal is not None
        with called.iteration_counter("auto", job) as counting:
            counting.follow(ROOT)
            why = refusal or "no process of the job has loaded libtorch_cpu.so"
            assert counting.fault == f"calls are not counted: {why}, so iterations are looked for in the power"
            progress = counting.progress(PRESETS["a100"].info())
            assert progress.kind == "period"

    def test_a_library_that_is_loaded_later_is_counted_in_after_all(self) -> None:
        job = job_of(one_thread())
        job.processes_by_pid[1].has_library = False
        with called.iteration_counter("auto", job) as counting:
            counting.follow(ROOT)
            progress = counting.progress(PRESETS["a100"].info())
            job.processes_by_pid[1].has_library = True
            for _ in range(30):
                job.now_s += 0.5
                job.processes_by_pid[1].threads[1].call(job.now_s)
                progress.marks(called.counted_sample(job, counting))
            assert progress.kind == "calls"
            assert counting.fault is None

    def test_what_was_asked_for_is_refused_with_an_error_where_it_cannot_be(self) -> None:
        job = job_of(one_thread())
        job.processes_by_pid[1].has_library = False
        with (
            called.iteration_counter("calls", job) as counting,
            pytest.raises(CallsUnavailable, match="; choose another --prog"),
        ):
            counting.follow(ROOT)
        job.refusal = "the kernel does not let autocap count calls"
        for ours in (True, False):
            with pytest.raises(AutocapError, match="does not let"), called.iteration_counter("calls", job, ours=ours):
                pass

    def test_a_child_is_counted_in_from_the_first_reading_on(self) -> None:
        job = job_of(one_thread())
        with called.iteration_counter("calls:libx.so:run", job, ours=True) as counting:
            counting.follow(ROOT)
            assert not job.watched
            counting.read(0.0)
            assert job.watched == {1}
            assert counting.progress(PRESETS["a100"].info()).trouble == "no call of run in libx.so was seen"

    def test_where_counting_comes_to_cost_too_much_the_period_is_looked_for_from_then_on(self) -> None:
        job = job_of(one_thread())
        with called.iteration_counter("auto", job) as counting:
            counting.follow(ROOT)
            progress, thread = counting.progress(PRESETS["a100"].info()), job.processes_by_pid[1].threads[1]
            for calls, kind in ((1, "calls"), (1, "calls"), (1, "calls"), (9000, "period")):
                job.now_s += 1.0
                thread.call(job.now_s, calls)
                progress.marks(called.counted_sample(job, counting))
                assert progress.kind == kind
            assert (counting.fault or "").startswith("calls are counted no more: _ZN5torch8autograd6Engine7executeE is")
            assert (counting.fault or "").endswith("called less often, so iterations are looked for in the power")

    def test_a_child_whose_steps_nobody_sees_has_its_calls_counted(self) -> None:
        job = job_of(one_thread())
        with called.iteration_counter("auto", job, ours=True) as counting:
            counting.follow(ROOT)
            progress, began_s = counting.progress(PRESETS["a100"].info()), job.now_s
            while job.now_s < began_s + 25.0:
                job.processes_by_pid[1].threads[1].call(job.now_s)
                job.now_s += 0.5
                progress.marks(called.counted_sample(job, counting))
                assert bool(job.watched) == (job.now_s > began_s + 15.5)
            assert progress.kind == "calls"


def test_steps_and_calls_are_not_taken_for_each_other() -> None:
    steps, calls = StepProgress(), StepProgress("calls", "call")
    for count, of_calls in ((3, True), (4, False), (5, True)):
        sample = Sample(t_s=float(count), readings=(), steps=StepReading(count=count, t_s=1.0, of_calls=of_calls))
        assert (bool(calls.marks(sample)), bool(steps.marks(sample))) == (of_calls, not of_calls)


LIBRARY = Path(np.linalg._umath_linalg.__file__)  # type: ignore[attr-defined]
ENTRY = CallTarget(library=LIBRARY.name, symbol=f"PyInit_{LIBRARY.name.partition('.')[0]}")


def loaded_at(target: CallTarget) -> int:
    """The function's place in its file, as this process has it loaded."""
    address = ctypes.cast(getattr(ctypes.CDLL(str(LIBRARY)), target.symbol), ctypes.c_void_p).value or 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split()
        begin, end = (int(part, 16) for part in fields[0].split("-"))
        if begin <= address < end:
            assert fields[5] == str(LIBRARY)
            return address - begin + int(fields[2], 16)
    raise AssertionError("no mapping holds the function")


def test_a_function_begins_where_the_loader_has_it() -> None:
    with LIBRARY.open("rb") as file:
        assert function_offset(file, ENTRY) == loaded_at(ENTRY)


def test_the_beginning_of_a_name_is_enough_where_it_is_asked_for() -> None:
    cut = CallTarget(library=ENTRY.library, symbol=ENTRY.symbol[:-3], by_prefix=True)
    with LIBRARY.open("rb") as file:
        assert function_offset(file, cut) == loaded_at(ENTRY)
        whole = CallTarget(library=ENTRY.library, symbol=cut.symbol)
        with pytest.raises(CallsUnavailable, match=f"has no function called {cut.symbol}; list its names with: nm -D"):
            function_offset(file, whole)


def test_what_is_only_imported_is_not_there() -> None:
    with LIBRARY.open("rb") as file, pytest.raises(CallsUnavailable, match="has no function called PyErr_SetString"):
        function_offset(file, CallTarget(library=LIBRARY.name, symbol="PyErr_SetString"))


@pytest.mark.slow
def test_whatever_a_file_holds_the_search_ends_with_a_reason(tmp_path: Path) -> None:
    whole, chance = LIBRARY.read_bytes(), random.Random(1)
    damaged = [b"", b"\x7fELF", whole[:5000]]
    for _ in range(60):
        header = bytearray(whole)
        for _ in range(4):
            at = chance.choice((chance.randrange(64), len(whole) - 1 - chance.randrange(2000)))  # sections stand last
            header[at] = chance.randrange(256)
        damaged.append(bytes(header))
    found = set()
    for content in damaged:
        (tmp_path / "file").write_bytes(content)
        with (tmp_path / "file").open("rb") as file:
            try:
                found.add(function_offset(file, ENTRY))
            except CallsUnavailable:
                found.add(None)
    assert None in found


def test_a_mapped_file_is_found_by_name_and_opened_itself() -> None:
    ctypes.CDLL(str(LIBRARY))
    mapped = mapped_file(os.getpid(), ENTRY)
    assert mapped.path == str(LIBRARY)
    with open_mapped(mapped) as file:
        assert os.fstat(file.fileno()).st_ino == LIBRARY.stat().st_ino
    assert mapped_file(os.getpid(), CallTarget(library="libnone.so", symbol="run")) is None


def test_code_alone_counts_as_loaded(tmp_path: Path) -> None:
    (tmp_path / "libdata.so").write_bytes(bytes(mmap.PAGESIZE))
    with (tmp_path / "libdata.so").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert mapped_file(os.getpid(), CallTarget(library="libdata.so", symbol="run")) is None


@pytest.mark.parametrize("deleted", [False, True])
def test_without_root_a_file_that_was_replaced_is_refused(tmp_path: Path, deleted: bool) -> None:
    (tmp_path / "lib.so").write_bytes(b"new")
    number = (tmp_path / "lib.so").stat().st_ino
    nowhere = "0-1"  # as if its mapping could not be followed
    path = str(tmp_path / "lib.so")
    replaced = MappedFile(
        pid=os.getpid(), path=path, addresses=nowhere, inode=number if deleted else number + 1, deleted=deleted
    )
    with pytest.raises(CallsUnavailable, match=f"was replaced since process {os.getpid()} loaded it; run autocap as"):
        open_mapped(replaced)
    same = MappedFile(pid=os.getpid(), path=path, addresses=nowhere, inode=number, deleted=False)
    with open_mapped(same) as file:
        assert file.read() == b"new"


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lib.so")
    pipe = MappedFile(pid=os.getpid(), path=str(tmp_path / "lib.so"), addresses="0-1", inode=1, deleted=False)
    with pytest.raises(CallsUnavailable, match=r"cannot be opened as process \d+ sees it \(no regular file\); run"):
        open_mapped(pipe)


def test_what_is_no_elf_file_has_a_reason() -> None:
    with pytest.raises(CallsUnavailable, match=r"the symbols of lib\.so cannot be read: "):
        function_offset(io.BytesIO(b"#!/bin/sh"), CallTarget(library="lib.so", symbol="run"))
