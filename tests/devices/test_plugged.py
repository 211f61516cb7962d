"""Devices of another package whose classes inherit nothing of ours."""

from autocap.devices.plugged import PluggedSource, as_port
from autocap.errors import LimitNotEnforced


class Stranger:
    """Source, device and port at once."""

    known, kind, driver, left = None, "theirs", "1.0", False

    def __init__(self) -> None:
        self.set: list[float] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        self.left = True

    def find(self, job: object, waited_s: float) -> "Stranger":
        return self

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        self.set.append(cap_w)
        if cap_w > 200.0:
            raise LimitNotEnforced("held lower", 200.0)


def test_a_device_has_what_its_class_says_and_else_what_ours_does() -> None:
    theirs = Stranger()
    with PluggedSource(theirs) as source:
        device = source.find((), 0.0)
    assert (theirs.left, device.kind, device.driver) == (True, "theirs", "1.0")
    assert (device.refusal, device.verifier(), device.reloads, device.notes()) == (None, None, 0, ())


def test_a_limit_is_set_and_put_back_by_the_one_setter_that_there_is() -> None:
    theirs = Stranger()
    port = as_port(theirs)
    port.request_w("gpu", 150.0)
    assert port.is_enforced("gpu", 150.0)
    port.put_back("gpu", 260.0, port.settings("gpu"))  # no more enforced than when it was found
    port.put_back("gpu", None, ())
    assert theirs.set == [150.0, 260.0]
    assert as_port(port) is port
