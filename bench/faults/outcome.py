"""What is asked of every injection, and its answers."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One injection. Each complaint is a sentence, `None` where there is nothing to complain of.

    kind: of fault. seed: repeats it. changed: a limit that is not as it was found. harmed: what was done to the job.
    hung: what did not end in time. silent: what should have been said. by_restore: the GPU took no limit until the
    fault was over, and `autocap restore` then put it back. overtaken: another tool's write fell into our own call, so
    that the two cannot be distinguished. back_s: from the controller's death until every limit was back, where one was
    away. said: everything that was said.
    """

    kind: str
    seed: int
    changed: str | None = None
    harmed: str | None = None
    hung: str | None = None
    silent: str | None = None
    by_restore: bool = False
    overtaken: bool = False
    back_s: float | None = None
    said: tuple[str, ...] = ()

    @property
    def complaints(self) -> tuple[str, ...]:
        named = {"limit changed": self.changed, "job harmed": self.harmed, "hung": self.hung, "silent": self.silent}
        return tuple(f"{name}: {text}" for name, text in named.items() if text is not None)


def silence(said: Sequence[str], pattern: str | None) -> str | None:
    """The complaint that nothing of what was said names the fault; `None` where nothing need be said."""
    if pattern is None or any(re.search(pattern, text) for text in said):
        return None
    return f"nothing says {pattern!r}"


def difference(expected_mw: Sequence[int], found_mw: Sequence[int]) -> str | None:
    """Which limits differ from what they should be."""
    wrong = [
        f"GPU {gpu} at {found / 1000:g} W instead of {expected / 1000:g} W"
        for gpu, (expected, found) in enumerate(zip(expected_mw, found_mw, strict=True))
        if expected != found
    ]
    return ", ".join(wrong) or None


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """A row a kind of fault, and the totals."""
    rows: dict[str, list[Outcome]] = {}
    for one in outcomes:
        rows.setdefault(one.kind, []).append(one)
    titles = ("injections", "changed", "harmed", "hangs", "silent", "by restore", "overtaken")
    lines = [f"{'fault':36}" + "".join(f"{title:>12}" for title in titles)]
    everything = [one for group in rows.values() for one in group]
    for name, group in (*rows.items(), ("all", everything)):
        counts = (
            len(group),
            sum(one.changed is not None for one in group),
            sum(one.harmed is not None for one in group),
            sum(one.hung is not None for one in group),
            sum(one.silent is not None for one in group),
            sum(one.by_restore for one in group),
            sum(one.overtaken for one in group),
        )
        lines.append(f"{name:36}" + "".join(f"{count:12}" for count in counts))
    return lines
