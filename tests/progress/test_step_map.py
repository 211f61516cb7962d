"""The map of the step counter, and what one count is made of the counts of a job's processes."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import autocap
from autocap.errors import AutocapError
from autocap.job.processes import ProcessId, identify, own_identity
from autocap.progress.ranks import JobSteps, ProcessSteps
from autocap.progress.steps.hook import sitecustomize
from autocap.progress.steps.map import StepMap
from autocap.records import StepReading


def steps(
    pid: int, count: int, last_s: float, *, rank: int | None = None, explicit: bool = False, first_s: float = 0.0
) -> ProcessSteps:
    return ProcessSteps(
        process=ProcessId(pid, 1), rank=rank, explicit=explicit, first_s=first_s, last_s=last_s, count=count
    )


def everybody(_: ProcessId) -> bool:
    return True


def nobody(_: ProcessId) -> bool:
    return False


class TestJobSteps:
    def test_nothing_is_known_before_the_first_step(self) -> None:
        assert JobSteps().update([], everybody) is None

    @pytest.mark.parametrize(
        ("one", "other", "job"),
        [
            (steps(1, 10, 5.0, rank=0), steps(2, 9, 4.9, rank=1), (9, 4.9)),
            (steps(1, 2, 5.0), steps(2, 9, 4.9), (9, 4.9)),
            (steps(1, 10, 5.0, rank=0), steps(2, 90, 5.0), (10, 5.0)),
            (steps(1, 10, 5.0, rank=0), steps(2, 1, 5.0, rank=0), (10, 5.0)),
            (steps(1, 10, 5.0, rank=0, explicit=True), steps(2, 3, 5.0, rank=1), (10, 5.0)),
            (steps(1, 4, 15.0, rank=1, first_s=0.0), steps(2, 900, 30.0, rank=0), (4, 15.0)),
        ],
        ids=["slowest rank", "busiest process", "ranks alone", "not its child", "by hand", "slow but steady"],
    )
    def test_one_process_speaks_for_the_job(self, one, other, job) -> None:
        count, t_s = job
        assert JobSteps().update([one, other], everybody) == StepReading(count=count, t_s=t_s)

    def test_a_helper_that_trained_a_little_at_start_up_and_lives_on_does_not_hold_the_count(self) -> None:
        job, helper = JobSteps(), steps(1, 2, 0.2, rank=1)
        job.update([helper, steps(2, 5, 5.0, rank=0)], everybody)
        later = job.update([helper, steps(2, 20, 20.0, rank=0)], everybody)
        assert later == StepReading(count=20, t_s=20.0)

    def test_a_job_that_pauses_as_a_whole_keeps_its_slowest_rank(self) -> None:
        job, processes = JobSteps(), [steps(1, 10, 5.0, rank=0), steps(2, 9, 5.0, rank=1)]
        job.update(processes, everybody)
        assert job.update(processes, everybody) == StepReading(count=9, t_s=5.0)

    def test_a_rank_that_starts_again_from_zero_neither_drops_nor_holds_the_count(self) -> None:
        job = JobSteps()
        job.update([steps(1, 100, 10.0, rank=0), steps(2, 100, 10.0, rank=1)], everybody)

        def second_died(process: ProcessId) -> bool:
            return process.pid != 2

        old = [steps(1, 100, 10.0, rank=0), steps(2, 100, 10.0, rank=1)]
        restarted = job.update([*old, steps(3, 1, 11.0, rank=1)], second_died)
        old = [steps(1, 104, 12.0, rank=0), steps(2, 100, 10.0, rank=1)]
        going_on = job.update([*old, steps(3, 4, 12.0, rank=1)], second_died)
        assert restarted == StepReading(count=100, t_s=10.0)
        assert going_on == StepReading(count=103, t_s=12.0)

    def test_a_second_phase_in_a_new_process_goes_on_from_the_first(self) -> None:
        job, first = JobSteps(), steps(1, 50, 5.0)
        job.update([first], everybody)
        job.update([first, steps(2, 1, 6.0)], nobody)
        reading = job.update([first, steps(2, 11, 7.0)], nobody)
        assert reading == StepReading(count=60, t_s=7.0)

    def test_the_count_stays_when_the_whole_job_has_ended_and_the_last_steps_of_a_process_that_ended_count(
        self,
    ) -> None:
        job, last = JobSteps(), [steps(1, 50, 5.0)]
        job.update(last, everybody)
        assert job.update(last, nobody) == StepReading(count=50, t_s=5.0)
        assert job.update([steps(1, 52, 5.2)], nobody) == StepReading(count=52, t_s=5.2)

    def test_time_never_runs_backwards_when_another_rank_becomes_the_slowest(self) -> None:
        job = JobSteps()
        job.update([steps(1, 10, 10.0, rank=0), steps(2, 11, 9.0, rank=1)], everybody)
        held_back = job.update([steps(1, 12, 10.2, rank=0), steps(2, 11, 9.0, rank=1)], everybody)
        assert held_back == StepReading(count=10, t_s=10.0)


class TestStepMap:
    def test_the_file_is_private_allocated_and_removed_at_the_end(self, tmp_path: Path) -> None:
        with StepMap.create(tmp_path) as created:
            status = created.path.stat()
            assert status.st_mode & 0o777 == 0o600
            assert status.st_blocks * 512 >= status.st_size > 0
        assert not created.path.exists()

    def test_two_maps_never_share_a_name(self, tmp_path: Path) -> None:
        with StepMap.create(tmp_path) as one, StepMap.create(tmp_path) as other:
            assert one.path != other.path

    def test_it_is_in_memory_unless_told_otherwise(self) -> None:
        with StepMap.create() as created:
            in_memory = os.access("/dev/shm", os.W_OK)
            assert (created.path.parent == Path("/dev/shm")) == in_memory

    def test_a_directory_that_takes_no_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(AutocapError, match=r"no file of \d+ bytes .*missing: No such file.*; set TMPDIR"):
            StepMap.create(tmp_path / "missing")

    def test_a_map_that_was_handed_down_is_read_by_its_descriptor_and_never_removed(self, step_map: StepMap) -> None:
        with StepMap.adopt(os.dup(step_map.fd)) as handed:
            assert not os.get_inheritable(handed.fd)
            sitecustomize.StepCounter(str(step_map.path)).step()
            reading = handed.read(0.0)
        assert reading.count == 1
        assert step_map.path.exists()

    def test_when_its_maker_is_dead_whoever_it_was_handed_to_removes_it(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        made = StepMap.create(tmp_path)
        with StepMap.adopt(os.dup(made.fd)):
            os.close(made.fd)  # as the kernel does
        assert not made.path.exists()

    @pytest.mark.parametrize(
        ("make", "why"),
        [
            (lambda path: None, "is not open"),
            (lambda path: os.open(path.parent, os.O_RDONLY), "is no regular file"),
            (lambda path: os.open("/dev/zero", os.O_RDONLY), "is no regular file"),
            (lambda path: os.open(path, os.O_RDONLY), "holds 3 bytes, not 16448"),
            (lambda path: os.truncate(path, 16448) or os.open(path, os.O_RDONLY), "holds something else"),
            (lambda path: os.truncate(path, 16448) or os.open(path, os.O_WRONLY), "is not open for reading"),
        ],
    )
    def test_any_other_descriptor_is_refused_in_one_sentence(self, tmp_path, make, why) -> None:
        path = tmp_path / "autocap-steps-2-file"
        path.write_bytes(b"abc")
        fd = make(path)
        with pytest.raises(AutocapError) as raised:
            StepMap.adopt(999_999 if fd is None else fd)
        assert f" {why}, so it is no step map; autocap.tune alone hands one down" in str(raised.value)
        assert path.exists()
        if fd is not None:
            os.close(fd)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
    def test_another_user_s_map_is_refused(self, step_map: StepMap) -> None:
        os.fchown(step_map.fd, 65534, 65534)
        with pytest.raises(AutocapError, match="belongs to user 65534, not to user 0, so it is no step map"):
            StepMap.adopt(step_map.fd)

    @pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), Path.touch])
    def test_whatever_is_put_in_its_place_it_is_read_and_closes_quietly(self, step_map, put) -> None:
        sitecustomize.StepCounter(str(step_map.path)).step()
        step_map.path.unlink()
        put(step_map.path)
        reading = step_map.read(0.0)
        step_map.close()
        assert reading is not None
        assert os.path.lexists(step_map.path)

    def test_nothing_is_read_before_the_first_step_nor_of_a_truncated_map(self, step_map: StepMap) -> None:
        assert step_map.read(0.0) is None
        sitecustomize.StepCounter(str(step_map.path)).step()
        os.truncate(step_map.path, 100)
        assert step_map.read(0.0) is None

    def test_a_map_that_was_deleted_is_still_read_and_closes_quietly(self, step_map: StepMap) -> None:
        counter = sitecustomize.StepCounter(str(step_map.path))
        counter.step()
        step_map.path.unlink()
        counter.step()
        reading = step_map.read(0.0)
        assert reading.count == 2

    @pytest.mark.parametrize(
        ("count", "first_ns", "last_ns", "pid"),
        [
            (1, 0, 2**63, 1),  # in the future
            (1, 0, 2**64 - 1, 1),
            (1, 10**9, 10**9 - 1, 1),  # before the first
            (2**63, 0, 10**9, 1),  # more than a processor can count
            (2**64 - 1, 0, 10**9, 1),
            (10**7 + 2, 0, 10**9, 1),
            (1, 0, 10**9, 2**22 + 1),  # no process
        ],
    )
    def test_what_no_clock_and_no_job_gives_is_left_out(self, step_map, count, first_ns, last_ns, pid) -> None:
        write_slot(step_map, pid, count, first_ns, last_ns)
        assert step_map.read(0.0) is None

    def test_a_count_that_leaps_is_not_taken_until_there_was_time_for_it(self, step_map: StepMap) -> None:
        pid, second_ns, leap = os.getpid(), 10**9, 10 + 2 * 10**7
        write_slot(step_map, pid, 10, second_ns, 10 * second_ns)
        assert step_map.read(0.0) == StepReading(count=10, t_s=10.0)
        write_slot(step_map, pid, leap, second_ns, 11 * second_ns)
        assert step_map.read(0.0) == StepReading(count=10, t_s=10.0)
        write_slot(step_map, pid, leap, second_ns, 12 * second_ns)
        assert step_map.read(0.0) == StepReading(count=leap, t_s=12.0)

    def test_times_are_on_the_clock_that_began_at_the_origin(self, step_map: StepMap) -> None:
        sitecustomize.StepCounter(str(step_map.path)).step()
        by_system, by_run = step_map.read(0.0), step_map.read(1000.0)
        assert by_system.t_s - by_run.t_s == pytest.approx(1000.0)

    def test_a_mixture_of_two_steps_is_never_read(self, step_map: StepMap) -> None:
        counter = sitecustomize.StepCounter(str(step_map.path))
        counter.step()
        whole = step_map.read(0.0)
        with step_map.path.open("r+b") as file:  # the count of a step whose time is not written yet
            file.seek(sitecustomize.HEADER_BYTES + sitecustomize.STEP_OFFSET)
            file.write(struct.pack("@Q", 2))
        mixed = step_map.read(0.0)
        counter.step()
        after = step_map.read(0.0)
        assert mixed == whole
        assert after.count == 2

    def test_the_slot_of_a_dead_process_is_used_again_when_the_map_is_full(self, step_map: StepMap) -> None:
        fill(step_map, ProcessId(1, own_identity().start_ticks + 1))  # no process 1 started after us
        sitecustomize.StepCounter(str(step_map.path)).step()
        reading = step_map.read(0.0)
        assert reading.count == 1

    def test_a_map_full_of_live_processes_leaves_out_the_next_one(self, step_map: StepMap) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
            process = identify(other.pid)
            fill(step_map, process)
            sitecustomize.StepCounter(str(step_map.path)).step()
            other.communicate(b"\n")
        assert step_map.read(0.0) is None


def write_slot(step_map: StepMap, pid: int, count: int, first_ns: int, last_ns: int) -> None:
    """Write the first slot, with a check that confirms it."""
    check = count ^ last_ns ^ sitecustomize.salt(pid, 1)
    with step_map.path.open("r+b") as file:
        file.seek(sitecustomize.HEADER_BYTES)
        file.write(struct.pack(sitecustomize.SLOT_FORMAT, pid, 1, -1, 0, first_ns, count, last_ns, check))


def fill(step_map: StepMap, owner: ProcessId) -> None:
    """Give every slot to a process that has not finished its first step."""
    slot = struct.pack(sitecustomize.SLOT_FORMAT, owner.pid, owner.start_ticks, -1, 0, 0, 0, 0, 0)
    with step_map.path.open("r+b") as file:
        file.seek(sitecustomize.HEADER_BYTES)
        file.write(slot * ((step_map.path.stat().st_size - sitecustomize.HEADER_BYTES) // sitecustomize.SLOT_BYTES))


def test_the_hook_comes_first_on_a_childs_path_without_a_stray_colon_and_everything_else_is_kept(step_map) -> None:
    hook = str(Path(sitecustomize.__file__).parent)
    for before, made in (({}, hook), ({"PYTHONPATH": ""}, hook), ({"PYTHONPATH": "/a::/b"}, f"{hook}:/a::/b")):
        assert step_map.environment(before)["PYTHONPATH"] == made
    environment = step_map.environment({"HOME": "/home/me"})
    assert (environment["HOME"], environment["AUTOCAP_STEP_MAP"]) == ("/home/me", str(step_map.path))


def test_the_modules_are_there_when_asked_for_and_another_name_is_refused_as_any_module_does() -> None:
    assert autocap.metrics.__name__ == "autocap.metrics"
    assert autocap.records.__name__ == "autocap.records"
    with pytest.raises(AttributeError, match="module 'autocap' has no attribute 'nonsense'"):
        _ = autocap.nonsense


class TestOfName:
    """The map of a job on several nodes: whoever comes first on a machine makes it."""

    name = f"autocap-steps-2-{'ab' * 16}"

    def test_the_first_makes_it_and_the_others_open_it(self, tmp_path: Path) -> None:
        with StepMap.of_name(tmp_path / self.name, everybody) as first:
            assert first.path == tmp_path / self.name
            with StepMap.of_name(tmp_path / self.name, everybody) as second:
                assert os.fstat(first.fd).st_ino == os.fstat(second.fd).st_ino
            assert first.path.exists()
        assert not first.path.exists()

    def test_who_is_not_asked_for_is_not_counted(self, tmp_path: Path) -> None:
        with (
            StepMap.of_name(tmp_path / self.name, everybody) as ours,
            StepMap.of_name(tmp_path / self.name, nobody) as theirs,
        ):
            counter = sitecustomize.StepCounter(str(ours.path))
            counter.step()
            assert ours.read(0.0) is not None
            assert theirs.read(0.0) is None

    def test_no_other_file_is_made_or_opened(self, tmp_path: Path) -> None:
        with pytest.raises(AutocapError, match="cannot be made here: no name of a file that counts steps"):
            StepMap.of_name(tmp_path / "passwd", everybody)
        (tmp_path / self.name).write_text("something else")
        with pytest.raises(AutocapError, match=r"the step counter .* holds 14 bytes, not .*; remove it"):
            StepMap.of_name(tmp_path / self.name, everybody)
        assert (tmp_path / self.name).read_text() == "something else"
