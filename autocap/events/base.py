"""How an event is declared, and what the log calls it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar, dataclass_transform


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """t_s: seconds on the run's clock.

    logged_as: what the log calls events of its class. begins: the kind of record that begins with one of them, `None`
    of a run, and of an event within one.
    """

    t_s: float
    logged_as: ClassVar[str]
    begins: ClassVar[str | None]


class PluginEvent(Event):
    """An event that a plug-in declares: it is logged and read as any other, and says itself what is shown of it."""

    __slots__ = ()

    def sentence(self, power: str) -> str | None:
        """What the terminal shows of it; `None` for nothing. power: how power must be marked, or nothing."""
        return None


T = TypeVar("T", bound=Event)
KINDS: dict[str, type[Event]] = {}  # by name: those of every module that was imported


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def event(name: str, begins: str | None = None) -> Callable[[type[T]], type[T]]:
    """Makes a class a frozen record, which the log calls by this name, whatever becomes of the class's. Raises
    ValueError for a name that is taken."""

    def declare(cls: type[T]) -> type[T]:
        if name in KINDS:
            raise ValueError(f"there is an event {name} already: {KINDS[name].__qualname__}; choose another name")
        made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        KINDS[name], made.logged_as, made.begins = made, name, begins
        return made

    return declare
