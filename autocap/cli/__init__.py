"""The command line: each command is a small object with `prepare_parser` and `run`.

Nothing heavy is imported before a command runs, so `autocap --help` answers at once.
"""

import argparse
import logging
import os
import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from autocap import __version__
from autocap.cli.completion import answer, offer
from autocap.cli.logging_setup import log_everything, logged
from autocap.cli.standard_streams import StandardStreams
from autocap.config import values
from autocap.config.option import RENAMED, taken_words
from autocap.errors import AutocapError, UsageError
from autocap.job import registry
from autocap.text import did_you_mean, note, put

DEBUG_VARIABLE = "AUTOCAP_DEBUG"  # has an internal fault shown with its traceback
_LONGEST = 300  # characters of a line that is shown to be typed
_MOST_WORDS = 1000  # argparse takes seconds for ten times as many

# The line that `autocap --help` shows of each.
_SUMMARIES = {
    "run": "start a command and tune its power caps while it runs",
    "attach": "tune a job that runs already",
    "sweep": "run a command under every cap, and compare what they cost",
    "devices": "show the GPUs that there are, and whether their limits can be set",
    "doctor": "look at this machine, and say what keeps caps from being tuned and what mends it",
    "restore": "put back what a killed run left behind",
    "report": "show a finished, killed or running run",
    "runs": "list the runs that were made here, the latest first",
    "memory": "show or forget what is remembered of jobs",
    "budget": "share a power budget among the jobs of this machine, or plan one",
    "recur": "run a job that comes again with the batch size that costs least",
    "predict": "say what to expect of a measured job on other cards",
    "period": "show what the detector sees in a recorded trace",
    "helper": "lend power limits to users who may not set them",
    "config": "show every setting of a command, and where it comes from",
    "completion": "print what completes all this in bash, zsh or fish",
    "help": "show this, or the options of one command",
}
WITH_A_JOB = ("run", "sweep")  # the commands behind whose options stands another one
INSIDE = "inside"  # what autocap.tune starts; not listed


def commands() -> dict[str, str]:
    """The line that stands for each command in the help, by name; those of other packages name theirs."""
    others = {name: f"from another package ({where})" for name, where in registry.plugged_in("commands").items()}
    return {name: _SUMMARIES[name] for name in registry.ours("commands")} | others


class Command(Protocol):
    """A command; its docstring is its help. is_session: it tunes or measures a job."""

    is_session: bool

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


ALL = "all"  # what `--help` may be followed by


class _ShowHelp(argparse.Action):
    """`--help`, or `--help all`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(parser, Parser)
        parser.print_help(whole=values == ALL)
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error of ours. An action that is `rare` is shown by `--help all`
    alone."""

    def print_help(self, file: Any = None, *, whole: bool = False) -> None:  # as argparse has it
        """whole: with the rare options."""
        rare = [] if whole else [action for action in self._actions if getattr(action, "rare", False)]
        shown, self.epilog = self.epilog, self._epilog(len(rare)) if rare else self.epilog
        texts = [action.help for action in rare]
        for action in rare:
            action.help = argparse.SUPPRESS
        try:
            super().print_help(file)
        finally:
            self.epilog = shown
            for action, text in zip(rare, texts, strict=True):
                action.help = text

    def _epilog(self, rare: int) -> str:
        return f"`{self.prog} --help {ALL}` shows {rare} options more."

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"(argument )-\w/(--)", r"\1\2", message)  # argparse gives both names
        raise UsageError(f"{message} (see `{self.prog} --help`)")

    def parse_args(  # type: ignore[override]  # argparse's overloads, of which this is the one that is called
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """What argparse does, and of what it does not know the option that was probably meant."""
        parsed: argparse.Namespace
        parsed, unknown = self.parse_known_args(args, namespace)  # type: ignore[no-untyped-call]
        if unknown:
            option, known = (
                unknown[0].partition("=")[0],
                [flag for flag in self._option_string_actions if flag[1:2] == "-"],
            )
            if option[:2] == "--" and option[2:] in RENAMED:
                self.error(f"{option} is called --{RENAMED[option[2:]]} now; give that instead")
            meant = did_you_mean(option, known) if option[:2] == "--" and option != "--" else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return parsed

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]  # as argparse has it
        """What argparse does, for as many words as it can take in a moment.

        It drops a `--` that is joined to an option, and goes on without the value.
        """
        words = sys.argv[1:] if args is None else list(args)
        if len(words) > _MOST_WORDS:
            self.error(f"these are {len(words)} words of options; give at most {_MOST_WORDS}")
        for word in words[: words.index("--") if "--" in words else None]:
            option, _, value = word.partition("=")
            if option.startswith("-") and value == "--":
                self.error(f"argument {option}: '--' is no value; give one, or leave the option out")
        return super().parse_known_args(words, namespace)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    words = sys.argv[1:] if argv is None else argv
    with StandardStreams() as streams, logged():
        try:
            status = _status(words, streams)
            written = streams.write_out()
        except KeyboardInterrupt:  # perhaps because nobody reads what is printed
            streams.give_up()
            return 130
    # What a job was tuned by has no say in its exit status.
    of_a_job = words[:1] == ["run"] or (words[:1] == ["recur"] and "--" in words)
    return status if written or of_a_job else status or 1


