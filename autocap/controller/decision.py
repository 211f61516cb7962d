"""What a search comes to."""

from dataclasses import dataclass

from autocap.records import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """caps_w: to keep, watts per device, `None` for the limits found on arrival. reference: what is held, as measured,
    `None` where it is not known. changed: why another search must follow; unsure: whether a later one may find more."""

    caps_w: tuple[float, ...] | None
    reference: Measurement | None
    changed: str | None = None
    unsure: bool = False
