"""Thresholds stand in the record of their room, each with its unit and reason, and are read at the moment of use."""

import ast
from collections.abc import Iterator

import pytest

from autocap.config.option import thresholds
from autocap.controller import tuning as of_controller
from autocap.measurement import tuning as of_measurement
from bench.__main__ import COMMANDS
from tests.docs.pages import ROOT

ROOMS = {"measurement": of_measurement.TUNING, "controller": of_controller.TUNING}


@pytest.mark.parametrize("room", ROOMS)
def test_each_has_a_unit_and_a_reason_and_a_bench_only_that_is_there(room: str) -> None:
    for one in thresholds(ROOMS[room]):
        assert one.unit, one
        assert len(one.reason.split()) > 1, one
        assert not one.bench or one.bench.split()[0] in COMMANDS, one
        assert one.name.endswith("_s") == (one.unit == "s"), one


def test_no_name_stands_in_two_rooms() -> None:
    names = [one.name for tuning in ROOMS.values() for one in thresholds(tuning)]
    assert len(names) == len(set(names))


def _read(node: ast.AST, *, each_time: bool = False) -> Iterator[tuple[str, bool]]:
    """The thresholds that are read, and whether that is each time a function runs: a default is read only once."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "TUNING":
        yield node.attr, each_time
    for name, part in ast.iter_fields(node):
        inside = each_time or (isinstance(node, ast.FunctionDef | ast.Lambda) and name == "body")
        for one in part if isinstance(part, list) else [part]:
            if isinstance(one, ast.AST):
                yield from _read(one, each_time=inside)


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_each_is_read_at_the_moment_of_use_and_kept_under_no_other_name(room: str) -> None:
    read, constants = set[str](), set[str]()
    for path in (ROOT / "autocap" / room).rglob("*.py"):
        tree = ast.parse(path.read_text())
        for name, each_time in _read(tree):
            assert each_time, f"{path.relative_to(ROOT)} reads {name} when it is imported"
            read.add(name)
        names = (name for node in tree.body if isinstance(node, ast.Assign) for name in ast.walk(node.targets[0]))
        constants |= {name.id.strip("_").lower() for name in names if isinstance(name, ast.Name)}
    known = {one.name for one in thresholds(ROOMS[room])}
    assert read == known
    assert not known & constants
