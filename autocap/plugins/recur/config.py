"""The settings of a recurrence, as `autocap.config` has those of a run; when it has reached what it trains for; and its
command, with its batch size and the scale of its learning rate filled in."""

import argparse
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from autocap.config import RunConfig, values
from autocap.config.option import AsIn, CommandOption
from autocap.config.values import shown
from autocap.errors import UsageError
from autocap.progress.regex import compile_pattern
from autocap.progress.values import OF_OUTPUT

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"(.*\S)\s*(>=|<=|>|<)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*", re.ASCII | re.DOTALL)
_VALUE_NAME = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)
_EXAMPLES = r"such as 'accuracy[:=] *([\d.]+) >= 0.75', or 'accuracy >= 0.75' for autocap.report(accuracy=…)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """text: as it was given. name: of the value, OF_OUTPUT where it is read out of the job's output. pattern: what
    finds it there, "" where the job reports it by itself. comparison, bound: what a value must be to it."""

    text: str
    name: str
    pattern: str
    comparison: str
    bound: float

    def reached(self, value: float) -> bool:
        """Whether a value is enough; one that is not a number never is."""
        return _COMPARISONS[self.comparison](value, self.bound)

    def better(self, one: float, other: float) -> bool:
        """Whether a value is nearer to the target than another."""
        return one > other if self.comparison in (">", ">=") else one < other


def target(text: str) -> Target:
    """What `--target` gives: a regular expression with a group, or the name of a reported value, and its bound.

    Raises UsageError for anything else.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise UsageError(f"--target {shown(text)} has no bound; write a value and its bound, {_EXAMPLES}")
    what, comparison, bound = form.groups()
    if _VALUE_NAME.fullmatch(what):
        return Target(text=text, name=what, pattern="", comparison=comparison, bound=float(bound))
    if not compile_pattern(what).groups:
        raise UsageError(f"--target {shown(text)} has no group that holds the value; write one in (), {_EXAMPLES}")
    return Target(text=text, name=OF_OUTPUT, pattern=what, comparison=comparison, bound=float(bound))


THRESHOLD = 2.0  # times the cheapest known, beyond which a recurrence is ended early
LR_RULES = ("sqrt", "linear")
_MOST_SIZES = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def job_name(text: str) -> str:
    """The name of a recurring job."""
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{values.shown(text)} is no name; give 1 to 64 letters, digits, dots, dashes or underscores"
        )
    return text


def batch_sizes(text: str) -> tuple[int, ...]:
    """Whole numbers by comma, each once."""
    sizes = tuple(values.count(one.strip(), 10**9) for one in text.split(","))
    if len(set(sizes)) < len(sizes) or len(sizes) > _MOST_SIZES:
        raise argparse.ArgumentTypeError(f"{values.shown(text)} is no list of at most {_MOST_SIZES} different sizes")
    return sizes


def factor_above_1(text: str) -> float:
    """A factor above 1."""
    factor = values.number(text)
    if not factor > 1:
        raise argparse.ArgumentTypeError(f"{factor:g} would stop the cheapest run; give a factor above 1, such as 2")
    return factor


_recur = partial(CommandOption, "what comes again", commands=("recur",))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurConfig:
    """A whole `autocap recur`. run: of its job, whose command still has its placeholders.

    batch_sizes: as given. default: `None` for the first of them. window: recurrences after which a cost counts half,
    `None` for all alike. max_epochs: values of the target, `None` for any number. lr_rule: how the learning rate is
    scaled, `None` for not at all.
    """

    run: Annotated[RunConfig, AsIn("run")]
    name: Annotated[
        str, _recur("--name NAME", job_name, "of the recurring job: what its recurrences have in common", common=True)
    ]
    batch_sizes: Annotated[
        tuple[int, ...],
        _recur("--batch-sizes LIST", batch_sizes, "those to choose from, by comma: 32,64,128", common=True),
    ]
    target: Annotated[
        str,
        _recur(
            "--target 'VALUE >= X'",
            values.word,
            "when the job has done its work; VALUE: a regular expression for its output, whose first group is the "
            "number, or the name of what it gives to autocap.report; >=, >, <= or <",
            common=True,
        ),
    ]
    default: Annotated[
        int | None,
        _recur(
            "--default-batch-size N",
            values.count,
            "which of them the job has without us, tried first (default: the first)",
            common=True,
        ),
    ] = None
    max_epochs: Annotated[
        int | None,
        _recur("--max-epochs N", values.count, "end the job as failed after N values of the target that are no X"),
    ] = None
    threshold: Annotated[
        float,
        _recur(
            "--threshold X",
            factor_above_1,
            f"end a recurrence that has cost X times the cheapest without its target (default: {THRESHOLD:g})",
        ),
    ] = THRESHOLD
    window: Annotated[
        int | None,
        _recur(
            "--window N",
            values.count,
            "as data drift: after N recurrences a cost counts half (default: all count alike)",
        ),
    ] = None
    lr_rule: Annotated[
        str | None,
        _recur(
            "--lr-rule RULE",
            str,
            "what {lr_scale} in the command is, against the default batch size: sqrt or linear (default: none)",
            choices=LR_RULES,
        ),
    ] = None

    @property
    def usual(self) -> int:
        """The batch size that the job has without us."""
        return self.batch_sizes[0] if self.default is None else self.default


BATCH_SIZE, LR_SCALE = "{batch_size}", "{lr_scale}"


def require_places(command: Sequence[str], lr_rule: str | None) -> None:
    """Raises UsageError where a command has no place for the batch size, or for what else was asked for."""
    if not any(BATCH_SIZE in word for word in command):
        raise UsageError(
            f"the command has no {BATCH_SIZE}, so every recurrence would be the same; write it where the job takes its "
            f"batch size, such as --batch-size {BATCH_SIZE}"
        )
    scaled = any(LR_SCALE in word for word in command)
    if scaled and lr_rule is None:
        raise UsageError(
            f"the command has {LR_SCALE}, which only a rule can fill in; add --lr-rule {' or '.join(LR_RULES)}"
        )
    if lr_rule is not None and not scaled:
        raise UsageError(
            f"--lr-rule {lr_rule} has nowhere to go; write {LR_SCALE} in the command, where the job takes the "
            "factor of its learning rate"
        )


def filled(command: Sequence[str], batch_size: int, default: int, lr_rule: str | None) -> tuple[str, ...]:
    """The command as it is started. default: the batch size whose learning rate is scaled by 1."""
    words = [word.replace(BATCH_SIZE, str(batch_size)) for word in command]
    if lr_rule is None:
        return tuple(words)
    return tuple(word.replace(LR_SCALE, f"{lr_scale(batch_size, default, lr_rule):.6g}") for word in words)


def lr_scale(batch_size: int, default: int, rule: str) -> float:
    """By how much a learning rate grows with the batch size: linear (Goyal et al. 2017), or its square root
    (Krizhevsky 2014)."""
    ratio = batch_size / default
    return ratio if rule == "linear" else math.sqrt(ratio)
