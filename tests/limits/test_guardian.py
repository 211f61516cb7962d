"""The guardian from inside its own process: what it sets, what it puts back, and when it refuses."""

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.errors import DeviceError, DeviceLocked, GuardError, LimitClamped, LimitNotEnforced, LimitRefused
from autocap.job.processes import ProcessId, boot_id, identify, own_identity
from autocap.limits import Fate, ForeignLimit, Guardian, settle
from autocap.limits.background_call import BackgroundCall
from autocap.limits.heartbeat import Pulse
from autocap.limits.journal import Entry, Journal
from autocap.limits.recovery import put_back
from autocap.limits.state_dir import StateDir
from autocap.records import GpuInfo
from bench.faults.virtual import Unwatched
from tests.doubles import file_device
from tests.doubles.file_device import FileLimits
from tests.doubles.jobs import children
from tests.doubles.waiting import eventually

NOBODY = ProcessId(2**22 + 1, 1)  # above the largest PID


@pytest.fixture
def two_gpus(tmp_path):
    return file_device.make(tmp_path, 260.0, "gpu0"), file_device.make(tmp_path, 250.0, "gpu1")


def guard(state_dir: Path, *gpus: GpuInfo, limits: FileLimits | None = None, **kwargs: object) -> Guardian:
    return Guardian(kind="file", gpus=gpus, limits=limits or FileLimits(), job=None, state_dir=state_dir, **kwargs)


def unwatched(state_dir: Path, *gpus: GpuInfo, **kwargs: object) -> Guardian:
    """Without the process that watches, for what is seen without it."""
    return guard(state_dir, *gpus, start_watch=Unwatched, **kwargs)


def limit_w(gpu: GpuInfo) -> float | None:
    return FileLimits().requested_w(gpu.uuid)


def left_behind(state_dir: Path) -> list[str]:
    """What must not outlive a run: files of the journal and processes."""
    return [*os.listdir(state_dir), *map(str, children())]


def leave_entry(state_dir: Path, gpu: GpuInfo, **changes: object) -> None:
    """The entry of a run that was killed together with its watchdog: 260 W found, 200 W set."""
    entry = Entry(kind="file", uuid=gpu.uuid, original_w=260.0, last_w=200.0, boot_id=boot_id(), owner=NOBODY, job=None)
    with StateDir(state_dir) as state:
        Journal(state).save(replace(entry, **changes))


def test_the_limit_found_on_arrival_is_put_back_not_the_default_and_not_the_maximum(state_dir, gpu):
    with guard(state_dir, gpu) as guardian:
        assert guardian.original_w == (260.0,)
        guardian.set_caps([200.0])
        assert limit_w(gpu) == 200.0
        guardian.set_caps([180.0])
    assert [cap_w for _, cap_w in file_device.sets(gpu.uuid)] == [200.0, 180.0, 260.0]
    assert left_behind(state_dir) == []


