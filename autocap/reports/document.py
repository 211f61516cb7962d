"""What a report on a run or sweep says, before `text` or `html` renders it; pictures stand in a page alone."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A number that matters: its name, the number with unit and error, and what it is measured against."""

    name: str
    value: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    """Lines of the text alone: a page says the same in its head. warning: there they stand among the warnings."""

    lines: tuple[str, ...]
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Numbers in columns, and remarks in the last. A row has as many cells as there are titles.

    heading: above the table. note: what holds for all of it, such as that its power is modelled. spare: columns that go
    whole where there is no room for all, the first of them first; the others and the remarks stay. below: columns that
    go only where there is no room even with the remark below its row, in that order. left: columns of text. page_only:
    the text leaves it out. folded: a page shows it when it is asked to.
    """

    heading: str
    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    spare: tuple[int, ...] = ()
    below: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    page_only: bool = False
    folded: bool = False

    @property
    def title(self) -> str:
        """The heading with the note."""
        return f"{self.heading} ({self.note})" if self.note else self.heading


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """body: what the text consists of; a page shows its tables, below a head of its own, which is all the rest; a
    list needs no head.

    kicker: what it is about, above the headline. remarks: clauses on the result. aim: what was to be found. label: how
    its power must be marked, or nothing. job: what was run, name by name; the first is a command. version: of autocap,
    that made it.
    """

    kicker: str = ""
    headline: str
    remarks: tuple[str, ...] = ()
    aim: str = ""
    label: str = ""
    facts: tuple[Fact, ...] = ()
    warnings: tuple[str, ...] = ()
    body: tuple[Sentences | Table, ...]
    job: tuple[tuple[str, str], ...] = ()
    version: str = ""

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """With those of the body."""
        found = (block.lines for block in self.body if isinstance(block, Sentences) and block.warning)
        return (*self.warnings, *(line.strip() for lines in found for line in lines))

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(block for block in self.body if isinstance(block, Table))
