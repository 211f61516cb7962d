"""A knob other than the power limit: guarded, journalled and put back as a limit is, by its own values and unit."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autocap.cli import session
from autocap.config import RunConfig, TuneConfig
from autocap.devices import outside_limits
from autocap.devices.plugged import as_limits
from autocap.errors import (
    DeviceLocked,
    DeviceUnavailable,
    GuardError,
    LimitIgnored,
    LimitRefused,
    UsageError,
)
from autocap.job.processes import ProcessId, boot_id, own_identity
from autocap.knobs import Knob
from autocap.limits import Fate, ForeignLimit, Guardian, settle
from autocap.limits.journal import Entry, Journal, Turned, encode
from autocap.limits.state_dir import StateDir
from autocap.limits.watchdog import Duty, Watchdog
from autocap.metrics import Metric
from autocap.records import GpuInfo
from bench.faults.virtual import Unwatched
from tests.doubles import file_device
from tests.doubles.file_device import CLOCK, MODE, FileKnob, knob_at, knob_sets, put_knob
from tests.doubles.jobs import children
from tests.doubles.waiting import eventually
from tests.limits.test_watchdog import LOADED_S, WITHIN_DEATH_S, WITHIN_SILENCE_S, controller, wait_for

NOBODY = ProcessId(2**22 + 1, 1)  # above the largest PID
FINE = Knob.stepped("clock", 600.0, 1500.0, 15.0, unit="MHz")
DOWN = replace(CLOCK, faster="down")


def guard(state_dir: Path, gpu: GpuInfo, knob: Knob = CLOCK, port: FileKnob | None = None, **more: object) -> Guardian:
    limits = as_limits(port or FileKnob(knob.name))
    return Guardian(kind="file", gpus=[gpu], limits=limits, job=None, state_dir=state_dir, knob=knob, **more)


def unwatched(state_dir: Path, gpu: GpuInfo, knob: Knob = CLOCK, **more: object) -> Guardian:
    return guard(state_dir, gpu, knob, start_watch=Unwatched, **more)


def left_behind(state_dir: Path) -> list[str]:
    return [*os.listdir(state_dir), *map(str, children())]


@pytest.mark.parametrize(
    ("knob", "found", "setting_found", "settings", "values"),
    [
        (CLOCK, 1500.0, 7.0, (1.0, 3.5), [600.0, 975.0]),
        (CLOCK, 1250.0, 1 + 650 / 150, (7.0,), [1500.0]),  # between two of the list
        (DOWN, 1500.0, 1.0, (7.0,), [600.0]),
        (MODE, 0.0, 1.0, (3.0, 2.0), [2.0, 1.0]),
    ],
)
def test_it_is_found_set_held_and_put_back_and_the_limit_is_not_touched(
    state_dir, gpu, knob, found, setting_found, settings, values
):
    put_knob(gpu.uuid, knob.name, found)
    with guard(state_dir, gpu, knob) as guardian:
        assert (guardian.original_w, guardian.found) == ((found,), (pytest.approx(setting_found),))
        guardian.rehearse()
        for setting in settings:
            guardian.set_caps([setting])
            assert not guardian.beat()
        guardian.set_caps(guardian.found)
        assert knob_at(gpu.uuid, knob.name) == found  # to the last digit, also between two settings
        (restored,) = guardian.restore()
        assert (restored.original_w, restored.final_w, restored.restored, restored.note) == (found, found, True, None)
        assert guardian.knob.setting_or_none(restored.final_w) == guardian.found[0]
        guardian.set_caps([settings[0]])
    done = [found, *values, found, values[0], found]
    assert knob_sets(gpu.uuid)[1:] == [(os.getpid(), knob.name, value) for value in done]
    assert file_device.sets(gpu.uuid) == []
    assert left_behind(state_dir) == []


def test_each_set_is_in_the_journal_before_it_is_made(state_dir, gpu):
    story: list[list[object]] = []

    class Telling(FileKnob):
        def set(self, uuid: str, value: float) -> None:
            (name,) = [name for name in os.listdir(state_dir) if name.endswith(".json")]
            entry = json.loads((state_dir / name).read_text())
            story.append([entry[key] for key in ("schema", "original", "last", "next")])
            super().set(uuid, value)

    with unwatched(state_dir, gpu, port=Telling("clock")) as guardian:
        guardian.set_caps([1.0])
        guardian.set_caps([2.0])
    assert story == [[2, 1500.0, None, 600.0], [2, 1500.0, 600.0, 750.0], [2, 1500.0, 750.0, None]]


@pytest.mark.parametrize(
    ("knob", "found", "why"),
    [
        (MODE, 7.0, r"is at mode 7, which is none of the settings of the knob mode \(calm, mixed, eager\); set it to"),
        (CLOCK, 2000.0, r"is at clock 2000 MHz, which is none of .* knob clock \(600 MHz to 1500 MHz\); set it to one"),
    ],
)
def test_a_value_found_that_is_no_setting_is_refused_and_nothing_is_left(state_dir, gpu, knob, found, why):
    put_knob(gpu.uuid, knob.name, found)
    with pytest.raises(GuardError, match=why):
        guard(state_dir, gpu, knob).__enter__()
    assert knob_at(gpu.uuid, knob.name) == found
    assert left_behind(state_dir) == []


def test_nothing_is_set_where_the_value_found_is_not_known(state_dir, gpu):
    put_knob(gpu.uuid, "mode", None)
    with unwatched(state_dir, gpu, MODE) as guardian:
        assert guardian.found == (None,)
        with pytest.raises(GuardError, match=r"^the mode found on .*/gpu0 cannot be read, so .*; mode is not set$"):
            guardian.set_caps([1.0])
    assert knob_sets(gpu.uuid) == [(os.getpid(), "mode", None)]


def test_a_knob_that_is_not_read_again_is_put_back_all_the_same(state_dir, gpu):
    class Blind(FileKnob):
        told = True

        def requested(self, uuid: str) -> float | None:
            return super().requested(uuid) if self.told else None

    port = Blind("clock")
    with unwatched(state_dir, gpu, port=port) as guardian:
        port.told = False
        guardian.set_caps([1.0])
        guardian.set_caps([2.0])
        (restored,) = guardian.restore()
    assert (restored.final_w, restored.restored) == (None, True)
    assert knob_at(gpu.uuid, "clock") == 1500.0


@pytest.mark.parametrize(
    ("knob", "ours", "by_another", "said"),
    [
        (FINE, 26.0, 1000.0, ("clock 1000 MHz", "clock 975 MHz")),  # which a card of steps might make of it
        (MODE, 1.0, 2.0, ("mode 2", "mode 0")),
    ],
)
def test_what_somebody_else_has_set_is_left_alone_and_said_with_its_unit(state_dir, gpu, knob, ours, by_another, said):
    with unwatched(state_dir, gpu, knob) as guardian:
        guardian.set_caps([ours])
        put_knob(gpu.uuid, knob.name, by_another)
        assert not guardian.beat()
        for _ in range(2):
            with pytest.raises(ForeignLimit) as caught:
                guardian.set_caps([2.0])
            assert str(caught.value) == (
                f"{gpu.uuid} is at {said[0]}, where {said[1]} is ours: somebody else has changed it, so it is not set "
                f"there any more; start again once nothing else sets {knob.name}"
            )
        (restored,) = guardian.restore()
        assert (restored.final_w, restored.restored) == (by_another, False)
        assert guardian.knob.setting_or_none(7.0) is guardian.knob.setting_or_none(None) is None
        assert restored.note == f"{gpu.uuid}: {said[0]} was set by somebody else meanwhile, and stays"
    assert knob_at(gpu.uuid, knob.name) == by_another
    assert left_behind(state_dir) == []


def test_a_value_that_is_ignored_is_asked_for_again_and_one_that_is_refused_leaves_nothing(state_dir, gpu):
    class Deaf(FileKnob):
        ignores = 2

        def set(self, uuid: str, value: float) -> None:
            if self.ignores:
                self.ignores -= 1
                raise LimitIgnored("it stays where it was", knob_at(uuid, "clock"))
            super().set(uuid, value)

    with unwatched(state_dir, gpu, port=Deaf("clock")) as guardian:
        guardian.set_caps([1.0])
        assert knob_at(gpu.uuid, "clock") == 600.0
        refuse = Path(gpu.uuid + ".refuse")
        refuse.touch()
        with pytest.raises(LimitRefused, match="takes no limit at the moment"):
            guardian.set_caps([2.0])
        (restored,) = guardian.restore()
        assert restored.note is not None
        assert restored.note.startswith(f"{gpu.uuid}: clock 1500 MHz could not be put back: ")
        refuse.unlink()
    assert knob_at(gpu.uuid, "clock") == 1500.0


def test_what_is_set_are_settings_of_the_knob_and_as_many_as_devices(state_dir, gpu):
    with unwatched(state_dir, gpu, MODE) as guardian:
        with pytest.raises(ValueError, match="4 is no setting of the knob mode, which has 3"):
            guardian.set_caps([4.0])
        with pytest.raises(ValueError, match="2 caps for 1 guarded devices"):
            guardian.set_caps([1.0, 1.0])
    assert knob_sets(gpu.uuid) == []


@pytest.mark.parametrize("knob", [None, CLOCK, MODE])
def test_a_device_has_one_owner_whatever_is_turned(state_dir, gpu, knob):
    with unwatched(state_dir, gpu) as first:
        first.set_caps([1.0])
        other = Guardian(
            kind="file",
            gpus=[gpu],
            limits=file_device.FileLimits() if knob is None else as_limits(FileKnob(knob.name)),
            job=None,
            state_dir=state_dir,
            start_watch=Unwatched,
            **({} if knob is None else {"knob": knob}),
        )
        with pytest.raises(DeviceLocked, match=f"is controlled by autocap with PID {os.getpid()}"):
            other.__enter__()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "settings", "name", "set_to"),
    [
        ((), "1,3", "clock", 900.0),
        (("--fork-server",), "1,3", "clock", 900.0),
        (("--standby",), "1,3", "clock", 900.0),
        ((), "1,3", "mode", 2.0),
    ],
)
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_its_watchdog_puts_it_back(state_dir, gpu, options, settings, name, set_to, signum):
    found = knob_at(gpu.uuid, name)
    with controller(state_dir, gpu, caps=settings, options=(*options, "--knob", name)) as process:
        wait_for(process, "set 3")
        assert knob_at(gpu.uuid, name) == set_to
        process.send_signal(signum)
        within_s = (WITHIN_DEATH_S if signum == signal.SIGKILL else WITHIN_SILENCE_S) + LOADED_S
        eventually(lambda: knob_at(gpu.uuid, name) == found, within_s)
        if signum == signal.SIGSTOP:
            process.send_signal(signal.SIGCONT)
            wait_for(process, "put back")
            wait_for(process, "set 3")
            assert knob_at(gpu.uuid, name) == set_to
            process.kill()
        eventually(lambda: os.listdir(state_dir) == [], 5.0)
    assert knob_at(gpu.uuid, name) == found
    assert file_device.sets(gpu.uuid) == []


@pytest.mark.parametrize("point", ["fsync 3", "setting 0", "set 0", "fsync 4", "setting 1", "set 1"])
def test_after_a_crash_of_both_it_is_put_back_later(state_dir, gpu, point):
    with controller(state_dir, gpu, caps="1,3", options=("--knob", "clock", "--die", point, "--both")) as process:
        assert process.wait(120) == -signal.SIGKILL
    there = knob_at(gpu.uuid, "clock")
    (foreseen,) = settle(state_dir, observe=True)
    since = f"unless somebody else has set a clock since PID {process.pid} ended"
    assert foreseen.sentence == f"{gpu.uuid}: clock 1500 MHz would be put back, {since}"
    (one,) = settle(state_dir)
    if there == 1500.0:
        assert one.outcome is Fate.UNCHANGED
        assert one.sentence.endswith("ended without restoring it, but it is at its clock 1500 MHz already")
    else:
        who = f"autocap with PID {process.pid} had left clock {there:g} MHz"
        assert (one.outcome, one.sentence) == (Fate.RESTORED, f"{gpu.uuid}: clock 1500 MHz put back, where {who}")
    assert knob_at(gpu.uuid, "clock") == 1500.0
    assert os.listdir(state_dir) == []


def leave_entry(state_dir: Path, gpu: GpuInfo, **changes: object) -> None:
    """The entry of a run that was killed together with its watchdog: mode 0 found, mode 2 set."""
    knob = Turned.of(MODE)
    entry = Entry(
        kind="file", uuid=gpu.uuid, original_w=0.0, last_w=2.0, boot_id=boot_id(), owner=NOBODY, job=None, knob=knob
    )
    put_knob(gpu.uuid, "mode", 2.0)
    with StateDir(state_dir) as state:
        Journal(state).save(replace(entry, **changes))


def test_a_start_puts_back_another_knob_than_its_own_that_a_dead_run_left(state_dir, gpu):
    leave_entry(state_dir, gpu)
    with unwatched(state_dir, gpu, CLOCK) as guardian:
        note = f"{gpu.uuid}: mode 0 put back, where autocap with PID {NOBODY.pid} had left mode 2"
        assert guardian.notes == (note,)
    assert knob_at(gpu.uuid, "mode") == 0.0
    assert left_behind(state_dir) == []


def test_what_somebody_else_has_set_since_stays(state_dir, gpu):
    leave_entry(state_dir, gpu)
    put_knob(gpu.uuid, "mode", 1.0)
    (one,) = settle(state_dir)
    since = f"since autocap with PID {NOBODY.pid} ended, and stays"
    assert (one.outcome, one.sentence) == (Fate.FOREIGN, f"{gpu.uuid}: mode 1 was set by somebody else {since}")
    assert knob_at(gpu.uuid, "mode") == 1.0


def test_a_watchdog_leaves_another_knob_to_whoever_sees_to_that(state_dir, gpu):
    """As one that has not left yet, when its controller has begun to turn something else."""
    owner = own_identity()
    told, ours = os.pipe()
    leave_entry(state_dir, gpu, owner=owner)
    with StateDir(state_dir) as state, os.fdopen(told, "rb"), os.fdopen(ours, "wb"):
        for knob, expected in (("power-limit", 2.0), ("clock", 2.0), ("mode", 0.0)):
            duty = Duty(state_dir=state_dir, kind="file", owner=owner, job=None, uuids=(gpu.uuid,), knob=knob)
            watchdog = Watchdog(Duty.from_words(duty.words()), state, outside_limits("file", None, knob), ours)
            entry = Journal(state).load(gpu.uuid)
            assert entry is not None
            watchdog._keep(encode(entry))
            watchdog._put_all_back()
            watchdog.close()
            assert knob_at(gpu.uuid, "mode") == expected
    assert file_device.sets(gpu.uuid) == []


def test_without_the_way_back_of_a_watchdog_nothing_is_set(state_dir, gpu, monkeypatch):
    monkeypatch.setattr("autocap.devices._module", lambda kind: SimpleNamespace(__name__="theirs"))
    with pytest.raises(DeviceUnavailable, match=r"put back clock of devices of kind 'x' .*: theirs has no knob_from_"):
        outside_limits("x", None, "clock")


def test_a_kind_whose_module_offers_no_way_back_has_no_knob_guarded(state_dir, gpu):
    guardian = Guardian(
        kind="emulated", gpus=[gpu], limits=as_limits(FileKnob("clock")), job=None, state_dir=state_dir, knob=CLOCK
    )
    with pytest.raises(
        GuardError,
        match=r"watchdog process does not watch: nobody could put back clock of devices of kind 'emulated' after a "
        r"kill: .* has no knob_from_outside; without it clock is not set$",
    ):
        guardian.__enter__()
    assert knob_sets(gpu.uuid) == []
    assert left_behind(state_dir) == []


def test_without_a_journal_it_is_not_set(state_dir, gpu):
    full = False

    def sync(_fd: int) -> None:
        if full:
            raise OSError(28, "No space left on device")

    with unwatched(state_dir, gpu, sync=sync) as guardian:
        full = True
        with pytest.raises(GuardError, match=r"cannot be written .*; without it clock is not set, make room"):
            guardian.set_caps([1.0])
    assert knob_sets(gpu.uuid) == []


def test_under_sudo_no_other_knob_is_set(monkeypatch):
    monkeypatch.setattr(session, "invoking_user", lambda: SimpleNamespace(name="ada"))
    config = RunConfig(command=("true",), tune=TuneConfig(metric=Metric(name="energy"), knob=MODE.name))
    with pytest.raises(
        UsageError, match=r"--knob mode does not work under sudo: .* sets power limits alone; run it as"
    ):
        session.part_under_sudo(config, None, ())