def _status(argv: list[str], streams: StandardStreams) -> int:
    try:
        _require_trusted()
        return _dispatch(argv, streams)
    except AutocapError as error:
        note(str(error))
        return error.exit_status
    except SystemExit as ended:  # help was shown
        return ended.code if isinstance(ended.code, int) else 0
    except Exception as error:  # noqa: BLE001 - a sentence, whatever it is
        if error is streams.out.failure:  # which is said when the rest of the output is written
            return 1
        if os.environ.get(DEBUG_VARIABLE) or logging.root.isEnabledFor(logging.DEBUG):
            traceback.print_exc()
        note(f"internal fault: {type(error).__name__}: {error}; to see where, set {DEBUG_VARIABLE}=1 and try again")
        return 1


def _require_trusted() -> None:
    """Under sudo, before anything else is imported. Raises UsageError where it might be somebody else's code."""
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        from autocap.job.invoking_user import invoking_user
        from autocap.job.trusted_code import require_trusted

        user = invoking_user()
        if user is not None:
            require_trusted(user)


def _dispatch(argv: list[str], streams: StandardStreams) -> int:
    # Only the list of all commands looks for those of other packages, which takes time and memory.
    named = argv[:1] and not argv[0].startswith("-")
    command, parser = parser_of(argv[0] if named else overview().parse_args(argv[:1]).command)
    words, child = split(argv[0], command, argv[1:], parser)
    args = parser.parse_args(words)
    args.child, args.typed = child, argv
    if getattr(args, "verbose", False):
        log_everything()
    if command.is_session:
        streams.wait_for_nobody()
    try:
        return command.run(args)
    except AutocapError as error:
        if getattr(args, "taken", ()):  # else nobody would know where a value comes from
            error.args = (f"{error} (with {taken_words(args.taken)})",)
        raise


def split(name: str, command: Command, words: list[str], parser: Parser) -> tuple[list[str], list[str] | None]:
    """A command's own words, and those of the job's command (`None` where there is none). Raises UsageError."""
    if name in WITH_A_JOB:
        return split_words(words, parser)
    if command.is_session and "--" in words:
        at = words.index("--")
        return words[:at], words[at + 1 :]
    return words, None


def split_words(words: Sequence[str], parser: argparse.ArgumentParser) -> tuple[list[str], list[str] | None]:
    """Our own words, and those of the command of a job (`None` where there is none): what stands behind the first `--`,
    or, without one, the first word that is neither an option of ours nor the value of one, and all that follows:
    options behind it are the job's.

    An option that the parser does not have ends our words: it is the parser's to refuse. Raises UsageError where both
    a word and a `--` behind it may begin the command.
    """
    takes_value = {
        flag: action.nargs != 0
        for action in parser._actions  # argparse has no other way to ask; its own subclasses use it
        for flag in action.option_strings
    }
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return list(words[:at]), list(words[at + 1 :])
        if not word.startswith("-") or word == "-":
            _require_clear(words, at, parser)
            return list(words[:at]), list(words[at:])
        flag = word.partition("=")[0] if word.startswith("--") else word
        if flag not in takes_value and word[:2] not in takes_value:
            return list(words[: at + 1]), None
        with_next = takes_value.get(word, False) and words[at + 1 : at + 2] not in ([], ["--"])
        at += 2 if with_next else 1
    return list(words), None


