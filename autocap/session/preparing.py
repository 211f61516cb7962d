"""What every session does before its job is tuned or measured, a sweep's like any other: whatever can be refused is
refused here, and what dead runs left behind is put back."""

import os
from contextlib import ExitStack

from autocap import events
from autocap.config import NODE_POWER, RunConfig
from autocap.devices import node as node_power
from autocap.devices.base import PowerSource
from autocap.job.command_path import JobCommand, job_command
from autocap.job.invoking_user import InvokingUser
from autocap.job.keeper import keeper
from autocap.job.shared_files import remove_dead
from autocap.job.signals import SignalClock
from autocap.limits.recovery import settled_news
from autocap.session.prices import reading
from autocap.session.prices.reading import Feed, by_kind
from autocap.session.prices.series import SourceRefused
from autocap.session.recorder import Recorder


def found_command(config: RunConfig, clock: SignalClock, user: InvokingUser | None) -> JobCommand:
    """The command as it is to be started. user: the one behind sudo, `None` without sudo. Raises TargetError."""
    with clock.lifted():  # a login shell must feel it when its children end
        return job_command(config.command, os.environ, user)


def tell_of_command(config: RunConfig, command: JobCommand, recorder: Recorder, t_s: float) -> None:
    """Which program it is, where sudo's own PATH gives another. command: as it was found."""
    if command.doubt is not None:
        recorder.warn(t_s, command.doubt)
    if command.taken is not None:
        name = config.command[0]
        recorder.event(events.ProgramFound(t_s=t_s, name=name, program=command.taken, plain=command.plain))


def settle_leftovers(*, observe: bool) -> list[str]:
    """Put back what dead runs left, on whatever device, unless nothing is to be set; sentences on it. Their step maps
    are removed either way, as under --observe there is no watchdog to do so."""
    remove_dead()
    if observe:
        return []
    root = keeper()
    try:
        found = () if root is None else root.settle()
    except OSError as error:
        found = (str(error),)
    return [*found, *settled_news()]


def open_prices(config: RunConfig, clock: SignalClock, stack: ExitStack) -> Feed | None:
    """What reads the sources of prices and carbon, open until the stack closes; `None` where numbers were given.

    Raises SourceRefused for a file that cannot be used, and where no process can be started.
    """
    sources = by_kind(config.sources)
    for kind, source in sources.items():
        reading.require(source, kind)
    if not sources:
        return None
    try:
        with clock.lifted():
            feed = Feed(sources)
    except OSError as error:
        raise SourceRefused(f"no process can be started to read prices: {error.strerror}") from error
    stack.callback(feed.close)
    return feed


def open_node_power(config: RunConfig, clock: SignalClock, stack: ExitStack) -> PowerSource | None:
    """The source that --node-power names, open until the stack closes; `None` for none.

    Raises DeviceUnavailable where it reads no power.
    """
    if config.node_power == NODE_POWER:
        return None
    with clock.lifted():  # a meter must feel it when it is asked to end
        node = node_power.open_source(config.node_power, clock)
    stack.callback(node.close)
    return node
