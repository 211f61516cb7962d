"""Every relative link of every page leads to a file, and every anchor to a heading."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, prose

_LINK = re.compile(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"")


def anchors(page: Path) -> set[str]:
    """Those of the headings, as the hosting sites make them."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return set(found)


def links(page: Path) -> list[str]:
    return [one or other for one, other in _LINK.findall(prose(page))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        where, _, anchor = link.partition("#")
        target = (page.parent / where).resolve() if where else page
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
        assert target.is_file(), f"{link}: there is no such file"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_merge_was_left_undone_in_it(page: Path) -> None:
    assert not re.search(r"^(<{7}|>{7})( |$)|^={7}$", page.read_text(), re.MULTILINE)


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached:
            reached.add(page)
            targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if ":" not in link]
            ahead += [target for target in targets if target.suffix == ".md"]
    assert reached >= set(PAGES)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
