"""How a setting is given: an option on the command line, and, with underscores, a keyword of `autocap.tune`.

It is declared as metadata of a config record's field: `wait_s: Annotated[float, CommandOption(…)] = 120.0`.
"""

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from pathlib import PurePath
from typing import Any, ClassVar, Protocol, TypeVar

from autocap.text import did_you_mean

RENAMED = {"actuator": "via"}  # what options were called in earlier versions, and are called now


class Record(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # as the standard library has it


R = TypeVar("R", bound=Record)
_SHOWN = 60  # characters of a value in a sentence


def _none(kind: str) -> Iterable[str]:
    return ()


names_of: Callable[[str], Iterable[str]] = _none  # of a kind, as the registry has them


class Group(Enum):
    """The titles under which options stand in the help, in its order. A command may have others, which come first."""

    METRIC = "what to minimise"
    SEARCH = "how to search"
    RUNS = "which runs"
    DEVICE = "on which device"
    NODE = "the whole machine"
    RUNNING = "running and reporting"


@dataclass(frozen=True, slots=True)
class CommandOption:
    """group: where it stands in the help; "" for among those without a title. usage: as the help shows it,
    "--flag VALUE". read: turns the value's text into the setting, and raises ArgumentTypeError for one that is wrong;
    `None` for an option without a value, which sets `const`: `--no-…` is an option like any other, whose setting has no
    `no` in its name and is true without it. help_in: the help in some commands, where it differs. short: the flag in
    one letter. choices: the texts allowed, where they are few. usual: texts worth offering where others are allowed as
    well. repeated: it may be given several times, and the setting holds every value. common: one of the few that most
    people need, which the short help shows. between: what stands between the values of a list. runs_code: a pattern of
    the texts that have a program run or code loaded. beside: keywords of other options; where none of them is given, a
    setting of this one has no say. kind: of the registry's, whose names stand for {names} in the help.
    """

    group: Group | str
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
    beside: tuple[str, ...] = ()
    kind: str | None = None

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return self.usage.partition(" ")[0]

    @property
    def flags(self) -> tuple[str, ...]:
        """That, behind the short one where there is one."""
        return (self.flag,) if self.short is None else (self.short, self.flag)

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
        text = self.help_in.get(command, self.help)
        return text if self.kind is None else text.replace("{names}", ", ".join(names_of(self.kind)))

    def usual_in(self, command: str) -> tuple[str, ...]:
        """Its usual texts in a command: those that the help names there."""
        usual = self.usual if self.kind is None else (*self.usual, *names_of(self.kind))
        return tuple(text for text in usual if text in self.help_of(command))

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


@dataclass(frozen=True, slots=True)
class AsIn:
    """Marks a record within another one whose options are those that it has in some other command."""

    command: str


def options_of(record: type[Record], command: str) -> Iterator[CommandOption]:
    """The options of a command that a record declares, and those of the records within it, in order."""
    for one in fields(record):
        within, marks = _kind(one)
        if isinstance(within, type) and is_dataclass(within):
            as_in = (mark.command for mark in marks if isinstance(mark, AsIn))
            yield from options_of(within, next(as_in, command))
        yield from (mark for mark in marks if isinstance(mark, CommandOption) and command in mark.commands)


def commands_of(record: type[Record], command: str) -> tuple[str, ...]:
    """The command, and that whose options it has as well."""
    others = (mark.command for one in fields(record) for mark in _kind(one)[1] if isinstance(mark, AsIn))
    return command, *others


def holds(record: type[Record], within: type[Record]) -> bool:
    """Whether a record is of this kind, or has such a one in it."""
    kinds = (_kind(one)[0] for one in fields(record))
    return record is within or any(isinstance(one, type) and is_dataclass(one) and holds(one, within) for one in kinds)


def same(record: type[Record], flag: str, command: str, help: str, group: Group | str) -> CommandOption:
    """An option of a record as another command has it."""
    found = next(
        mark
        for one in fields(record)
        for mark in _kind(one)[1]
        if isinstance(mark, CommandOption) and mark.flag == flag
    )
    return replace(found, commands=(command,), help=help, help_in={}, group=group, short=None, common=False)


def record_from(
    record: type[R],
    command: str,
    given: Mapping[str, object],
    /,
    **known: Any,  # of as many types as the record has fields
) -> R:
    """A record of the settings that a command was given, by keyword; `known` fields are taken as they are."""
    for one in fields(record):
        for option in _kind(one)[1]:
            if (
                isinstance(option, CommandOption)
                and one.name not in known
                and command in option.commands
                and option.keyword in given
            ):
                value = given[option.keyword]
                known[one.name] = tuple(value) if isinstance(value, list) else value
    return record(**known)


def _kind(one: "Field[Any]") -> tuple[Any, tuple[object, ...]]:
    """The type of a field, and what is said of it."""
    return getattr(one.type, "__origin__", one.type), getattr(one.type, "__metadata__", ())


V = TypeVar("V", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A number that decides when something counts. It stands in the `Tuning` of its room with its unit and its reason.

    No option sets one: `autocap config --all` prints them, `python -m bench scenarios --tuning NAME=VALUE` tries
    others. reason: what it is, and why not more or less. bench: the one that shows what it does, "" where none does.
    """

    name: str
    value: float
    unit: str
    reason: str
    bench: str


def threshold(value: V, unit: str, reason: str, bench: str = "") -> V:
    """A field of a `Tuning`."""
    return field(default=value, metadata={"unit": unit, "reason": reason, "bench": bench})


def thresholds(tuning: Record) -> list[Threshold]:
    """Those of a room, in its order."""
    return [Threshold(name=one.name, value=getattr(tuning, one.name), **one.metadata) for one in fields(tuning)]
