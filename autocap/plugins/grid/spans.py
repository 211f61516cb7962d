"""What services answer with: values, each from a moment to another one."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from autocap.runlog.input_file import moment
from autocap.session.prices.series import Series, SourceRefused

_LARGEST = 1e6  # money or grams per kWh


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """from_s, to_s: seconds since 1970. value: per kWh; `None` where there is none."""

    from_s: float
    to_s: float
    value: float | None


def series_of(kind: str, currency: str | None, spans: Iterable[Span]) -> Series:
    """Between spans that do not meet nothing is known. Raises ValueError for none, and for those that overlap."""
    known = sorted(spans, key=lambda span: span.from_s)
    if not known:
        raise ValueError("no values")
    steps: list[tuple[float, float | None]] = []
    for one, other in pairwise((*known, None)):
        assert one is not None  # the last alone is none
        steps.append((one.from_s, one.value))
        if other is not None and one.to_s > other.from_s:
            raise ValueError("values overlap")
        if other is not None and one.to_s < other.from_s:
            steps.append((one.to_s, None))
    return Series(kind=kind, currency=currency, steps=tuple(steps), until_s=known[-1].to_s)


def at_moments(values: Sequence[tuple[float, float | None]], usual_s: float) -> Iterator[Span]:
    """Values that each hold until the next, but no longer than usual, seconds."""
    for (from_s, value), after in zip(values, (*values[1:], None), strict=True):
        to_s = from_s + usual_s if after is None else min(after[0], from_s + usual_s)
        yield Span(from_s=from_s, to_s=to_s, value=value)


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
