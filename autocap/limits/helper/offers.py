"""What the helper would lend to us, and has lent to others, asked without having anything lent; and root ends that."""

import logging
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from autocap.errors import ActuatorUnavailable, PeerLost
from autocap.limits.helper.connection import connect
from autocap.limits.helper.protocol import (
    MOST_DEVICES,
    BadMessage,
    Devices,
    Ended,
    LeasesEnded,
    LeaseStatus,
    Offer,
    Op,
    Status,
)
from autocap.limits.times import ENDED_WITHIN_S
from autocap.wire.refusal import Refused

log = logging.getLogger(__name__)


def offers_at(path: Path) -> dict[str, Offer]:
    """By UUID. Raises ActuatorUnavailable, with the command that mends it, where no helper answers."""
    with closing(connect(path)) as connection:
        try:
            return {offer.uuid: offer for offer in connection.ask_once_taken(Op.DEVICES, Devices).devices}
        except (PeerLost, Refused) as error:
            raise ActuatorUnavailable(f"the helper at {path} tells of no device: {error}") from error


def leases_at(path: Path) -> tuple[LeaseStatus, ...]:
    """What is lent at the moment. Raises ActuatorUnavailable where no helper answers."""
    with closing(connect(path)) as connection:
        try:
            return connection.ask_once_taken(Op.STATUS, Status).leases
        except (PeerLost, Refused) as error:
            raise ActuatorUnavailable(f"the helper at {path} tells of no lease: {error}") from error


def end_leases_at(path: Path, uuids: Sequence[str]) -> tuple[Ended, ...]:
    """End the leases that have one of these devices; those that were. A helper of an earlier version ends none, and one
    to which we are not root. Raises ActuatorUnavailable where no helper answers."""
    found: list[Ended] = []
    with closing(connect(path)) as connection:
        try:
            for first in range(0, len(uuids), MOST_DEVICES):
                some, within_s = tuple(uuids[first : first + MOST_DEVICES]), ENDED_WITHIN_S
                found += connection.ask_once_taken(Op.END_LEASES, LeasesEnded, devices=some, within_s=within_s).ended
        except (PeerLost, Refused, BadMessage) as error:
            log.debug("the helper at %s ends no lease, or no more: %s", path, error)
    return tuple(found)
