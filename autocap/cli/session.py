"""Where a session under sudo begins: as its user, beside a keeper that has root's rights (`limits.keeper.parting`)."""

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from autocap.config import RunConfig
from autocap.errors import TargetError, UsageError
from autocap.job import own_python
from autocap.job.invoking_user import invoking_user
from autocap.job.keeper import adopt

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(words: list[str]) -> NoReturn:
    """words: the descriptor of its channel to the keeper, what the libraries' variable was, the command's own name, and
    the words behind it."""
    from autocap.cli import main as run

    channel, before, name, *told = words
    own_python.changed_from(before)
    sys.argv = [name, *told]
    adopt(int(channel))
    sys.exit(run(told))


def part_under_sudo(
    config: RunConfig, gpus: "Sequence[str] | None", words: "Sequence[str]", job: int | None = None
) -> None:
    """Under sudo, be the user from here on: this does not return then. gpus: that --gpus names. words: of the command
    line. job: the PID of one that runs already. Raises UsageError for what does not work under sudo."""
    user = invoking_user()
    if user is None:
        return
    if config.nodes is not None:
        raise UsageError(
            f"--nodes {config.nodes} does not work under sudo; run it as the user whose job it is, with the helper on "
            "each node to set limits"
        )
    from autocap.limits.keeper.charge import Charge
    from autocap.limits.keeper.parting import part

    tune = config.tune
    charge = Charge(
        uid=user.uid,
        gid=user.gid,
        groups=user.groups,
        session=os.getpid(),
        device=config.device,
        gpus=None if gpus is None else tuple(gpus),
        min_w=tune.min_cap_w,
        max_w=tune.max_cap_w,
        job=job,
        observe=tune.observe,
    )
    try:
        part(user, charge, words)
    except OSError as error:
        raise TargetError(
            f"autocap cannot go on as user {user.uid} (SUDO_UID): {error.strerror or error}; run it without sudo, or "
            "as root on purpose with SUDO_UID and SUDO_GID unset"
        ) from error
