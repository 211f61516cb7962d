"""What is kept of recurring jobs: by several processes at once, after a kill, and in whose directory."""

import multiprocessing
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.errors import RecurrenceUnavailable
from autocap.events import MetricInfo
from autocap.metrics import Metric
from autocap.plugins.recur.policy import Outcome, Rules
from autocap.plugins.recur.record import JobSettings, KeptRecurrence, Spent, past
from autocap.plugins.recur.store import FILE, RecurStore, Registered

SETTINGS = JobSettings(
    target="acc >= 0.9",
    rules=Rules(batch_sizes=(16, 32), default=32),
    metric=MetricInfo(name="energy"),
    command=("train", "{batch_size}", "é\udcff"),
)
SPENT = Spent(energy_j=700.0, time_s=7.0, devices=1, most_w=260.0)


def next_of(kept: Sequence[KeptRecurrence]) -> KeptRecurrence:
    number = kept[-1].number + 1 if kept else 0
    return KeptRecurrence(number=number, batch_size=16, outcome=Outcome.RUNNING, started_at="2026-01-01T00:00:00+00:00")


def begun(store: RecurStore, name: str = "nightly") -> tuple[Registered, KeptRecurrence]:
    return store.begin(name, lambda known: SETTINGS, next_of)


@pytest.fixture
def store(tmp_path: Path) -> RecurStore:
    return RecurStore(tmp_path / "state" / "autocap" / "recur")


def finish(store: RecurStore, kept: KeptRecurrence, registered: Registered) -> KeptRecurrence:
    ended = replace(
        kept, outcome=Outcome.REACHED, spent=SPENT, cap_w=180.0, gpus=("A", "B"), run_dir="/runs/é", ended_at="later"
    )
    assert store.finish(registered, ended)
    return ended


def test_what_was_kept_comes_back(store: RecurStore) -> None:
    ended = finish(store, *reversed(begun(store)))
    begun(store, "other")
    settings, found = store.read("nightly")
    assert (settings.rules, settings.command[:2]) == (SETTINGS.rules, ("train", "{batch_size}"))
    assert found == [ended]
    assert [one.cost for one in past(found, Metric(name="edp"))] == [4900.0]
    assert store.names() == ["nightly", "other"]
    assert os.stat(store.place).st_mode & 0o777 == 0o700
    assert os.stat(store.place / FILE).st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_recurrence_whose_process_is_gone_is_lost_and_what_was_finished_stays(store: RecurStore) -> None:
    ended = finish(store, *reversed(begun(store)))
    child = multiprocessing.get_context("spawn").Process(target=_begin_and_die, args=(store.place,))
    child.start()
    child.join()
    assert child.exitcode == 9
    still, _ = begun(store), None
    found = store.read("nightly")[1]
    assert found[0] == ended
    assert [one.outcome for one in found] == [Outcome.REACHED, Outcome.LOST, Outcome.RUNNING]
    assert found[1].reason == "autocap was killed, or the machine was restarted, while it ran"
    assert still[1].number == 2


def _begin_and_die(place: Path) -> None:
    begun(RecurStore(place))
    os._exit(9)


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ("host = 'another', boot = 'another', pid = 999999999", Outcome.RUNNING),  # of another machine nothing is told
        ("boot = 'an earlier one'", Outcome.LOST),  # after a restart nothing runs any more
    ],
)
def test_what_runs_is_told_by_machine_and_boot(store, change, outcome) -> None:
    begun(store)
    with sqlite3.connect(store.place / FILE) as base:
        base.execute(f"UPDATE recurrences SET {change}")
    assert [one.outcome for one in store.read("nightly")[1]] == [outcome]


@pytest.mark.slow
def test_several_at_once_choose_one_after_the_other(store: RecurStore) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_ten_recurrences, args=(store.place,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    found = store.read("nightly")[1]
    assert [one.number for one in found] == list(range(20))
    assert {one.outcome for one in found} == {Outcome.REACHED}


def _ten_recurrences(place: Path) -> None:
    store = RecurStore(place)
    for _ in range(10):
        finish(store, *reversed(begun(store)))


def test_a_reset_forgets_a_job_for_good_also_one_that_runs(store: RecurStore) -> None:
    registered, kept = begun(store)
    assert store.reset("nightly") == 1
    begun(store)
    assert not store.finish(registered, replace(kept, outcome=Outcome.FAILED))
    assert [one.outcome for one in store.read("nightly")[1]] == [Outcome.RUNNING]
    with pytest.raises(RecurrenceUnavailable, match="no recurring job 'weekly' is kept in"):
        store.reset("weekly")


def test_a_recurrence_that_never_started_leaves_its_number(store: RecurStore) -> None:
    store.withdraw(begun(store)[0])
    assert begun(store)[1].number == 0


def test_what_check_refuses_changes_nothing(store: RecurStore) -> None:
    begun(store)

    def refuse(known: JobSettings | None) -> JobSettings:
        raise RecurrenceUnavailable(known.target)

    with pytest.raises(RecurrenceUnavailable, match=r"^acc >= 0[.]9$"):
        store.begin("nightly", refuse, next_of)
    assert len(store.read("nightly")[1]) == 1


def test_a_reader_makes_nothing(store: RecurStore) -> None:
    assert store.names() == []
    with pytest.raises(RecurrenceUnavailable, match="no recurring job 'a' is kept"):
        store.read("a")
    assert not store.place.exists()


@pytest.mark.parametrize("what", ["directory", "file", "link"])
def test_what_others_may_write_is_refused(store: RecurStore, what: str, tmp_path: Path) -> None:
    begun(store)
    file = store.place / FILE
    if what == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    else:
        (store.place if what == "directory" else file).chmod(0o722)
    with pytest.raises(RecurrenceUnavailable, match=r"is no .* of yours alone"):
        store.read("nightly")


def test_a_damaged_file_is_one_sentence(store: RecurStore) -> None:
    begun(store)
    (store.place / FILE).write_bytes(b"no database at all, but long enough to be looked at" * 100)
    said = "file is not a database; it is damaged; move it aside, and the next run begins"
    with pytest.raises(RecurrenceUnavailable, match=said):
        store.read("nightly")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE recurrences SET outcome = 'fine'", "holds what this autocap would not have written"),
        ("PRAGMA user_version = 7", "is of version 7, and this autocap knows 1; update it"),
    ],
)
def test_what_a_stranger_or_a_later_version_wrote_into_it_is_one_sentence(store, change, said) -> None:
    begun(store)
    with sqlite3.connect(store.place / FILE) as base:
        base.execute(change)
    with pytest.raises(RecurrenceUnavailable, match=said):
        store.read("nightly")


def test_a_database_that_another_run_has_just_now_is_to_be_left_where_it_is(store: RecurStore) -> None:
    begun(store)
    with closing(sqlite3.connect(store.place / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        told = pytest.raises(RecurrenceUnavailable, match="another run of autocap has it just now; try again")
        with told as said, store._changing(patience_s=0.0):
            pass
    assert "remove" not in str(said.value)
