"""`autocap memory`, and two runs of one job as a user sees them."""

import json
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

import pytest

from autocap.reports import run_list, text
from autocap.runlog import output_directory
from autocap.runlog.memory.card import MOST_CARDS
from autocap.runlog.memory.store import Entry, MemoryStore
from tests.cli.test_cli import EMULATED, Cli, Here, require_said
from tests.doubles.memories import curve, entry
from tests.doubles.waiting import eventually
from tests.runlog.memory.test_card import record, shown


@pytest.fixture
def store(cli: Cli) -> MemoryStore:
    return MemoryStore(Path(cli.env["XDG_STATE_HOME"]) / "autocap" / "memory")


def kept(store: MemoryStore, *keys: str) -> list[Entry]:
    """Entries of today, that used longest ago first."""
    today = replace(curve({180.0: 80.0, 140.0: 85.0}, kept_w=180.0), measured_at=datetime.now(UTC).isoformat())
    made = [entry(key, today) for key in keys]
    for second, one in enumerate(made):
        store.write(one)
        os.utime(store.place / f"{one.key}.json", (second, second))
    return made


def test_the_list_shows_what_was_used_last_first(here: Here, store: MemoryStore) -> None:
    assert here("memory").stdout == f"nothing is remembered in {store.place}\n"
    first, second = kept(store, "aaaa", "bbbb")
    shown = here("memory", "list")
    assert shown.returncode == 0
    assert shown.stdout.splitlines() == [
        "remembered jobs, the one used last first",
        "key           job              on               runs  measured  kept W  metric",
        "bbbb00000000  python train.py  Quadro RTX 6000     1  just now     180  energy",
        "aaaa00000000  python train.py  Quadro RTX 6000     1  just now     180  energy",
    ]
    narrow = "\n".join(text.lines(run_list.remembered_jobs(store.entries(), datetime.now(UTC)), 60))
    assert "python train.py" in narrow
    assert "Quadro" not in narrow
    listed = json.loads(here("memory", "--json").stdout)
    assert [one["key"] for one in listed] == [second.key, first.key]
    assert listed[0]["curves"][0]["kept_w"] == 180.0


def test_one_job_is_shown_with_its_curves(here: Here, store: MemoryStore) -> None:
    (made,) = kept(store, "aaaa")
    text = here("memory", "show", "AAAA").stdout
    assert text.splitlines()[:6] == [
        f"key: {made.key}",
        "job: python train.py",
        "on: Quadro RTX 6000",
        "device: nvml",
        "driver: branch 550",
        "runs: 1, the last by autocap 0.1.0",
    ]
    assert "minimising energy (measured just now, iterations from steps)" in text
    assert [line.split()[0] for line in text.splitlines() if line.endswith(("baseline", "kept"))] == ["260", "180"]
    assert "emulated" not in text
    emulated = replace(made, setup=replace(made.setup, emulated=True))
    store.write(emulated)
    labelled = here("memory", "show", "aaaa").stdout
    assert "device: nvml, EMULATED power: modelled, not measured" in labelled
    assert "iterations from steps, emulated)" in labelled
    assert json.loads(here("memory", "show", made.key, "--json").stdout)[0]["command"] == ["python", "train.py"]


def test_a_job_or_all_of_them_are_forgotten(here: Here, store: MemoryStore) -> None:
    kept(store, "aaaa", "aabb", "cccc")
    assert here("memory", "forget", "aab").returncode == 2
    assert here("memory", "forget", "aabb").stdout == "forgotten: 1 job\n"
    assert [one.key[:4] for one in store.entries()] == ["cccc", "aaaa"]
    assert json.loads(here("memory", "forget", "--all", "--json").stdout) == {"forgotten": 2}
    assert store.entries() == []
    assert here("memory", "forget", "--all").stdout == "forgotten: 0 jobs\n"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("show", 2, "a key is missing; `autocap memory list` shows them: autocap memory show KEY"),
        ("list aaaa", 2, "`autocap memory list` takes no key; write `autocap memory show aaaa`"),
        ("show --all", 2, "--all is of `autocap memory forget`, without a key; leave one of them out"),
        ("forget aaaa --all", 2, "--all is of `autocap memory forget`, without a key"),
        ("show aaa", 2, "'aaa' is no key; give 4 to 64 hexadecimal digits of one"),
        ("show no-key", 2, "'no-key' is no key"),
        ("show cccc", 1, "nothing is remembered with a key that begins cccc; `autocap memory list` shows all"),
        ("show aaaa", 1, "aaaa stands for 2 jobs; give more digits, as `autocap memory list` shows"),
        ("drop", 2, "argument ACTION: invalid choice: 'drop'"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: str, status: int, said: str, here: Here, store: MemoryStore) -> None:
    kept(store, "aaaa11", "aaaa22")
    done = here("memory", *words.split())
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr


def test_a_place_that_others_can_write_is_an_error(here: Here, store: MemoryStore) -> None:
    kept(store, "aaaa")
    store.place.chmod(0o777)
    done = here("memory")
    require_said(done, 1, "can be written by others (mode 0777), so nothing is remembered there")


