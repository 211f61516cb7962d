"""What is known of cards on disk and in files for others: as it was, bounded, and nothing of anybody's."""

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autocap.errors import MemoryUnavailable
from autocap.records import RelativePoint
from autocap.runlog.memory.card import (
    CARD_FORMAT,
    MOST_CARD_POINTS,
    MOST_CARDS,
    MOST_GPUS,
    MOST_HANDED_BYTES,
    MOST_JOBS,
    CardCurve,
    CardRecord,
    binds_at,
    card_bytes,
    card_from,
    cards_bytes,
    cards_from,
    digest,
    handed_on,
    least_energy_at,
    median_range,
    relative,
    taken_in,
    waits_for_memory,
)
from autocap.runlog.memory.store import MemoryStore
from tests.doubles.feeds import measurement
from tests.doubles.memories import entry


def point(cap: float, power: float = 0.7, time: float = 1.05) -> RelativePoint:
    return RelativePoint(cap=cap, power=power, time=time, power_rel_stderr=0.003, period_rel_stderr=0.007)


def shown(job: str = "a", draw: float = 0.9, *points: RelativePoint) -> CardCurve:
    """job: the first digits of its key."""
    return CardCurve(
        job=job + "0" * (64 - len(job)),
        work="f" * 64,
        gpus=("GPU-1234",),
        driver="550",
        measured_at="2026-06-01T12:00:00+00:00",
        settle_s=0.5,
        window_s=0.1,
        draw=draw,
        points=points or (point(0.5), point(0.7, 0.85, 1.02)),
    )


def record(*curves: CardCurve, model: str = "Quadro RTX 6000") -> CardRecord:
    return CardRecord(format=CARD_FORMAT, kind="nvml", emulated=False, model=model, curves=curves or (shown(),))


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "state" / "autocap" / "memory")


def test_a_record_comes_back_as_it_was_kept_and_is_nobody_elses(store: MemoryStore) -> None:
    store.write_card(record())
    assert store.cards() == [record()]
    assert store.card(record().key) == record()
    (file,) = store.place.iterdir()
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(store.place.stat().st_mode)) == (0o600, 0o700)
    assert store.entries() == []  # of jobs


def test_a_job_is_known_by_its_latest_curve_and_the_oldest_jobs_go() -> None:
    found = record()
    for number in range(MOST_JOBS + 4):
        found = found.with_curve(shown(f"{number:02d}"))
    found = found.with_curve(shown("10", 0.5))
    assert len(found.curves) == MOST_JOBS
    assert found.curves[-1].draw == 0.5
    assert len({one.job for one in found.curves}) == MOST_JOBS


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"\xff", b"x" * (200 << 10), b'{"format": 1}'])
def test_a_damaged_file_counts_as_none_and_is_replaced(store: MemoryStore, text: bytes) -> None:
    store.write_card(record())
    file = store.place / f"card-{record().key}.json"
    file.write_bytes(text)
    assert store.cards() == []
    store.write_card(record(shown("b")))
    assert store.cards() == [record(shown("b"))]


def test_files_that_are_a_link_or_writable_by_others_are_not_used(store: MemoryStore, tmp_path: Path) -> None:
    store.write_card(record())
    file = store.place / f"card-{record().key}.json"
    file.chmod(0o622)
    assert store.cards() == []
    other = tmp_path / "other.json"
    other.write_bytes(card_bytes(record()))
    file.unlink()
    os.symlink(other, file)
    assert store.cards() == []


def test_no_more_models_are_kept_than_there_is_room_for(store: MemoryStore) -> None:
    for number in range(MOST_CARDS + 3):
        store.write_card(record(model=f"card {number}"))
        os.utime(store.place / f"card-{record(model=f'card {number}').key}.json", (number, number))
    assert [one.model for one in store.cards()] == [f"card {number}" for number in range(MOST_CARDS + 2, 2, -1)]


def test_of_too_many_models_those_go_first_of_which_nothing_was_measured_here(store: MemoryStore) -> None:
    store.write_card(record(model="own"))
    for number in range(MOST_CARDS):
        store.write_card(handed_on(record(model=f"card {number}")))
    kept = {one.model for one in store.cards()}
    assert len(kept) == MOST_CARDS
    assert kept >= {"own", f"card {MOST_CARDS - 1}"}


def test_the_largest_file_for_others_can_be_taken_in() -> None:
    points = [point(1 / 3 + number / 700, 0.1234567890123456, 1.1234567890123456) for number in range(MOST_CARD_POINTS)]
    jobs = [shown(f"{number:02d}", 0.5 + number / 70, *points) for number in range(MOST_JOBS)]
    assert MOST_CARDS * len(cards_bytes([record(*jobs)])) <= MOST_HANDED_BYTES
    many = [replace(one, gpus=tuple(f"GPU-{place:036d}" for place in range(MOST_GPUS))) for one in jobs]
    assert card_bytes(record(*many))


def test_who_forgets_a_job_forgets_what_it_told_of_cards(store: MemoryStore) -> None:
    store.write(entry("aa"))
    store.write_card(record(shown("aa"), shown("bb")))
    store.write_card(record(shown("aa"), model="other"))
    store.forget(entry("aa").key)
    assert [one.curves for one in store.cards()] == [(shown("bb"),)]
    assert store.forget_all() == (0, 1)
    assert list(store.place.iterdir()) == []


