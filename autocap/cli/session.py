"""Under sudo, how a command goes on as its user (`limits.keeper.parting`): a session beside a keeper that has root's
rights, and what sets no limit without one."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from autocap.config import RunConfig
from autocap.errors import TargetError, UsageError
from autocap.job import own_command
from autocap.job.blas_threads import one_thread
from autocap.job.invoking_user import InvokingUser, invoking_user
from autocap.job.keeper import adopt
from autocap.job.signals import EndedBySignal, SignalClock
from autocap.knobs import POWER_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autocap.limits.keeper.charge import Charge


def main(words: list[str]) -> NoReturn:
    """words: the descriptors of its channel to the keeper (-1 where there is none) and of what it is reached by, which
    no job is to have; what the libraries' variable was, the command's own name, and the words behind it."""
    from autocap.cli import main as run

    descriptors, before, name, *told = words
    channel, *held = map(int, descriptors.split(","))
    for fd in held:
        os.set_inheritable(fd, False)
    own_command.changed_from(before)
    sys.argv = [name, *told]
    if channel >= 0:
        adopt(channel)
    sys.exit(run(told))


def be_the_user(typed: "Sequence[str]") -> None:
    """Under sudo, be the user from here on, before a file of theirs is looked at: this does not return then. typed: the
    command line."""
    user = invoking_user()
    if user is not None:
        start(user, None, typed)


def part_under_sudo(
    config: RunConfig, gpus: "Sequence[str] | None", typed: "Sequence[str]", job: int | None = None
) -> None:
    """Under sudo, be the user from here on: this does not return then. gpus: that --gpus names. typed: the command
    line. job: the PID of one that runs already. Raises UsageError for what does not work under sudo."""
    user = invoking_user()
    if user is None:
        return
    from autocap.limits.keeper.charge import Charge

    refuse_nodes(config.nodes)
    tune = config.tune
    if tune.knob != POWER_LIMIT.name:
        raise UsageError(
            f"--knob {tune.knob} does not work under sudo: the process with root's rights sets power limits alone; run "
            "it as a user who may turn that knob"
        )
    charge = Charge.of(
        user,
        device=config.device,
        gpus=gpus,
        min_w=tune.min_cap_w,
        max_w=tune.max_cap_w,
        node_power=config.node_power,
        job=job,
        observe=tune.observe,
    )
    start(user, charge, typed)


def refuse_nodes(nodes: str | None) -> None:
    """Raises UsageError for a job on several nodes, whose limits are set by their helpers."""
    if nodes is not None:
        raise UsageError(
            f"--nodes {nodes} does not work under sudo; run it as the user whose job it is, with the helper on each "
            "node to set limits"
        )


def start(user: InvokingUser, charge: "Charge | None", typed: "Sequence[str]") -> NoReturn:
    """Be autocap with these words as the user, beside a keeper with that charge. Raises TargetError where that cannot
    be."""
    from autocap.limits.keeper.parting import go_on_as, part, require_readable

    try:
        require_readable(user)
        if charge is None:
            go_on_as(user, typed)
        part(user, charge, typed)
    except OSError as error:
        raise TargetError(
            f"autocap cannot go on as user {user.uid} (SUDO_UID): {error.strerror or error}; run it without sudo, or "
            "as root on purpose with SUDO_UID and SUDO_GID unset"
        ) from error


@contextmanager
def session_clock() -> Iterator[SignalClock]:
    """The clock of a session, which holds signals back before threads of numpy's could catch them.

    A signal that asks for the end before there is a job ends this process when all is closed.
    """
    try:
        with SignalClock() as clock:
            with one_thread():
                import autocap.session.modes  # noqa: F401
            yield clock
    except EndedBySignal as ended:
        ended.die()
        raise
