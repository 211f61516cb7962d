"""What the helper would lend to us, and has lent to others, asked without having anything lent."""

from pathlib import Path

from autocap.errors import ActuatorUnavailable
from autocap.helper.connection import HelperLost, Refused, connect
from autocap.helper.protocol import Devices, Lease, Offer, Op, Status


def offers_at(path: Path) -> dict[str, Offer]:
    """By UUID. Raises ActuatorUnavailable, with the command that mends it, where no helper answers."""
    connection = connect(path)
    try:
        return {offer.uuid: offer for offer in connection.ask_once_taken(Op.DEVICES, Devices).devices}
    except (HelperLost, Refused) as error:
        raise ActuatorUnavailable(f"the helper at {path} tells of no device: {error}") from error
    finally:
        connection.close()


def leases_at(path: Path) -> tuple[Lease, ...]:
    """What is lent at the moment. Raises ActuatorUnavailable where no helper answers."""
    connection = connect(path)
    try:
        return connection.ask_once_taken(Op.STATUS, Status).leases
    except (HelperLost, Refused) as error:
        raise ActuatorUnavailable(f"the helper at {path} tells of no lease: {error}") from error
    finally:
        connection.close()
