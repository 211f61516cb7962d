"""What is typed as an option's value is read as it is meant, however it is written."""

from hypothesis import given
from hypothesis import strategies as st

from autocap.config import values


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
