"""`autocap memory`."""

import argparse
import os
import re
import stat
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from autocap.cli import options
from autocap.cli.session import be_the_user
from autocap.cli.settings import take
from autocap.config import values
from autocap.config.option import CommandOption, record_from
from autocap.config.values import shown
from autocap.errors import MemoryUnavailable, UsageError
from autocap.runlog.input_file import read_input
from autocap.runlog.memory.card import (
    MOST_CARDS,
    MOST_HANDED_BYTES,
    CardRecord,
    card_written,
    cards_bytes,
    cards_from,
    taken_in,
)
from autocap.runlog.memory.store import KEY_DIGITS, Entry, MemoryStore, default_place
from autocap.runlog.output_directory import OutputDirectory
from autocap.text import put, put_json

_ACTIONS = ("list", "show", "forget", "cards", "import")
_LEAST_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """How `autocap memory` prints. What it forgets is said on its line alone."""

    json: Annotated[
        bool,
        CommandOption("", "--json", None, "print what is remembered, or forgotten, as a list", commands=("memory",)),
    ] = False


class Memory:
    """Show or forget what is remembered of jobs: the curves that the next run of the same job begins from.

    `list` shows all of them, `show KEY` one, and `forget KEY` or `forget --all` removes them. KEY is as `list` shows
    it, or as much of it as is enough. `cards` shows what jobs on each model of card have shown, which other jobs on it
    begin from; `cards --export FILE` writes that for another machine, which takes it in with `import FILE`.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = (
            "autocap memory [list | show KEY | forget KEY | forget --all | cards [--export FILE] | import FILE] "
            "[--json]"
        )
        parser.add_argument(
            "action", metavar="ACTION", nargs="?", choices=_ACTIONS, default="list",
            help="list, show, forget, cards or import (default: list)",
        )  # fmt: skip
        parser.add_argument(
            "key", metavar="KEY|FILE", nargs="?", type=values.word, help="which job's; of import, what --export wrote"
        )
        parser.add_argument("--all", action="store_true", help="of forget: of every job")
        parser.add_argument(
            "--export", type=values.path, metavar="FILE", help="of cards: write all into a file; it names no job"
        )
        options.declare(parser, "memory", MemoryConfig)

    def run(self, args: argparse.Namespace) -> int:
        be_the_user(args.typed)
        take(args, "memory")
        as_json = record_from(MemoryConfig, "memory", vars(args)).json
        of_cards = args.action in ("cards", "import")
        wants_key = args.action not in ("list", "cards") and not args.all
        if args.all and (args.action != "forget" or args.key is not None):
            raise UsageError("--all is of `autocap memory forget`, without a key; leave one of them out")
        if args.export is not None and args.action != "cards":
            raise UsageError("--export is of `autocap memory cards`; leave it out")
        if args.action == "import" and args.key is None:
            raise UsageError("a file is missing, as `autocap memory cards --export FILE` writes it")
        if wants_key and args.key is None:
            raise UsageError(f"a key is missing; `autocap memory list` shows them: autocap memory {args.action} KEY")
        if not wants_key and args.key is not None:
            raise UsageError(f"`autocap memory {args.action}` takes no key; write `autocap memory show {args.key}`")
        store = own_store()
        if of_cards:
            if args.action == "import":
                _take_in(Path(args.key), store, as_json=as_json)
            else:
                _cards(store, args.export, as_json=as_json)
            return 0
        if args.all:
            jobs, cards = store.forget_all()
            _forgotten(jobs, as_json, cards)
            return 0
        entries = store.entries()
        if wants_key:
            entries = [entry_of(args.key, entries)]
        if args.action == "forget":
            store.forget(entries[0].key)
            _forgotten(1, as_json)
        else:
            _show(entries, store, whole=wants_key, as_json=as_json)
        return 0


def own_store() -> MemoryStore:
    """What the user's runs have shown. Raises MemoryUnavailable for who has no home."""
    place = default_place(None)
    if place is None:
        raise MemoryUnavailable("nothing is remembered of a user without a home; set XDG_STATE_HOME")
    return MemoryStore(place)


def is_key(prefix: str) -> bool:
    """Whether it can be a key, or the beginning of one."""
    return re.fullmatch(rf"[0-9a-fA-F]{{{_LEAST_DIGITS},{KEY_DIGITS}}}", prefix) is not None


