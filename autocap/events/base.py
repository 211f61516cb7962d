"""How an event is declared, and what the log calls it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """t_s: seconds on the run's clock."""

    t_s: float


class PluginEvent(Event):
    """An event that a plug-in declares: it is logged and read as any other, and says itself what is shown of it."""

    __slots__ = ()

    def sentence(self, power: str) -> str | None:
        """What the terminal shows of it; `None` for nothing. power: how power must be marked, or nothing."""
        return None


T = TypeVar("T", bound=Event)
KINDS: dict[str, type[Event]] = {}  # by name: those of every module that was imported
_NAMES: dict[type[Event], str] = {}
_BEGINS: dict[type[Event], str] = {}


@dataclass_transform(kw_only_default=True, frozen_default=True)
def event(name: str, begins: str | None = None) -> Callable[[type[T]], type[T]]:
    """Makes a class a frozen record, which the log calls by this name, whatever becomes of the class's.

    begins: the kind of record that begins with it, where that is no run. Raises ValueError for a name that is taken.
    """

    def declare(cls: type[T]) -> type[T]:
        if name in KINDS:
            raise ValueError(f"there is an event {name} already: {KINDS[name].__qualname__}; choose another name")
        made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        KINDS[name], _NAMES[made] = made, name
        if begins is not None:
            _BEGINS[made] = begins
        return made

    return declare


def name_of(kind: type[Event]) -> str:
    """What the log calls an event of that class."""
    return _NAMES[kind]


def begun_by(kind: type[Event]) -> str | None:
    """The kind of record that begins with an event of that class; `None` for a run, and for an event within one."""
    return _BEGINS.get(kind)
