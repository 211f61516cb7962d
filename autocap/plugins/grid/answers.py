"""What services answer with: values, each from a moment on."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

from autocap.runlog.input_file import moment
from autocap.session.prices.series import Series, SourceRefused

Value = tuple[float, float | None]  # from when on, seconds since 1970; per kWh, `None` where there is none
_LARGEST = 1e6  # money or grams per kWh


def series_of(kind: str, currency: str | None, values: Iterable[Value], usual_s: float) -> Series:
    """Values that each hold until the next, but no longer than usual, seconds. Raises ValueError for none, and for two
    of the same time."""
    known = sorted(values, key=lambda value: value[0])
    if not known:
        raise ValueError("no values")
    steps = known[:1]
    for (before_s, _), (from_s, value) in pairwise(known):
        if from_s == before_s:
            raise ValueError("values overlap")
        if from_s > before_s + usual_s:
            steps.append((before_s + usual_s, None))
        steps.append((from_s, value))
    return Series(kind=kind, currency=currency, steps=tuple(steps), until_s=known[-1][0] + usual_s)


@contextmanager
def answers_of(server: str) -> Iterator[None]:
    """Inside, an answer that is not made as it should be is refused in a sentence."""
    try:
        yield
    except (TypeError, KeyError, ValueError, IndexError, AttributeError) as error:
        raise SourceRefused(f"{server} answers with something else than was asked for") from error


def field(answer: object, name: str) -> object:
    """A member of a JSON object. Raises ValueError where there is no such."""
    if not isinstance(answer, Mapping) or name not in answer:
        raise ValueError(f"no {name}")
    found: object = answer[name]
    return found


def items(answer: object) -> Sequence[object]:
    """The items of a JSON array. Raises ValueError for what is none."""
    if not isinstance(answer, list):
        raise ValueError("no list")
    return answer


def time_of(value: object) -> float:
    """Seconds since 1970 of a date with a zone. Raises ValueError for what is none."""
    found_s = moment(value) if isinstance(value, str) else None
    if found_s is None:
        raise ValueError("no date")
    return found_s


def amount(value: object, least: float = 0.0) -> float | None:
    """A number per kWh; `None` for null. Raises ValueError for what is neither."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("no number")
    if not least <= value <= _LARGEST:
        raise ValueError("a number out of range")
    return float(value)