@pytest.mark.slow
def test_the_second_run_of_a_job_says_what_is_remembered_and_none_is_asked_for_without(cli, store) -> None:
    words = (
        "run", *EMULATED, "--metric", "energy", "--strategy", "fixed", "--strategy-option", "cap=137",
        "--target-stderr", "20%", "--trial-seconds", "2", "--out", "run", "--force",
    )  # fmt: skip
    job = ("--", sys.executable, "job.py", "40")

    def run(event: str, *more: str) -> str:
        (cli.folder / "stop").unlink(missing_ok=True)
        (cli.folder / "run" / "events.jsonl").unlink(missing_ok=True)
        started = cli.start(*words, *more, *job)
        eventually(lambda: cli.events(event))
        assert cli.ended(started) == 0
        return (cli.folder / "err").read_text()

    assert "remembered" not in run("decided")
    (known,) = store.entries()
    assert known.command == job[1:]
    said = run("state_entered")
    assert "autocap: remembered: 1 run of this job on this GPU, " in said
    assert "(energy), measured just now; --no-memory to begin without" in said
    (event,) = cli.events("remembered")
    assert (event["key"], event["runs"]) == (known.key, 1)
    result = json.loads((cli.folder / "run" / "result.json").read_text())
    assert result["remembered"] == {name: event[name] for name in ("key", "runs", "age_s", "cap_w")}
    assert "1 run, " in (cli.folder / "run" / "report.html").read_text()
    assert "remembered" not in run("state_entered", "--no-memory")
    assert store.entries() == [known]


def test_what_is_known_of_cards_is_shown_handed_on_and_taken_in(here: Here, store: MemoryStore) -> None:
    assert here("memory", "cards").stdout == f"nothing is known of any card in {store.place}\n"
    store.write_card(record(shown("a"), shown("b", 0.6)))
    listed = here("memory", "cards").stdout
    assert "Quadro RTX 6000" in listed
    assert "75 (60 to 90)" in listed
    said = here("memory", "cards", "--export", "cards.json")
    assert said.stdout == (
        "written to cards.json: 2 jobs on 1 model of card; it names no command, path, user or machine\n"
    )
    assert here("memory", "import", "cards.json").stdout.endswith("new: 0\n")
    here("memory", "forget", "--all")
    assert here("memory", "import", "cards.json").stdout == (
        "taken in from cards.json: 2 jobs on 1 model of card, new: 2\n"
    )
    assert [one.draw for one in store.cards()[0].curves] == [0.9, 0.6]


def test_what_is_no_file_is_not_replaced_by_what_is_known_of_cards(here: Here, store: MemoryStore, cli: Cli) -> None:
    store.write_card(record())
    os.mkfifo(cli.folder / "pipe")
    (cli.folder / "link").symlink_to("elsewhere")
    for name in ("pipe", "link"):
        refused = here("memory", "cards", "--export", name)
        require_said(refused, 1, f"{name} is no regular file, so it was not replaced; name a file")
    assert (cli.folder / "pipe").is_fifo()
    assert (cli.folder / "link").is_symlink()
    assert json.loads(here("memory", "cards", "--export", "cards.json", "--json").stdout) == {"cards": 1, "jobs": 1}


@pytest.mark.slow
def test_cards_of_others_take_the_place_of_none_that_were_measured_here(here: Here, store: MemoryStore) -> None:
    for number in range(MOST_CARDS):
        store.write_card(record(model=f"card {number}"))
    here("memory", "cards", "--export", "cards.json")
    here("memory", "forget", "--all")
    store.write_card(record(model="own"))
    assert here("memory", "import", "cards.json").stdout == (
        f"taken in from cards.json: 16 jobs on 16 models of card, new: 15; left out: 1, as {MOST_CARDS} models are "
        "kept, and those measured here first\n"
    )
    assert "own" in {one.model for one in store.cards()}
    said = here("memory", "forget", "--all").stdout
    assert said == "forgotten: 0 jobs, and what was known of 16 models of card\n"


def test_what_was_taken_in_before_the_disk_was_full_is_said(
    here: Here, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        store.write_card(record(model=f"card {number}"))
    here("memory", "cards", "--export", "cards.json")
    here("memory", "forget", "--all")
    write, left = output_directory.write, [2]

    def full(file: FileIO, data: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        write(file, data)

    monkeypatch.setattr(output_directory, "write", full)
    said = here("memory", "import", "cards.json")
    require_said(said, 1, "No space left on device")
    assert "2 new jobs of cards.json were taken in before" in said.stderr
    assert len(store.cards()) == 2


def test_cards_that_cannot_be_looked_at_are_not_said_to_be_unknown(here: Here, store: MemoryStore) -> None:
    store.write_card(record())
    store.place.chmod(0o777)
    require_said(here("memory", "cards"), 1, "can be written by others (mode 0777), so nothing is remembered there")


def test_an_emulated_card_is_called_so_once(here: Here, store: MemoryStore) -> None:
    store.write_card(replace(record(model="Quadro RTX 6000 (emulated)"), emulated=True))
    assert here("memory", "cards").stdout.count("(emulated)") == 1


def test_a_file_that_is_no_record_of_cards_is_refused(here: Here, store: MemoryStore, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"autocap_cards": 9, "cards": []}')
    refused = here("memory", "import", str(wrong))
    assert refused.returncode == 1
    assert "its format is none that this version reads, which is 1; nothing of it was taken in" in refused.stderr
    assert here("memory", "import").returncode == 2
    assert here("memory", "list", "--export", "file").returncode == 2
    assert store.cards() == []