def entry_of(prefix: str, entries: Sequence[Entry]) -> Entry:
    """The entry whose key begins so. Raises UsageError for what can be no key, MemoryUnavailable where it stands for
    none or several."""
    if not is_key(prefix):
        raise UsageError(f"{shown(prefix)} is no key; give {_LEAST_DIGITS} to {KEY_DIGITS} hexadecimal digits of one")
    found = [entry for entry in entries if entry.key.startswith(prefix.lower())]
    if not found:
        raise MemoryUnavailable(
            f"nothing is remembered with a key that begins {prefix}; `autocap memory list` shows all"
        )
    if len(found) > 1:
        raise MemoryUnavailable(
            f"{prefix} stands for {len(found)} jobs; give more digits, as `autocap memory list` shows"
        )
    return found[0]


def _show(entries: Sequence[Entry], store: MemoryStore, *, whole: bool, as_json: bool) -> None:
    from autocap.reports import run_list, text
    from autocap.runlog.memory.store import written

    now = datetime.now(UTC)
    if as_json:
        put_json([written(entry) for entry in entries])
    elif whole:
        text.show(run_list.remembered_job(entries[0], now))
    elif entries:
        text.show(run_list.remembered_jobs(entries, now))
    else:
        put(f"nothing is remembered in {store.place}")


def _cards(store: MemoryStore, file: Path | None, *, as_json: bool) -> None:
    """Show what is known of cards, or write it to a file."""
    from autocap.reports import text
    from autocap.reports.card_list import known_cards

    records = store.cards()
    if file is not None:
        if not records:
            raise MemoryUnavailable(f"nothing is known of any card in {store.place}, so {file} was not written")
        _write(file, cards_bytes(records))
        if as_json:
            put_json({"cards": len(records), "jobs": sum(len(record.curves) for record in records)})
        else:
            put(f"written to {file}: {_counted(records)}; it names no command, path, user or machine")
    elif as_json:
        put_json([card_written(record) for record in records])
    elif records:
        text.show(known_cards(records))
    else:
        put(f"nothing is known of any card in {store.place}")


def _write(file: Path, data: bytes) -> None:
    """Raises MemoryUnavailable where the file cannot be written; a device, a link or a pipe is not replaced."""
    try:
        if os.path.lexists(file) and not stat.S_ISREG(os.lstat(file).st_mode):
            raise MemoryUnavailable(f"{file} is no regular file, so it was not replaced; name a file")
        with closing(OutputDirectory(file.parent.absolute(), make=False)) as place:
            place.put(file.name, data)
    except OSError as error:
        raise MemoryUnavailable(f"{file} cannot be written: {error.strerror}; name another place") from error


def _take_in(file: Path, store: MemoryStore, *, as_json: bool) -> None:
    """Take in what was written for others."""
    try:
        handed = cards_from(read_input(file, MOST_HANDED_BYTES))
    except OSError as error:
        raise MemoryUnavailable(f"{file} cannot be read: {error.strerror}; pass what --export wrote") from error
    except (ValueError, TypeError, KeyError) as error:
        raise MemoryUnavailable(
            f"{file} is not what `autocap memory cards --export` writes: {error}; nothing of it was taken in"
        ) from error
    known = {record.key: record for record in store.cards()}
    new, kept = 0, {key for key, record in known.items() if record.is_own}
    for record in handed:
        if record.key not in kept and len(kept) == MOST_CARDS:  # it would take the place of another of them
            continue
        try:
            joined, added = taken_in(known.get(record.key), record)
            if added:
                store.write_card(joined)
        except MemoryUnavailable as error:
            raise MemoryUnavailable(f"{error}; {new} new jobs of {file} were taken in before") from error
        kept.add(record.key)
        new += added
    left_out = len([record for record in handed if record.key not in kept])
    if as_json:
        put_json({"cards": len(handed), "new": new, "left_out": left_out})
    else:
        why = f"; left out: {left_out}, as {MOST_CARDS} models are kept, and those measured here first"
        put(f"taken in from {file}: {_counted(handed)}, new: {new}{why if left_out else ''}")


def _counted(records: Sequence[CardRecord]) -> str:
    jobs = sum(len(record.curves) for record in records)
    return f"{jobs} job{'s' * (jobs != 1)} on {len(records)} model{'s' * (len(records) != 1)} of card"


def _forgotten(count: int, as_json: bool, cards: int = 0) -> None:
    if as_json:
        put_json({"forgotten": count})
    else:
        also = f", and what was known of {cards} model{'s' * (cards != 1)} of card"
        put(f"forgotten: {count} job{'s' * (count != 1)}{also if cards else ''}")
