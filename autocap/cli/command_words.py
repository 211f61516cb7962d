"""Where the command of a job begins among the words of `autocap run` and `sweep`.

It is what stands behind the first `--`, or, without one, the first word that is neither an option of ours nor the value
of one, and all that follows: options behind it are the job's.
"""

import argparse
import shlex
from collections.abc import Sequence

from autocap.errors import UsageError

_LONGEST = 300  # characters of a line that is shown to be typed


def split(words: Sequence[str], parser: argparse.ArgumentParser) -> tuple[list[str], list[str] | None]:
    """Our own words, and the command's (`None` where there is none).

    An option that the parser does not have ends our words: it is the parser's to refuse. Raises UsageError where both
    a word and a `--` behind it may begin the command.
    """
    takes_value = {
        flag: action.nargs != 0
        for action in parser._actions  # argparse has no other way to ask; its own subclasses use it
        for flag in action.option_strings
    }
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return list(words[:at]), list(words[at + 1 :])
        if not word.startswith("-") or word == "-":
            _require_clear(words, at, parser)
            return list(words[:at]), list(words[at:])
        flag = word.partition("=")[0] if word.startswith("--") else word
        if flag not in takes_value and word[:2] not in takes_value:
            return list(words[: at + 1]), None
        with_next = takes_value.get(word, False) and words[at + 1 : at + 2] not in ([], ["--"])
        at += 2 if with_next else 1
    return list(words), None


def _require_clear(words: Sequence[str], at: int, parser: argparse.ArgumentParser) -> None:
    if "--" not in words[at:]:
        return
    line = shlex.join([*parser.prog.split(), *words[:at], "--", *words[at:]])
    shown = line if len(line) <= _LONGEST else f"{parser.prog} [options] -- CMD …"
    raise UsageError(
        f"where the command begins is not clear, as '{words[at][:_LONGEST]}' stands before `--` and is no option; "
        f"if it begins there, write `{shown}`"
    )
