"""Blocks of the documents that are no commands: Python compiles, the example strategy is one, TOML can be read."""

import sys
import tomllib
from types import ModuleType

import pytest

from tests.docs.pages import ALL_BLOCKS, Block

STRATEGY, ITS_TEST = (
    block for block in ALL_BLOCKS if "class CoarseToFine(" in block.text or "coarse import" in block.text
)


def _executed(block: Block, name: str) -> ModuleType:
    module = ModuleType(name)
    exec(compile(block.text, str(block), "exec"), module.__dict__)
    return module


sys.modules["coarse"] = _executed(STRATEGY, "coarse")
TestCoarseToFine = _executed(ITS_TEST, "test_coarse").TestCoarseToFine  # run as it stands, through the whole contract


def test_the_example_strategy_is_short() -> None:
    assert len(STRATEGY.text.splitlines()) < 60


@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language == "python"], ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language == "toml"], ids=str)
def test_toml_can_be_read(block: Block) -> None:
    assert tomllib.loads(block.text)["project"]["entry-points"]


def test_every_block_says_what_it_is() -> None:
    assert {block.language for block in ALL_BLOCKS} <= {"", "text", "python", "toml", "udev"}
