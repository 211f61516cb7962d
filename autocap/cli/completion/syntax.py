"""What can stand on autocap's command line, read from the parsers, for a shell to complete."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from autocap.cli import COMMANDS, WITH_A_JOB, budget, parser_of, recur, settings
from autocap.cli.budget_plan import POLICIES
from autocap.config import values
from autocap.devices.model import profile_names

_WORDS = {"budget": tuple(budget.WORDS), "recur": recur.WORDS, "help": tuple(COMMANDS)}


class Kind(Enum):
    """What a value is one of."""

    WORDS = auto()  # those of the value; perhaps others as well
    FILES = auto()
    DIRECTORIES = auto()
    RUNS = auto()  # directories, of which some hold a run
    PROCESSES = auto()
    ANYTHING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """name: as the help has it. words: to choose from; one that ends in a colon goes on."""

    name: str
    kind: Kind
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """flags: the short one first, where there is one. value: `None` for an option without. repeated: it may be given
    several times."""

    flags: tuple[str, ...]
    help: str
    value: Value | None
    repeated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """words: what stands on the line beside options, a word or many of the kind; `None` for nothing. has_job: another
    command follows."""

    name: str
    summary: str
    options: tuple[Option, ...]
    words: Value | None
    has_job: bool


def commands() -> list[Command]:
    """Every command that the help lists."""
    return [_command(name, summary) for name, (_, summary) in COMMANDS.items()]


def _command(name: str, summary: str) -> Command:
    # argparse has no other way to ask.
    actions = [action for action in parser_of(name)[1]._actions if action.help != argparse.SUPPRESS]
    words = [_value(name, action) for action in actions if not action.option_strings]
    if name in _WORDS:  # which one of several forms the line has
        words = [Value(name="WORD", kind=Kind.WORDS, words=_WORDS[name])]
    return Command(
        name=name,
        summary=summary,
        options=tuple(_options(name, actions)),
        words=words[0] if words else None,
        has_job=name in WITH_A_JOB,
    )


def _options(command: str, actions: list[argparse.Action]) -> Iterator[Option]:
    for action in actions:
        if action.option_strings:
            yield Option(
                flags=tuple(sorted(action.option_strings, key=len)),
                help=(action.help or "").replace("%%", "%"),
                value=None if action.nargs == 0 else _value(command, action),
                repeated=isinstance(action, argparse._AppendAction),
            )


def _value(command: str, action: argparse.Action) -> Value:
    name, words = str(action.metavar or action.dest), _words(command, action)
    if words:
        return Value(name=name, kind=Kind.WORDS, words=words)
    by_name = {"PID": Kind.PROCESSES, "RUN_DIR": Kind.RUNS, "DIR": Kind.DIRECTORIES}
    otherwise = Kind.FILES if action.type is values.path else Kind.ANYTHING
    return Value(name=name, kind=by_name.get(name, otherwise))


def _words(command: str, action: argparse.Action) -> tuple[str, ...]:
    if action.choices is not None:
        return tuple(map(str, action.choices))
    if (command, action.dest) == ("budget", "policy"):
        return POLICIES
    of_run = "run" if command == "recur" else command  # whose options it has
    declared = settings.options(of_run).get(action.dest) if of_run in settings.COMMANDS else None
    words = declared.usual_in(command) if declared is not None else ()
    return (*words, *(f"emulated:{name}" for name in profile_names())) if action.dest == "device" else words
