"""How a setting is given: an option on the command line, and, with underscores, a keyword of `autocap.tune`.

It is declared as metadata of a config record's field: `wait_s: Annotated[float, CommandOption(…)] = 120.0`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeVar


class Record(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # as the standard library has it


R = TypeVar("R", bound=Record)


class Group(Enum):
    """The titles under which options stand in the help, in its order."""

    METRIC = "what to minimise"
    SEARCH = "how to search"
    RUNS = "which runs"
    DEVICE = "on which device"
    NODE = "the whole machine"
    RUNNING = "running and reporting"


@dataclass(frozen=True, slots=True)
class CommandOption:
    """usage: as the help shows it, "--flag VALUE". read: turns the value's text into the setting, and raises
    ArgumentTypeError for one that is wrong; `None` for an option without a value, which sets `const`. help_in: the help
    in some commands, where it differs. short: the flag in one letter. choices: the texts allowed, where they are few.
    repeated: it may be given several times, and the setting holds every value.
    """

    group: Group
    usage: str
    read: Callable[[str], object] | None
    help: str
    commands: tuple[str, ...] = ("run", "attach", "sweep")
    help_in: Mapping[str, str] = field(default_factory=dict)
    short: str | None = None
    choices: tuple[str, ...] | None = None
    const: bool = True
    repeated: bool = False

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return self.usage.partition(" ")[0]

    @property
    def keyword(self) -> str:
        """Its name in Python."""
        return self.flag.removeprefix("--").replace("-", "_")


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
