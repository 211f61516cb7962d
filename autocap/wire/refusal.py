"""Why a service does not do what it was asked: in its answer, and as an exception on either end."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Code(StrEnum):
    """Why a request was not carried out."""

    BAD_MESSAGE = "bad_message"
    TOO_FAST = "too_fast"  # wait_s
    TOO_MANY = "too_many"
    UNKNOWN_DEVICE = "unknown_device"
    NOT_ALLOWED = "not_allowed"
    IN_USE = "in_use"  # uid, pid where they are known
    NO_LEASE = "no_lease"
    REFUSED = "refused"  # kind; found_w where it was overtaken; uuid of the device
    FOREIGN = "foreign"  # uuid, expected_w, found_w
    GUARD = "guard"  # uuid of a device that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The answer to a request that was not carried out. text: a sentence for the user. The rest as the code has it."""

    code: Code
    text: str
    wait_s: float | None = None
    uid: int | None = None
    pid: int | None = None
    uuid: str | None = None
    expected_w: float | None = None
    found_w: float | None = None
    kind: Literal["refused", "not_enforced", "overtaken"] | None = None


class Refused(Exception):
    """A request is not carried out; refusal says so. ended: nor can any other be, as the client may have the devices no
    more."""

    def __init__(self, refusal: Refusal, *, ended: bool = False) -> None:
        super().__init__(refusal.text)
        self.refusal, self.ended = refusal, ended

    @property
    def wait_s(self) -> float | None:
        """Seconds until it may be asked again; `None` where that is of no use."""
        return self.refusal.wait_s if self.refusal.code is Code.TOO_FAST else None


def refused(code: Code, text: str, wait_s: float | None = None) -> Refused:
    return Refused(Refusal(code=code, text=text, wait_s=wait_s))
