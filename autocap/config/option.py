"""How a setting is given: an option on the command line, and, with underscores, a keyword of `autocap.tune`.

It is declared as metadata of a config record's field: `wait_s: Annotated[float, CommandOption(…)] = 120.0`.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any, ClassVar, Protocol, TypeVar

from autocap.text import did_you_mean


class Record(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # as the standard library has it


R = TypeVar("R", bound=Record)
_SHOWN = 60  # characters of a value in a sentence


class Group(Enum):
    """The titles under which options stand in the help, in its order."""

    METRIC = "what to minimise"
    SEARCH = "how to search"
    RECURRING = "what comes again"
    RUNS = "which runs"
    DEVICE = "on which device"
    NODE = "the whole machine"
    RUNNING = "running and reporting"


@dataclass(frozen=True, slots=True)
class CommandOption:
    """usage: as the help shows it, "--flag VALUE". read: turns the value's text into the setting, and raises
    ArgumentTypeError for one that is wrong; `None` for an option without a value, which sets `const`: `--no-…` is an
    option like any other, whose setting has no `no` in its name and is true without it. help_in: the help
    in some commands, where it differs. short: the flag in one letter. choices: the texts allowed, where they are few.
    usual: texts worth offering where others are allowed as well. repeated: it may be given several times, and the
    setting holds every value. common: one of the few that most people need, which the short help shows. between: what
    stands between the values of a list. runs_code: a pattern of the texts that have a program run or code loaded.
    """

    group: Group
    usage: str
    read: Callable[[str], object] | None
    help: str
    commands: tuple[str, ...] = ("run", "attach", "sweep")
    help_in: Mapping[str, str] = field(default_factory=dict)
    short: str | None = None
    choices: tuple[str, ...] | None = None
    usual: tuple[str, ...] = ()
    repeated: bool = False
    common: bool = False
    between: str = ","
    runs_code: str | None = None

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return self.usage.partition(" ")[0]

    @property
    def keyword(self) -> str:
        """Its name in Python."""
        return self.name.replace("-", "_")

    @property
    def name(self) -> str:
        """Its name in a file of settings."""
        return self.flag.removeprefix("--").removeprefix("" if self.const else "no-")

    @property
    def const(self) -> bool:
        """What an option without a value sets."""
        return not (self.read is None and self.flag.startswith("--no-"))

    def help_of(self, command: str) -> str:
        """Its help in a command."""
        return self.help_in.get(command, self.help)

    def usual_in(self, command: str) -> tuple[str, ...]:
        """Its usual texts in a command: those that the help names there."""
        return tuple(text for text in self.usual if text in self.help_of(command))

    def built_in(self, command: str) -> str | None:
        """What holds where nobody says otherwise, in the words of the help; `None` where that is nothing."""
        found = re.search(r"\(default: (.*)\)$", self.help_of(command))
        return found[1] if found else None if self.read else "no" if self.const else "yes"

    def read_all(self, texts: Iterable[str]) -> object:
        """The setting that the texts of its values mean, of an option that takes one. Raises ArgumentTypeError."""
        assert self.read is not None
        values = []
        for text in texts:
            if self.choices is not None and text not in self.choices:
                meant = did_you_mean(text, self.choices)
                raise argparse.ArgumentTypeError(f"unknown value '{text}'{meant}; choose {', '.join(self.choices)}")
            values.append(self.read(text))
        return values if self.repeated else values[-1]

    def texts(self, value: object) -> list[str]:
        """A value of Python's or of a file's as the command line has it. Raises ArgumentTypeError for one of a kind
        that has no text."""
        match value:
            case bool():
                raise argparse.ArgumentTypeError(f"it takes a value, as {self.usage} does")
            case str() | int() | float() | PurePath():
                return [str(value)]
            case Mapping():
                texts = [f"{key}={of_key}" for key, of_key in value.items()]
            case Iterable():
                texts = list(map(str, value))
            case _:
                raise argparse.ArgumentTypeError(f"{value!r} is neither text nor number; it takes {self.usage}")
        return texts if self.repeated else [self.between.join(texts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenSetting:
    """A setting that the command line does not give. name: of its option. value: its text, "yes" or "no" for an option
    without a value. source: the file or variable that it was taken from."""

    name: str
    value: str
    source: str


def taken_words(taken: Iterable[TakenSetting]) -> str:
    """`metric eds, k 2 from ./autocap.toml`, source by source."""
    by_source: dict[str, list[str]] = {}
    for one in taken:
        value = one.value if len(one.value) <= _SHOWN else f"{one.value[:_SHOWN]}…"
        by_source.setdefault(one.source, []).append(f"{one.name} {value}")
    return "; ".join(f"{', '.join(words)} from {source}" for source, words in by_source.items())


def options_of(record: type[Record], command: str) -> Iterator[CommandOption]:
    """The options of a command that a record declares, and those of the records within it, in order."""
    for one in fields(record):
        if isinstance(one.type, type) and is_dataclass(one.type):
            yield from options_of(one.type, command)
        yield from (option for option in getattr(one.type, "__metadata__", ()) if command in option.commands)


def record_from(
    record: type[R],
    command: str,
    given: Mapping[str, object],
    /,
    **known: Any,  # of as many types as the record has fields
) -> R:
    """A record of the settings that a command was given, by keyword; `known` fields are taken as they are."""
    for one in fields(record):
        for option in getattr(one.type, "__metadata__", ()):
            if one.name not in known and command in option.commands and option.keyword in given:
                value = given[option.keyword]
                known[one.name] = tuple(value) if isinstance(value, list) else value
    return record(**known)
