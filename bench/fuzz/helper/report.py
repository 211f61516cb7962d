"""What came of the rounds, in a table."""

from collections.abc import Iterator, Sequence
from statistics import median, quantiles

from bench.fuzz.helper.rounds import COLUMNS, Round

_WANTED_MS = 50.0


def complaints(rounds: Sequence[Round]) -> list[tuple[str, str]]:
    return [(column, f"{one.circumstances}: {text}") for one in rounds for column, text in one.complaints]


def table(rounds: Sequence[Round]) -> Iterator[str]:
    """A row for each kind of circumstances, and one of all; then how long a client that behaves well waited."""
    yield f"{'helper':26}{'cases':>7}{'messages':>10}{'a second':>10}{'sets':>7}" + "".join(
        f"{name:>9}" for name in COLUMNS
    ) + f"{'peak':>9}{'growth':>9}"  # fmt: skip
    kinds = {one.circumstances: [each for each in rounds if each.circumstances == one.circumstances] for one in rounds}
    rows = {**kinds, **({"all": list(rounds)} if len(kinds) > 1 else {})}
    for name, group in rows.items():
        messages, seconds = sum(one.messages for one in group), sum(one.seconds for one in group)
        counts = [sum(column == each for one in group for each, _ in one.complaints) for column in COLUMNS]
        yield (
            f"{name:26}{sum(one.cases for one in group):7}{messages:10}{messages / max(seconds, 1e-9):10.0f}"
            f"{sum(one.sets for one in group):7}" + "".join(f"{count:9}" for count in counts)
            + f"{max(one.peak_mb for one in group):6.1f} MB{max(one.growth_mb for one in group):6.1f} MB"
        )  # fmt: skip
    yield ""
    yield f"{'a client that behaves well, ms':34}{'requests':>10}{'median':>9}{'p99':>9}{'longest':>9}"
    for name, group in rows.items():
        for words, taken in (
            (f"{name}: before", [one for each in group for one in each.alone]),
            (f"{name}: beside", [one for each in group for one in each.taken]),
        ):
            if taken:
                yield _times(words, [ms for _, ms in taken])


def p99(values: Sequence[float]) -> float:
    """What one in a hundred of them exceeds."""
    return quantiles(values, n=100)[-1] if len(values) > 1 else max(values)


def _times(words: str, taken_ms: Sequence[float]) -> str:
    p99_ms = p99(taken_ms)
    much = f"  p99 is more than the {_WANTED_MS:g} ms that are wanted" if p99_ms > _WANTED_MS else ""
    return f"{words:34}{len(taken_ms):10}{median(taken_ms):9.1f}{p99_ms:9.1f}{max(taken_ms):9.1f}{much}"
