import math

import pytest

from autocap.reports.wording.numbers import with_error


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1.29876, 0.0011, "1.2988 ± 0.0011"),
        (1.29876, 0.0034, "1.299 ± 0.003"),
        (0.183421, 0.0000731, "0.18342 ± 0.00007"),
        (12.3456, 0.15, "12.35 ± 0.15"),
        (123.4, 41.0, "123 ± 41"),
        (1.5, 0.0, "1.5"),
        (1.5, math.inf, "1.5"),
    ],
)
def test_a_value_has_as_many_digits_as_its_error_deserves(value: float, error: float, text: str) -> None:
    assert with_error(value, error) == text