def test_shares_are_of_the_devices_own_limit_and_baseline() -> None:
    baseline = measurement(100.0, cap_w=250.0)
    found = relative(baseline, {125.0: measurement(60.0, cap_w=125.0)})
    assert found is not None
    assert found.draw == pytest.approx(baseline.power_w / 250)
    assert [one.cap for one in found.points] == [0.5]
    assert found.points[0].power == pytest.approx(0.6)
    assert found.points[0].time == pytest.approx(1.0)
    assert relative(baseline, {}) is None
    uneven = replace(baseline, setting=(250.0, 200.0))
    assert relative(uneven, {125.0: measurement(60.0, cap_w=125.0)}) is None


def test_what_is_derived_for_display() -> None:
    one = shown("a", 0.8, point(0.5, 0.6, 1.2), point(0.7, 0.85, 1.02), point(0.9, 1.0, 1.0))
    assert (binds_at(one), least_energy_at(one), waits_for_memory(one)) == (0.8, 0.5, True)
    assert binds_at(shown("a", 0.8, point(0.9, 1.0, 1.0))) is None
    assert median_range([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert median_range([1.0, 2.0]) == (1.5, 1.0, 2.0)


def test_a_file_for_others_names_nobody_and_comes_back() -> None:
    text = cards_bytes([record(shown("a"), shown("b", 0.6))])
    assert b"GPU-1234" not in text
    assert shown("a").job.encode() not in text
    assert b"f" * 64 not in text
    (found,) = cards_from(text)
    assert [one.draw for one in found.curves] == [0.9, 0.6]
    assert handed_on(found) == found


def test_curves_are_taken_in_once_and_never_in_place_of_those_measured_here() -> None:
    handed = handed_on(record(shown("a"), shown("b", 0.6)))
    assert taken_in(None, handed) == (handed, 2)
    assert taken_in(handed, handed)[1] == 0
    assert taken_in(record(shown("a")), handed)[1] == 1  # the other is this one
    own = record(*(shown(f"{number:02d}", 0.5 + number / 100) for number in range(MOST_JOBS)))
    joined, new = taken_in(own, handed)
    assert (joined.curves, new) == (own.curves, 0)


def damaged(change: Callable[[Any], object]) -> bytes:
    found = json.loads(cards_bytes([record()]))
    change(found)
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (b"[]", "keys autocap_cards and cards"),
        (damaged(lambda file: file.update(autocap_cards=2)), "format is none"),
        (damaged(lambda file: file.update(cards=[])), "1 to 16 cards"),
        (damaged(lambda file: file.update(cards=file["cards"] * 2)), "a card twice"),
        (damaged(lambda file: file["cards"][0].update(command="rm")), "keys that it should not have"),
        (damaged(lambda file: file["cards"][0].update(model="")), "model may have 1 to 200"),
        (damaged(lambda file: file["cards"][0].update(format=7)), "its format is 7"),
        (damaged(lambda file: file["cards"][0].update(curves=[])), "it has 0 curves, and may have 1 to 16"),
        (damaged(lambda file: file["cards"][0]["curves"][0].update(draw=9.0)), "card 1: curve 1: draw is 9"),
        (
            damaged(lambda file: file["cards"][0]["curves"][0].update(draw=1e300)),
            "draw: a number is not finite, or bey",
        ),
        (damaged(lambda file: file["cards"][0]["curves"][0].update(job="me")), "64 hexadecimal digits"),
        (damaged(lambda file: file["cards"][0]["curves"][0].update(gpus=["GPU-1"])), "on which machine"),
        (damaged(lambda file: file["cards"][0]["curves"][0].update(measured_at="now")), "no moment"),
        (damaged(lambda file: file["cards"][0]["curves"][0].update(driver="../..")), "driver"),
        (
            damaged(lambda file: file["cards"][0]["curves"][0].update(points=[])),
            "it has 0 points, and may have 1 to 40",
        ),
        (damaged(lambda file: file["cards"][0]["curves"][0]["points"][0].update(time=-1.0)), "time of a point is -1"),
        (damaged(lambda file: file["cards"][0]["curves"][0].update(draw=0.7)), "digest of a curve"),
    ],
)
def test_a_file_that_is_none_of_ours_is_refused_and_says_why(text: bytes, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        cards_from(text)


def test_a_record_too_damaged_to_be_read_is_not_written(store: MemoryStore) -> None:
    with pytest.raises(MemoryUnavailable, match=r"what is known of Quadro RTX 6000 is not kept: .* draw is 5"):
        store.write_card(record(shown("a", 5.0)))
    with pytest.raises(ValueError, match="of another card"):
        card_from(card_bytes(record()), "0" * 64)
    assert digest(shown("a")) == digest(replace(shown("b"), gpus=(), work=""))


@pytest.mark.slow
def test_what_another_autocap_has_removed_meanwhile_stops_nothing(store: MemoryStore, monkeypatch) -> None:
    for number in range(MOST_CARDS):
        store.write_card(record(model=f"card {number}"))
    store.write(entry("aa"))
    unlink, lost = os.unlink, list[str]()

    def slow(name: str, *, dir_fd: int) -> None:
        if not lost:
            lost.append(name)
            unlink(name, dir_fd=dir_fd)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", slow)
    store.write_card(record(model="one more"))
    assert len(lost) == 1
    lost.clear()
    assert store.forget_all() == (1, MOST_CARDS)
    assert list(store.place.iterdir()) == []