@pytest.mark.slow
def test_it_is_put_back_after_an_error_too(state_dir, gpu):
    def fail() -> None:
        with guard(state_dir, gpu) as guardian:
            guardian.set_caps([200.0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert limit_w(gpu) == 260.0
    assert left_behind(state_dir) == []


def test_a_guardian_that_sets_nothing_changes_nothing(state_dir, gpu):
    with guard(state_dir, gpu) as guardian:
        assert not guardian.beat()
        (restored,) = guardian.restore()
    assert (restored.final_w, restored.restored, restored.note) == (260.0, True, None)
    assert file_device.sets(gpu.uuid) == []


def test_each_set_is_durable_in_the_journal_before_it_is_made(state_dir, gpu):
    story: list[str] = []

    class Telling(FileLimits):
        def set_limit_w(self, uuid: str, cap_w: float) -> None:
            (name,) = [name for name in os.listdir(state_dir) if name.endswith(".json")]
            entry = json.loads((state_dir / name).read_text())
            story.append(f"{entry['original_w']} {entry['last_w']} {entry['next_w']} -> {cap_w}")
            super().set_limit_w(uuid, cap_w)

    with unwatched(state_dir, gpu, limits=Telling(), sync=lambda _fd: story.append("sync")) as guardian:
        story.clear()
        guardian.set_caps([200.0])
        guardian.set_caps([190.0])
        assert story == [
            *("sync", "sync", "260.0 None 200.0 -> 200.0", "sync", "sync"),
            *("sync", "sync", "260.0 200.0 190.0 -> 190.0", "sync", "sync"),
        ]


def test_the_journal_names_boot_owner_and_job(state_dir, gpu):
    with (
        Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=own_identity(), state_dir=state_dir),
        StateDir(state_dir) as state,
    ):
        entry = Journal(state).load(gpu.uuid)
        assert (entry.boot_id, entry.owner, entry.job) == (boot_id(), own_identity(), own_identity())


def test_a_second_guardian_on_the_device_is_refused_with_the_pid_of_the_first(state_dir, gpu):
    with unwatched(state_dir, gpu) as first:
        first.set_caps([200.0])
        with pytest.raises(DeviceLocked, match=f"is controlled by autocap with PID {os.getpid()}"):
            unwatched(state_dir, gpu).__enter__()
        assert limit_w(gpu) == 200.0
        assert not first.beat()


@pytest.mark.slow
def test_of_several_devices_all_are_locked_or_none(state_dir, two_gpus):
    with guard(state_dir, two_gpus[1]):
        with pytest.raises(DeviceLocked, match="gpu1"), guard(state_dir, *two_gpus):
            pass
        with guard(state_dir, two_gpus[0]):
            pass
    assert left_behind(state_dir) == []


def test_somebody_elses_limit_is_left_alone_and_said(state_dir, gpu):
    with unwatched(state_dir, gpu) as guardian:
        guardian.set_caps([200.0])
        file_device.put(gpu.uuid, 220.0)
        for _ in range(2):  # it stays so: nothing more is set for that device
            with pytest.raises(ForeignLimit, match=r"is 220 W, where 200 W is ours: somebody else") as caught:
                guardian.set_caps([180.0])
        assert (caught.value.uuid, caught.value.expected_w, caught.value.found_w) == (gpu.uuid, 200.0, 220.0)
        (restored,) = guardian.restore()
        assert (restored.final_w, restored.restored) == (220.0, False)
        assert restored.note == f"{gpu.uuid}: 220 W was set by somebody else meanwhile, and stays"
    assert limit_w(gpu) == 220.0
    assert left_behind(state_dir) == []


def test_a_limit_that_somebody_changed_before_the_first_set_is_noticed(state_dir, gpu):
    with unwatched(state_dir, gpu) as guardian:
        file_device.put(gpu.uuid, 220.0)
        with pytest.raises(ForeignLimit, match="is 220 W, where 260 W is ours"):
            guardian.set_caps([200.0])
        (restored,) = guardian.restore()
        assert (restored.final_w, restored.restored) == (220.0, False)
    assert limit_w(gpu) == 220.0


@pytest.mark.parametrize("by_another_w", [260.0, 200.0])
def test_somebody_who_sets_the_original_or_an_earlier_cap_of_ours_is_noticed(state_dir, gpu, by_another_w):
    with unwatched(state_dir, gpu) as guardian:
        guardian.set_caps([200.0])
        guardian.set_caps([180.0])
        file_device.put(gpu.uuid, by_another_w)
        with pytest.raises(ForeignLimit, match=f"is {by_another_w:g} W, where 180 W is ours"):
            guardian.set_caps([190.0])


def test_a_rounded_limit_is_still_ours(state_dir, gpu):
    class Rounding(FileLimits):
        def set_limit_w(self, uuid: str, cap_w: float) -> None:
            super().set_limit_w(uuid, round(cap_w * 8) / 8)

    with unwatched(state_dir, gpu, limits=Rounding()) as guardian:
        guardian.set_caps([200.06])
        guardian.set_caps([190.06])
    assert limit_w(gpu) == 260.0


def test_a_device_whose_limit_cannot_be_told_is_taken_as_ours(state_dir, gpu):
    class Blind(FileLimits):
        told = True

        def requested_w(self, uuid: str) -> float | None:
            return super().requested_w(uuid) if self.told else None

    limits = Blind()
    with unwatched(state_dir, gpu, limits=limits) as guardian:
        limits.told = False
        guardian.set_caps([200.0])
        guardian.set_caps([180.0])
        (restored,) = guardian.restore()
    assert (restored.final_w, restored.restored) == (None, True)
    assert limit_w(gpu) == 260.0


def test_no_cap_is_set_where_the_limit_found_on_arrival_is_unknown(state_dir, gpu):
    file_device.put(gpu.uuid, None)
    with unwatched(state_dir, gpu) as guardian:
        assert guardian.original_w == (None,)
        with pytest.raises(GuardError, match="cannot be read, so it could not be put back; no cap is set"):
            guardian.set_caps([200.0])
        (restored,) = guardian.restore()
        assert restored.restored
    assert len(file_device.sets(gpu.uuid)) == 1  # the test's own
    assert left_behind(state_dir) == []


def test_caps_can_be_set_again_after_a_restore(state_dir, gpu):
    with guard(state_dir, gpu) as guardian:
        guardian.set_caps([200.0])
        assert [restored.restored for restored in guardian.restore()] == [True]
        assert [restored.restored for restored in guardian.restore()] == [True]
        assert limit_w(gpu) == 260.0
        guardian.set_caps([180.0])
        assert limit_w(gpu) == 180.0
    assert [cap_w for _, cap_w in file_device.sets(gpu.uuid)] == [200.0, 260.0, 180.0, 260.0]


def test_a_set_that_fails_half_way_through_the_devices_leaves_none_behind(state_dir, two_gpus):
    class Refusing(FileLimits):
        def set_limit_w(self, uuid: str, cap_w: float) -> None:
            if uuid == two_gpus[1].uuid and cap_w == 200.0:
                raise LimitRefused("no")
            super().set_limit_w(uuid, cap_w)

    with guard(state_dir, *two_gpus, limits=Refusing()) as guardian:
        with pytest.raises(LimitRefused):
            guardian.set_caps([200.0, 200.0])
        guardian.set_caps([190.0, 190.0])
        with pytest.raises(LimitRefused):
            guardian.set_caps([200.0, 200.0])
    assert [limit_w(gpu) for gpu in two_gpus] == [260.0, 250.0]
    assert left_behind(state_dir) == []


def test_what_a_device_took_instead_of_the_cap_is_put_back_as_well(state_dir, gpu):
    class Clamping(FileLimits):
        def set_limit_w(self, uuid: str, cap_w: float) -> None:
            super().set_limit_w(uuid, max(150.0, cap_w))
            if cap_w < 150.0:
                raise LimitRefused("clamped")

    with unwatched(state_dir, gpu, limits=Clamping()) as guardian:
        with pytest.raises(LimitRefused):
            guardian.set_caps([120.0])
        assert limit_w(gpu) == 150.0
    assert limit_w(gpu) == 260.0


def test_a_cap_next_to_the_original_is_put_back_to_the_milliwatt(state_dir, tmp_path):
    gpu = file_device.make(tmp_path, 260.123)
    with unwatched(state_dir, gpu) as guardian:
        guardian.set_caps([260.0])
        (restored,) = guardian.restore()
        assert (restored.final_w, restored.restored) == (260.123, True)
    assert limit_w(gpu) == 260.123


class Outside(FileLimits):
    """Something outside holds the device at 200 W; what is requested is taken all the same."""

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        super().set_limit_w(uuid, cap_w)
        if cap_w > 200.0:
            raise LimitNotEnforced(f"{cap_w:g} W was requested, but 200 W is enforced", 200.0)


def test_a_limit_that_was_not_enforced_when_we_came_is_put_back_as_it_was(state_dir, gpu):
    with unwatched(state_dir, gpu, limits=Outside()) as guardian:
        guardian.rehearse()
        guardian.set_caps([180.0])
        guardian.set_caps([260.0])  # the baseline again
        with pytest.raises(LimitNotEnforced, match="240 W was requested, but 200 W is enforced"):
            guardian.set_caps([240.0])
        (restored,) = guardian.restore()
        assert (restored.final_w, restored.restored) == (260.0, True)
    assert limit_w(gpu) == 260.0
    assert left_behind(state_dir) == []


def test_a_rehearsal_writes_the_limit_that_is_there_and_finds_out_what_is_not_permitted(state_dir, two_gpus):
    with unwatched(state_dir, *two_gpus) as guardian:
        guardian.rehearse()
        assert [file_device.sets(gpu.uuid) for gpu in two_gpus] == [[(os.getpid(), 260.0)], [(os.getpid(), 250.0)]]
        Path(two_gpus[1].uuid + ".refuse").touch()
        with pytest.raises(LimitRefused, match="gpu1 takes no limit at the moment"):
            guardian.rehearse()
    assert left_behind(state_dir) == []


def test_a_rehearsal_does_not_write_over_what_somebody_has_set_since(state_dir, gpu):
    with unwatched(state_dir, gpu) as guardian:
        file_device.put(gpu.uuid, 210.0)
        with pytest.raises(ForeignLimit, match="210 W, where 260 W is ours: somebody else has changed it"):
            guardian.rehearse()
    assert limit_w(gpu) == 210.0


def test_a_rehearsal_after_a_cap_leaves_the_limit_found_and_caps_can_be_set_again(state_dir, gpu):
    with unwatched(state_dir, gpu) as guardian:
        guardian.set_caps([200.0])
        guardian.rehearse()
        assert limit_w(gpu) == 260.0
        guardian.rehearse()
        guardian.set_caps([190.0])
        assert limit_w(gpu) == 190.0
    assert limit_w(gpu) == 260.0
    assert left_behind(state_dir) == []


@pytest.mark.slow
def test_where_a_limit_cannot_be_put_back_the_others_are_and_its_entry_stays_for_autocap_restore(state_dir, two_gpus):
    refuse = Path(two_gpus[0].uuid + ".refuse")
    with guard(state_dir, *two_gpus) as guardian:
        guardian.set_caps([200.0, 200.0])
        refuse.touch()
        first, second = guardian.restore()
        assert (first.restored, second.restored) == (False, True)
        assert "260 W could not be put back" in first.note
    assert [limit_w(gpu) for gpu in two_gpus] == [200.0, 250.0]
    assert len(left_behind(state_dir)) == 1
    refuse.unlink()
    assert [one.outcome for one in settle(state_dir)] == [Fate.RESTORED]
    assert limit_w(two_gpus[0]) == 260.0
    assert left_behind(state_dir) == []


def test_where_a_device_hangs_the_others_are_put_back_meanwhile(state_dir, two_gpus):
    hangs = Path(two_gpus[0].uuid + ".hang")
    with guard(state_dir, *two_gpus) as guardian:
        guardian.set_caps([200.0, 200.0])
        hangs.touch()
        restoring = threading.Thread(target=guardian.restore)
        restoring.start()
        eventually(lambda: limit_w(two_gpus[1]) == 250.0, 5.0)
        assert limit_w(two_gpus[0]) == 200.0
        hangs.unlink()
        restoring.join()
        assert limit_w(two_gpus[0]) == 260.0


def test_where_a_device_hangs_the_others_have_their_cap_meanwhile(state_dir, two_gpus):
    hangs = Path(two_gpus[0].uuid + ".hang")
    with unwatched(state_dir, *two_gpus) as guardian:
        hangs.touch()
        setting = threading.Thread(target=guardian.set_caps, args=((200.0, 190.0),))
        setting.start()
        eventually(lambda: limit_w(two_gpus[1]) == 190.0, 5.0)
        assert limit_w(two_gpus[0]) == 260.0
        hangs.unlink()
        setting.join()
        assert limit_w(two_gpus[0]) == 200.0


def test_limits_are_put_back_while_one_is_being_set_and_that_one_once_its_driver_answers(state_dir, two_gpus):
    hangs = Path(two_gpus[0].uuid + ".hang")
    with unwatched(state_dir, *two_gpus) as guardian:
        hangs.touch()
        setting = BackgroundCall[None]()
        setting.begin(lambda: guardian.set_caps([200.0, 190.0]))
        eventually(lambda: limit_w(two_gpus[1]) == 190.0, 5.0)
        assert not guardian.beat()
        hanging, other = guardian.restore(within_s=0.1)
        assert limit_w(two_gpus[1]) == 250.0
        assert other.restored
        assert hanging.failure == "its driver has not answered for 0 s"
        assert hanging.note is not None
        assert "whether 260 W is back is not known" in hanging.note
        hangs.unlink()
        assert setting.is_done(5.0)
        with pytest.raises(GuardError, match="put back while caps were being set"):
            setting.take()
        assert limit_w(two_gpus[0]) == 260.0
        guardian.set_caps([200.0, 190.0])
        assert limit_w(two_gpus[0]) == 200.0


def test_a_guardian_that_has_looked_at_its_devices_leaves_no_thread(state_dir: Path, two_gpus) -> None:
    before = threading.active_count()
    for _ in range(3):
        with unwatched(state_dir, *two_gpus) as guardian:
            guardian.set_caps([200.0, 190.0])
            guardian.beat()
            assert threading.active_count() > before, "what the devices make of it is looked at aside"
    eventually(lambda: threading.active_count() == before, 5.0)


class PutBack(Unwatched):
    """Tells once what it did."""

    pulse = Pulse.GUARDING

    def beat(self) -> Pulse:
        heard, PutBack.pulse = self.pulse, Pulse.GUARDING
        return heard


def test_that_limits_were_put_back_is_heard_in_the_middle_of_a_set_as_well(state_dir, gpu):
    """As by another device's thread, while this one is being set."""

    class Limits(FileLimits):
        def set_limit_w(self, uuid: str, cap_w: float) -> None:
            super().set_limit_w(uuid, cap_w)
            if cap_w == 190.0:
                file_device.put(uuid, 260.0)
                PutBack.pulse = Pulse.PUT_BACK
                guardian._exchange()

    with guard(state_dir, gpu, limits=Limits(), start_watch=PutBack) as guardian:
        guardian.set_caps([200.0])
        guardian.set_caps([190.0])
        assert guardian.beat()
        guardian.set_caps([180.0])
        assert not guardian.beat()


def test_a_limit_that_is_put_back_before_it_is_read_back_is_not_said_to_be_clamped(state_dir, gpu):
    """As the watchdog does of one that was stopped in the midst of a set."""

    class Limits(FileLimits):
        def set_limit_w(self, uuid: str, cap_w: float) -> None:
            super().set_limit_w(uuid, cap_w)
            if cap_w == 190.0:
                file_device.put(uuid, 260.0)
                PutBack.pulse = Pulse.PUT_BACK
                raise LimitClamped("cap 190 W is 260 W now", 260.0)

    with guard(state_dir, gpu, limits=Limits(), start_watch=PutBack) as guardian:
        guardian.set_caps([200.0])
        guardian.set_caps([190.0])
        assert guardian.beat()
        guardian.set_caps([180.0])
        assert limit_w(gpu) == 180.0


def test_a_device_that_is_busy_for_a_moment_is_put_back(state_dir, gpu):
    class Busy(FileLimits):
        failures = 2

        def set_limit_w(self, uuid: str, cap_w: float) -> None:
            if cap_w == 260.0 and self.failures:
                self.failures -= 1
                raise DeviceError("busy")
            super().set_limit_w(uuid, cap_w)

    with unwatched(state_dir, gpu, limits=Busy()) as guardian:
        guardian.set_caps([200.0])
        assert [restored.restored for restored in guardian.restore()] == [True]


@pytest.mark.slow
def test_a_restore_that_is_interrupted_at_the_exit_is_finished_by_the_watchdog(state_dir, gpu):
    class Interrupted(FileLimits):
        def set_limit_w(self, uuid: str, cap_w: float) -> None:
            if cap_w == 260.0:
                raise KeyboardInterrupt
            super().set_limit_w(uuid, cap_w)

    with pytest.raises(KeyboardInterrupt), guard(state_dir, gpu, limits=Interrupted()) as guardian:
        guardian.set_caps([200.0])
    assert limit_w(gpu) == 260.0
    assert [one.outcome for one in settle(state_dir)] == [Fate.UNCHANGED]
    assert left_behind(state_dir) == []


def test_without_a_journal_nothing_is_set(state_dir, gpu):
    full = False

    def sync(_fd: int) -> None:
        if full:
            raise OSError(28, "No space left on device")

    with guard(state_dir, gpu, sync=sync) as guardian:
        guardian.set_caps([200.0])
        full = True
        with pytest.raises(GuardError, match="cannot be written"):
            guardian.set_caps([180.0])
        assert limit_w(gpu) == 200.0
    assert limit_w(gpu) == 260.0  # putting back needs no room
    assert left_behind(state_dir) == []


def test_without_a_watchdog_nothing_is_set_and_nothing_is_left(state_dir, gpu):
    guardian = Guardian(kind="unheard-of", gpus=[gpu], limits=FileLimits(), job=None, state_dir=state_dir)
    with pytest.raises(GuardError, match=r"watchdog process does not watch: .*'unheard-of'.*; without it no cap"):
        guardian.__enter__()
    assert left_behind(state_dir) == []


def test_a_watchdog_that_is_not_ready_in_time_is_as_good_as_none(state_dir, gpu):
    with pytest.raises(GuardError, match=r"it was not ready within 0\.001 s"):
        guard(state_dir, gpu, ready_timeout_s=0.001).__enter__()
    assert left_behind(state_dir) == []


def test_a_start_puts_back_what_a_dead_run_left_before_it_reads_the_limit(state_dir, gpu):
    leave_entry(state_dir, gpu)
    file_device.put(gpu.uuid, 200.0)
    with guard(state_dir, gpu) as guardian:
        assert guardian.original_w == (260.0,)
        (note,) = guardian.notes
        assert note == f"{gpu.uuid}: 260 W put back, where autocap with PID {NOBODY.pid} had left 200 W"
    assert limit_w(gpu) == 260.0


def test_a_start_does_not_guard_a_limit_that_a_dead_run_left_and_that_cannot_be_put_back(state_dir, gpu):
    leave_entry(state_dir, gpu)
    file_device.put(gpu.uuid, 200.0)
    Path(gpu.uuid + ".refuse").touch()
    with pytest.raises(GuardError, match=r"earlier run left a limit behind; .*260 W could not be put back"):
        unwatched(state_dir, gpu).__enter__()
    assert len(left_behind(state_dir)) == 1  # the entry, which alone knows of the 260 W


@pytest.mark.parametrize(
    ("changes", "there_w", "note"),
    [
        ({}, 230.0, "230 W was set by somebody else since"),
        # Perhaps the very value, but nothing of ours outlives a reboot.
        ({"boot_id": "another boot"}, 200.0, "the entry is from before a reboot, dropped"),
    ],
)
def test_a_start_leaves_alone_what_is_not_ours_any_more_and_says_so(state_dir, gpu, changes, there_w, note):
    leave_entry(state_dir, gpu, **changes)
    file_device.put(gpu.uuid, there_w)
    with unwatched(state_dir, gpu) as guardian:
        assert guardian.original_w == (there_w,)
        (said,) = guardian.notes
        assert said.startswith(f"{gpu.uuid}: {note}")
    assert limit_w(gpu) == there_w


def test_an_owner_that_lives_is_respected_even_if_its_lock_file_was_removed(state_dir, gpu):
    parent = identify(os.getppid())
    leave_entry(state_dir, gpu, owner=parent)
    with pytest.raises(DeviceLocked, match=f"is in use by PID {parent.pid}, whose lock was removed"):
        unwatched(state_dir, gpu).__enter__()


def test_a_forked_child_neither_restores_nor_sets(state_dir, gpu):
    def in_child(work: Callable[[], None]) -> bool:
        """Whether a forked child, in which the guardian's block ends as well, did that as it should."""
        if (pid := os.fork()) == 0:
            try:
                work()
                guardian.__exit__(None, None, None)
                os._exit(0)
            finally:
                os._exit(1)
        return os.waitpid(pid, 0)[1] == 0

    def set_refused() -> None:
        with pytest.raises(GuardError, match="not to its forked child"):
            guardian.set_caps([180.0])

    with guard(state_dir, gpu) as guardian:
        guardian.set_caps([200.0])
        assert in_child(set_refused)
        assert limit_w(gpu) == 200.0
        assert not guardian.beat()
        with pytest.raises(DeviceLocked), guard(state_dir, gpu):
            pass
    assert limit_w(gpu) == 260.0


def test_a_limit_that_was_put_back_and_does_not_read_back_is_not_said_to_be_restored(state_dir, gpu):
    class Stuck(FileLimits):
        def set_limit_w(self, uuid: str, cap_w: float) -> None:
            """Takes it without a word, and keeps what it has."""

    entry = Entry(kind="file", uuid=gpu.uuid, original_w=230.0, last_w=260.0, boot_id=boot_id(), owner=NOBODY)
    with pytest.raises(LimitRefused, match="reads 260 W after 230 W was put back"):
        put_back(Stuck(), entry)
