"""Our own Python where its user may not look: in a session under sudo, whose Python lies in a place of root's.

It then finds its libraries by a variable, which processes of ours inherit and a job does not.
"""

import os
from collections.abc import Mapping

VARIABLE = "LD_LIBRARY_PATH"
UNCHANGED = "-"
_before = UNCHANGED  # what the variable was, "" where there was none


def changed_from(before: str) -> None:
    """The variable is ours by now. before: what it was, "" where there was none; UNCHANGED where it is as it was."""
    global _before
    _before = before


def environment_of(job: Mapping[str, str]) -> dict[str, str]:
    """A job's variables, with that one as it was."""
    found = dict(job)
    if _before != UNCHANGED:
        found.pop(VARIABLE, None)
        found |= {VARIABLE: _before} if _before else {}
    return found


def libraries() -> dict[str, str]:
    """What our own Python needs beside the variables of a job."""
    return {} if _before == UNCHANGED else {VARIABLE: os.environ[VARIABLE]}


def before() -> str:
    """As `changed_from` was told."""
    return _before
