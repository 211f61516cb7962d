"""What of the site is made of the code: the reference of commands, which is the manual page too."""

import argparse
import importlib.util
import re
from types import ModuleType

import pytest

import autocap
from autocap.cli import commands, parser_of
from tests.docs.pages import ROOT

SITE = ROOT / "docs" / "site"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", SITE / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_and_every_option_has_its_entry(reference: ModuleType) -> None:
    text = reference.text()
    parts = re.split(r"^autocap ([a-z]+)\n-+$", text, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(found) == list(commands())
    for name, entry in found.items():
        for action in parser_of(name)[1]._actions:
            if action.help != argparse.SUPPRESS:
                for flag in action.option_strings:
                    assert re.search(rf"^.*``{re.escape(flag)}[ `]", entry, re.MULTILINE), f"{name} {flag}"


def test_nothing_in_a_help_text_is_taken_for_markup(reference: ModuleType) -> None:
    assert reference._plain("a*b|c_ `--k 2` d\\e") == r"a\*b\|c\_ ``--k 2`` d\\e"


def test_the_reference_of_python_has_every_public_name() -> None:
    shown = (SITE / "api.rst").read_text()
    modules = {"__version__", "integrations"}  # these are named with what is in them
    assert [name for name in autocap.__all__ if name not in modules and f"autocap.{name}" not in shown] == []
