"""What emulated and simulated cards share: published profiles and how sensors read."""

import json
from functools import cache
from importlib.resources import files

from autocap.errors import UsageError
from autocap.text import did_you_mean

DATA = files(__name__).joinpath("krzywaniak2022.json")  # of `profiles`


@cache
def profile_names() -> tuple[str, ...]:
    """The names of all profiles, as `--device emulated:NAME` takes them. Imports no numpy."""
    curves = json.loads(DATA.read_text(encoding="utf-8"))["curves"]
    return tuple(f"{curve['card']}/{curve['network']}" for curve in curves)


def require_profile(name: str) -> None:
    """Raises UsageError with the names that there are. Imports no numpy."""
    known = profile_names()
    if name not in known:
        raise UsageError(f"unknown profile '{name}'{did_you_mean(name, known)}; choose one of {', '.join(known)}")
