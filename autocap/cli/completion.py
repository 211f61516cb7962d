"""`autocap completion`, and what it makes a shell ask for: how a line may go on, which argcomplete asks the parsers."""

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from autocap.config import values
from autocap.errors import UsageError
from autocap.text import put


class Completion:
    """Print what makes a shell complete autocap's commands, options and values, and the command of a job.

    For bash, in ~/.bashrc: eval "$(autocap completion bash)"
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to complete in")

    def run(self, args: argparse.Namespace) -> int:
        from argcomplete.shell_integration import shellcode

        put(*shellcode(["autocap"], shell=args.shell).splitlines())
        return 0


def offer(action: argparse.Action, words: Callable[[], Iterable[str]]) -> None:
    """Complete an option's value with these words, beside which others may be allowed; a mapping has what they are."""
    action.completer = lambda **_: words()  # type: ignore[attr-defined]  # where argcomplete looks for it


def answer(to: TextIO | None = None, leave: Callable[[int], object] = os._exit) -> None:
    """Tell a shell that asks, in the variables of argcomplete's script, how its line may go on; and leave. to: where
    the script reads, by default."""
    import argcomplete
    from argcomplete.lexers import split_line

    line = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    parser, first = _asked(line[3], line[1])
    os.environ["_ARGCOMPLETE"] = str(first)
    argcomplete.autocomplete(
        parser,
        always_complete_options=False if parser._get_positional_actions() else "long",
        exit_method=leave,
        output_stream=to,
        default_completer=_by_kind,  # type: ignore[arg-type]  # any function serves
    )


def _asked(words: list[str], word: str) -> tuple[argparse.ArgumentParser, int]:
    """The parser of the word to complete, and the number of the words before those that are the parser's. words: those
    before it, which in zsh may begin with another command, such as sudo."""
    from autocap.cli import overview, parser_of, split  # which import this module by its name

    at = next((index for index, one in enumerate(words) if os.path.basename(one) == "autocap"), 0)
    if len(words) < at + 2:
        return overview(), at + 1
    bare = argparse.ArgumentParser(add_help=False)
    try:
        command, parser = parser_of(words[at + 1])
        job = split(words[at + 1], command, [*words[at + 2 :], word], parser)[1]
    except UsageError:
        return bare, len(words)
    if not job or (job in ([""], ["-"]) and "--" not in words):  # an option can stand there as well
        return parser, at + 2
    added = bare.add_argument("word", type=values.path)
    if len(job) == 1 and "/" not in word:
        offer(added, _programs)
    return bare, len(words)


def _programs() -> Iterable[str]:
    return (name for folder in os.get_exec_path() if os.path.isdir(folder) for name in os.listdir(folder))


def _by_kind(*, prefix: str, action: argparse.Action, **_: Any) -> Iterable[str]:  # as argcomplete calls it
    """The values of an option that offers none: of the kind that the help names, or files, or nothing."""
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    if action.metavar == "PID":
        return filter(str.isdigit, os.listdir("/proc"))
    if action.metavar == "RUN_DIR":
        runs = [str(events.parent) for events in Path().glob("autocap-runs/*/events.jsonl")]
        return [run for run in runs if run.startswith(prefix)] or DirectoriesCompleter()(prefix)
    if action.metavar == "DIR":
        return DirectoriesCompleter()(prefix)
    return FilesCompleter()(prefix) if action.type is values.path else ()
