"""A case, what it calls, and what came of it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

LIMIT_S = 5.0
LIMIT_MB = 500.0
_WARNING = "autocap: warning: "  # of what is left out of a file: one line of it stands beside the error
_MOST_LINES = 10  # on stderr of a command that does what it was asked
_OF_SHELLS = (126, 127)  # what `run` and `sweep` give for a command that cannot be started
_TRACES = ("Traceback (most recent call last)", "Exception ignored in", "internal fault", "Fatal Python error")
# As autocap.text has them, but for the line's end and the tabulator; written anew, as that is what is looked at.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
COLUMNS = ("tracebacks", f"over {LIMIT_S:g} s", f"over {LIMIT_MB:g} MB", "not one line", "control", "status")


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One case, which those three make again at any time."""

    kind: str
    seed: int
    index: int

    def random(self) -> Random:
        return Random(f"{self.kind} {self.seed} {self.index}")

    def __str__(self) -> str:
        return f"python -m bench fuzz --kinds '{self.kind}' --seed {self.seed} --case {self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A command line. module: as of `python -m`. talks: it tells on stderr how it goes on, so that its lines are not
    counted."""

    words: tuple[str, ...]
    module: str = "autocap"
    environment: Mapping[str, str] = field(default_factory=dict)
    talks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a case came to. status: negative for a signal, `None` where it was ended for its time.
    complaints: by column."""

    case: Case
    call: Call | None
    status: int | None
    wall_s: float
    peak_mb: float
    complaints: Mapping[str, str]


def judged(
    case: Case, call: Call | None, *, status: int | None, wall_s: float, peak_mb: float, out: bytes, err: bytes
) -> Outcome:
    """An outcome with what is wrong about it. call: `None` where not even that was made."""
    found = list(_complaints(call, status, peak_mb, _text(out), _text(err)))
    complaints = dict(reversed(found))
    return Outcome(case=case, call=call, status=status, wall_s=wall_s, peak_mb=peak_mb, complaints=complaints)


def _complaints(call: Call | None, status: int | None, peak_mb: float, out: str, err: str) -> Iterator[tuple[str, str]]:
    traces, hangs, memory, lines, control, wrong = COLUMNS
    if call is None:
        yield traces, f"the bench could not make this case: {err[-300:]}"
        return
    for name, text in (("stdout", out), ("stderr", err)):
        if any(words in text for words in _TRACES):
            last = [line for line in text.splitlines() if line.strip()][-1]
            yield traces, f"{name}: {last[:300]}"
        if (obeyed := _OBEYED.search(text)) is not None:
            around = text[max(0, obeyed.start() - 60) : obeyed.start() + 20]
            yield control, f"{name}: {obeyed[0]!r} in {around!r}"
    if status is None:
        yield hangs, f"ended after {LIMIT_S:g} s"
    if peak_mb > LIMIT_MB:
        yield memory, f"{peak_mb:.0f} MB"
    said = err.count("\n") + (not err.endswith("\n") and bool(err))
    failed = status in (1, 2, *_OF_SHELLS)
    if failed and not call.talks:
        said -= min(1, err.count(_WARNING))
        if said > 1 or (said == 0 and not out):
            yield lines, f"{said} lines on stderr, status {status}: {err[:300]!r}"
    elif status is not None and said > _MOST_LINES and not call.talks:
        yield lines, f"{said} lines on stderr, status {status}: {err[:300]!r}"
    allowed = (0, 1, 2, *(_OF_SHELLS if call.words[:1] in (("run",), ("sweep",)) else ()))
    if status is not None and status not in allowed:
        yield wrong, f"status {status}: {err[-300:]!r}"


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")
