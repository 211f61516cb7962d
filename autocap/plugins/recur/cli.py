"""`autocap recur`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.cli import options
from autocap.cli.completion import offer
from autocap.cli.session import session_clock
from autocap.cli.settings import take
from autocap.config import values
from autocap.config.option import options_of, record_from
from autocap.errors import UsageError
from autocap.job.invoking_user import invoking_user
from autocap.plugins.recur.config import RecurConfig, job_name
from autocap.text import did_you_mean, note, put, put_json

if TYPE_CHECKING:  # it imports numpy, which is to come after the clock
    from autocap.plugins.recur.store import RecurStore

WORDS = ("status", "reset")
_REQUIRED = ("--name", "--batch-sizes", "--target")


class Recur:
    """Run the next recurrence of a job that comes again, with the batch size that is expected to reach its target at
    the lowest cost, and tune its power caps while it runs; end with its exit status.

    CMD has {batch_size} where the job takes its batch size. The other options are those of `autocap run`. `status`
    shows what is known of a job, or lists all; `reset` forgets one.
    """

    is_session = True

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = (
            "autocap recur --name NAME --batch-sizes LIST --target 'VALUE >= X' [options] -- CMD … {batch_size} …\n"
            "       autocap recur status [NAME] [--json] [--html] [--plots] [--out DIR]\n"
            "       autocap recur reset NAME"
        )
        spoken = parser.add_argument(
            "words", metavar="status | reset", nargs="*", type=values.word, help=argparse.SUPPRESS
        )
        offer(spoken, lambda: WORDS)
        options.declare(parser, "recur", RecurConfig)
        shown = parser.add_argument_group("of status")
        shown.add_argument("--html", action="store_true", help="write NAME.html into --out, or here: one file")
        shown.add_argument("--plots", action="store_true", help="write its picture as SVG")

    def run(self, args: argparse.Namespace) -> int:
        if args.words:
            return _speak(args)
        if args.html or args.plots:
            raise UsageError("--html and --plots are of `autocap recur status`; leave them out")
        if not args.child:
            raise UsageError("a command is missing; write `autocap recur [options] -- CMD … {batch_size} …`")
        take(args, "recur")
        config = recur_config(args)
        with session_clock() as clock:
            from autocap.plugins.recur.session import recur
            from autocap.plugins.recur.store import RecurStore

            return recur(config, clock, RecurStore.default())


def recur_config(args: argparse.Namespace) -> RecurConfig:
    """The recurrence that parsed options mean. Raises UsageError for what the command line alone shows to be wrong."""
    if invoking_user() is not None:
        raise UsageError("autocap recur does not work under sudo; run it as yourself, with the helper to set limits")
    given = vars(args)
    missing = [flag for flag in _REQUIRED if flag.removeprefix("--").replace("-", "_") not in given]
    if missing:
        raise UsageError(f"autocap recur needs {' and '.join(missing)} as well")
    return record_from(RecurConfig, "recur", given, run=options.run_config(args, "run"))


def _speak(args: argparse.Namespace) -> int:
    word, *names = args.words
    if word not in WORDS:
        raise UsageError(
            f"'{word}' is neither an option nor a word of `autocap recur`{did_you_mean(word, WORDS)}; write the job's "
            "command behind `--`"
        )
    if args.child is not None or any(
        option.keyword in vars(args) for option in options_of(RecurConfig, "recur") if "recur" in option.commands
    ):
        raise UsageError(f"`autocap recur {word}` runs nothing; leave out what a recurrence would need")
    if len(names) > 1 or (word == "reset" and not names):
        raise UsageError(f"`autocap recur {word}` is followed by {'one' if word == 'reset' else 'at most one'} name")
    try:
        chosen = [job_name(name) for name in names]
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error)) from None
    if invoking_user() is not None:
        raise UsageError("autocap recur does not work under sudo; run it as yourself")
    from autocap.plugins.recur.store import RecurStore

    store = RecurStore.default()
    if word == "reset":
        count = store.reset(chosen[0])
        put(f"forgotten: {chosen[0]}, {count} recurrence{'s' * (count != 1)}")
    elif chosen:
        _show(store, chosen[0], args)
    else:
        known = store.names()
        if getattr(args, "json", False):
            put_json(known)
        else:
            put(*(known or [f"no recurring job in {store.place}"]))
    return 0


def _show(store: "RecurStore", name: str, args: argparse.Namespace) -> None:
    from autocap.plugins.recur.document import present
    from autocap.reports import rendering, text

    report = present(name, *store.read(name))
    place = getattr(args, "out", Path())
    if args.html:
        note(f"wrote {rendering.write_page(place, report, f'{name}.html')}")
    if args.plots:
        for path in rendering.write_plots(place, report):
            note(f"wrote {path}")
    if getattr(args, "json", False):
        put_json(report.result)
    else:
        text.show(report.document)
