"""The Markdown pages of the repository, and what stands in them."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```([\w.-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page. language: what stands behind the opening fence, "" for commands and their output."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def _pages() -> tuple[Path, ...]:
    places = (ROOT, *(ROOT / folder for folder in ("docs", "bench", "tests", "strategies", "workloads")))
    found = [path for place in places for path in (place.glob("*.md") if place == ROOT else place.rglob("*.md"))]
    return tuple(sorted(found))


PAGES = _pages()


@cache
def text(page: Path) -> str:
    return page.read_text()


def prose(page: Path) -> str:
    """A page without its fenced blocks; their lines are empty."""
    return _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text(page))


def blocks(page: Path) -> list[Block]:
    return [
        Block(
            page=str(page.relative_to(ROOT)),
            line=text(page)[: found.start()].count("\n") + 1,
            language=found[1],
            text=found[2],
        )
        for found in _FENCE.finditer(text(page))
    ]


ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]
