"""The command of one recurrence: the job's, with its batch size and the scale of its learning rate filled in."""

import math
from collections.abc import Sequence

from autocap.errors import UsageError
from autocap.plugins.recur.config import LR_RULES

BATCH_SIZE, LR_SCALE = "{batch_size}", "{lr_scale}"


def require(command: Sequence[str], lr_rule: str | None) -> None:
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
