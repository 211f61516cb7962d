"""docs/nvml.md: each of its rows names tests that are there."""

import re

import pytest

from tests.docs.pages import ROOT

ROWS = [line for line in (ROOT / "docs" / "nvml.md").read_text().splitlines() if line.startswith("| ")][1:]


def test_there_are_thirty_facts() -> None:
    assert len(ROWS) == 30


@pytest.mark.parametrize("row", ROWS)
def test_the_tests_of_a_fact_are_there(row: str) -> None:
    found = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", row.rsplit(" | ", 1)[1])
    assert found
    for name, path in found:
        assert f"def {name}(" in (ROOT / path).read_text()
