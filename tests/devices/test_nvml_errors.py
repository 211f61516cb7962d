"""Every NVML error code has a name and a sentence."""

import pynvml
import pytest

from autocap.devices.nvml.state import ERRORS, NvmlError

CODES = {
    value: name.removeprefix("NVML_ERROR_")
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
}


def test_the_table_names_every_code_of_the_binding_as_the_binding_does() -> None:
    assert {code: name for code, (name, _) in ERRORS.items()} == CODES


@pytest.mark.parametrize("code", sorted(CODES), ids=CODES.get)
def test_a_message_says_what_failed_by_which_name_and_what_to_do(code) -> None:
    text = str(NvmlError("reading the power of GPU 3", code))
    assert text.startswith(f"reading the power of GPU 3 failed with {CODES[code]} ({code}): ")
    assert "\n" not in text
    assert len(text.split(": ", 1)[1]) > 20


def test_a_code_that_is_newer_than_the_table_is_said_to_be_one() -> None:
    assert "UNLISTED (4711): this code is newer than autocap" in str(NvmlError("reading", 4711))


def test_what_is_lost_is_not_merely_absent() -> None:
    both = [code for code in CODES if NvmlError("", code).lost and NvmlError("", code).absent]
    assert both == []
