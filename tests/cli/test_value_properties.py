"""Whatever is typed as an option's value is read, or refused with what is allowed."""

import argparse
import math
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autocap.config import values

READERS: dict[str, Callable[[str], object]] = {
    "number": values.number,
    "positive": values.positive("watts"),
    "not negative": values.not_negative("seconds"),
    "between": values.between(1, 100, "Hz"),
    "percentage": values.percentage,
    "pid": values.pid,
    "watts": values.watts_list,
    "gpus": values.gpu_list,
    "sets": values.gpu_sets,
    "endpoint": values.endpoint,
    "option": values.key_value,
    "retune": values.retune,
    "seed": values.seed,
    "node power": values.node_power,
    "count": values.count,
}
typed = st.text(max_size=20) | st.text("0123456789-,;:%.eE+GPU =١²", max_size=12)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@given(text=typed)
@example(text="0-999999999999")
@example(text="nan")
@example(text="²")
def test_any_text_is_read_or_refused_in_words(reader: Callable[[str], object], text: str) -> None:
    try:
        read = reader(text)
    except argparse.ArgumentTypeError:
        return
    assert read is not None
    assert not isinstance(read, float) or math.isfinite(read)


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_a_percentage_reads_the_same_with_and_without_its_sign(value: float) -> None:
    assert values.percentage(f"{value!r}%") == values.percentage(repr(value)) == value / 100


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 5)), min_size=1, max_size=5))
def test_a_list_of_gpu_ranges_names_each_gpu_once_in_order(ranges: list[tuple[int, int]]) -> None:
    found = values.gpu_list(",".join(f"{first}-{first + more}" for first, more in ranges))
    wanted = [index for first, more in ranges for index in range(first, first + more + 1)]
    assert list(found) == list(map(str, dict.fromkeys(wanted)))


@given(st.lists(st.floats(min_value=1.0, max_value=1e4), min_size=1, max_size=6))
def test_caps_come_out_ascending_and_distinct_whatever_the_order(caps_w: list[float]) -> None:
    assert list(values.watts_list(",".join(map(repr, caps_w)))) == sorted(set(caps_w))