def _require_clear(words: Sequence[str], at: int, parser: argparse.ArgumentParser) -> None:
    if "--" not in words[at:]:
        return
    line = shlex.join([*parser.prog.split(), *words[:at], "--", *words[at:]])
    shown = line if len(line) <= _LONGEST else f"{parser.prog} [options] -- CMD …"
    raise UsageError(
        f"where the command begins is not clear, as '{words[at][:_LONGEST]}' stands before `--` and is no option; "
        f"if it begins there, write `{shown}`"
    )


def overview() -> Parser:
    """The parser of the first word: its help shows the commands."""
    parser = Parser(
        prog="autocap",
        description="Finds the best power cap for a training job while the job runs.",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="autocap [--version] [--help] COMMAND …",
    )
    parser.add_argument("--version", action="version", version=f"autocap {__version__}")
    lines = [f"  {name:<12}{summary}" for name, summary in commands().items()]
    parser.epilog = "\n".join(["commands:", *lines, "", "`autocap help COMMAND` shows a command's options."])
    first = parser.add_argument("command", metavar="COMMAND", help=argparse.SUPPRESS)
    offer(first, commands)
    return parser


def parser_of(name: str) -> tuple[Command, Parser]:
    """A command and the parser of its options. Raises UsageError where there is no such command."""
    command = command_named(name)
    parser = Parser(prog=f"autocap {name}", description=command.__doc__, allow_abbrev=False, add_help=False)
    command.prepare_parser(parser)
    has_rare = any(getattr(action, "rare", False) for action in parser._actions)
    parser.add_argument(
        "-h",
        "--help",
        action=_ShowHelp,
        nargs="?" if has_rare else 0,
        metavar=ALL,
        default=argparse.SUPPRESS,
        help=f"show this; {ALL}: every option" if has_rare else "show this",
    )
    return command, parser


class Help:
    """Show what autocap can do, or the options of one command, as `autocap COMMAND --help` does; or print a page of
    the documentation, such as `no-cap-kept`, or `docs/attach` where a command has the same name."""

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        explained = parser.add_argument(
            "command", metavar="COMMAND|PAGE", nargs="?", type=values.word, help="the command to explain, or the page"
        )
        offer(explained, commands)
        parser.add_argument("all", metavar="all", nargs="?", choices=("all",), help="of a command: every option")

    def run(self, args: argparse.Namespace) -> int:
        name = args.command
        page = None if name is None or name in commands() else _page(name.removeprefix("docs/").removesuffix(".md"))
        if page is not None:
            put(*page.splitlines())
        else:
            (overview() if name is None else parser_of(name)[1]).print_help(whole=args.all is not None)
        return 0


def _page(name: str) -> str | None:
    """The text of a page of the documentation; `None` where there is none of that name."""
    if not name.replace("-", "").isalnum():
        return None
    from importlib.resources import files

    page = files("autocap.cli") / "docs" / f"{name}.md"
    return page.read_text(encoding="utf-8") if page.is_file() else None


def command_named(name: str) -> Command:
    """Raises UsageError where there is no such command."""
    if name == INSIDE:
        from autocap.cli.run import Inside

        return Inside()
    try:
        registry.where("commands", name)
    except KeyError:
        known = commands()
        meant = did_you_mean(name, known)
        raise UsageError(f"unknown command '{name}'{meant}; choose one of {', '.join(known)}") from None
    made: Command = registry.load("commands", name)()
    return made


def entry() -> NoReturn:
    """The console script, which a shell also asks how a line may go on: never as root, whose files it could name."""
    if {"_ARGCOMPLETE", "COMP_LINE", "COMP_POINT"} <= os.environ.keys() and "SUDO_UID" not in os.environ:
        answer()
    sys.exit(main())
