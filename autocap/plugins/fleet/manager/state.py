"""What a manager has to know again after it was killed."""

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autocap.errors import GuardError
from autocap.job.keeper import keeper
from autocap.limits.state_dir import StateDir
from autocap.plugins.fleet.config import Policy
from autocap.plugins.fleet.openadr.spans import Span
from autocap.text import printable_json
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import parse

STATE, SITE_STATE = "budget.state", "budget.site.state"
_MOST_BYTES = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """Kept while a budget runs. asked_w: the last word of a user, `None` before one. watts: there are, before events
    lower them. began_wall_s: seconds since 1970. record: the run directory, absolute. weights: of jobs, as `Weights`
    knows them. spans: of events."""

    asked_w: float | None
    watts: float
    policy: Policy
    began_wall_s: float
    record: str
    weights: tuple[tuple[int, float], ...] = ()
    spans: tuple[Span, ...] = ()


def save(state_dir: Path, state: BudgetState, name: str = STATE) -> None:
    """Raises GuardError where it cannot be written."""
    root, text = keeper(), printable_json(encode(state))
    try:
        if root is not None:
            root.keep(text)
            return
        with StateDir(state_dir) as place:
            place.write(name, text.encode())
    except OSError as error:
        raise GuardError(f"{state_dir / name} cannot be written: {error.strerror}; free some space") from error


def load(state_dir: Path, name: str = STATE) -> BudgetState | None:
    """What a manager that was killed has left; `None` where nothing that can be used is there. Raises GuardError where
    the directory is refused."""
    with suppress(ValueError, OSError):
        found = decode(BudgetState, parse(_kept(state_dir, name), _MOST_BYTES))
        return found if math.isfinite(found.watts + found.began_wall_s) else None
    return None


def _kept(state_dir: Path, name: str) -> bytes:
    """Raises GuardError, OSError."""
    root = keeper()
    if root is not None:
        return (root.kept() or "").encode()
    with StateDir(state_dir) as place:
        return place.read(name) or b""


def forget(state_dir: Path, name: str = STATE) -> None:
    with suppress(OSError, GuardError):
        root = keeper()
        if root is not None:
            root.forget()
            return
        with StateDir(state_dir) as place:
            place.unlink(name)
