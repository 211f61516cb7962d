"""What a source says now, whichever kind it is of."""

import re
from pathlib import Path
from typing import Protocol

from autocap.config.values import shown
from autocap.errors import UsageError
from autocap.events.quote import CARBON, PRICE
from autocap.job import registry
from autocap.job.supervised import CommandFailed, output_of
from autocap.runlog.input_file import InputRefused, read_input
from autocap.session.prices.series import MOST_BYTES, WANTED, Series, SourceRefused, parse
from autocap.text import did_you_mean

FILE, COMMAND = "file:", "command:"
_KINDS = {PRICE: "prices", CARBON: "carbon"}  # where services of each are registered
_COMMAND_S = 30.0
_ZONE = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
UNITS = {PRICE: "money per kWh", CARBON: "grams of CO2 per kWh"}


class Service(Protocol):
    """A service that is asked over the network: a module, registered by the name that sources begin with. ZONED: a zone
    follows that name, `NAME:ZONE`."""

    ZONED: bool

    def missing(self) -> str | None:
        """What has to be there before it can be asked, as a sentence; `None` where nothing lacks."""

    def read(self, zone: str, wall_s: float) -> Series:
        """What is known of a zone, "" for a service that has none, from a time on, seconds since 1970. Raises
        SourceRefused."""


def read_source(source: str, kind: str, wall_s: float) -> Series:
    """The values of a kind that a source, as it was given, says at a time, seconds since 1970. Raises SourceRefused."""
    if source.startswith(FILE):
        return read_file(Path(source.removeprefix(FILE)), kind)
    if source.startswith(COMMAND):
        try:
            said = output_of(source.removeprefix(COMMAND), within_s=_COMMAND_S, most_bytes=MOST_BYTES)
        except CommandFailed as error:
            raise SourceRefused(f"{error}; {WANTED[kind]}") from error
        return parse(said, f"the output of {shown(source)}", kind)
    service = _service(source, kind)  # what speaks to servers takes longer to import than anything else here
    assert service is not None
    return service.read(source.partition(":")[2], wall_s)


def read_file(path: Path, kind: str) -> Series:
    """The values in a file. Raises SourceRefused."""
    try:
        return parse(read_input(path, MOST_BYTES), str(path), kind)
    except OSError as error:
        raise SourceRefused(f"{path} cannot be read: {error.strerror}; {WANTED[kind]}") from error
    except InputRefused as error:
        raise SourceRefused(str(error)) from error


def require(source: str, kind: str) -> None:
    """Before there is a job: raises SourceRefused for a file that cannot be used, and for a service that lacks
    something here. What has to be asked first is not asked."""
    if source.startswith(FILE):
        read_file(Path(source.removeprefix(FILE)), kind)
    service = _service(source, kind)
    why_not = None if service is None else service.missing()
    if why_not is not None:
        raise SourceRefused(why_not)


def check(source: str, kind: str) -> None:
    """Before anything is read: raises UsageError for a source that nobody knows, or that names no zone of a service
    which has zones."""
    name, colon, zone = source.partition(":")
    known = ("file", "command", *registry.ours(_KINDS[kind]), *registry.plugged_in(_KINDS[kind]))
    service = _service(source, kind) if name in known else None
    if name not in known or (service is None and not colon) or (service is not None and bool(colon) != service.ZONED):
        meant = did_you_mean(name, known)
        services = ((one, registry.load(_KINDS[kind], one)) for one in sorted(registry.ours(_KINDS[kind])))
        forms = ", ".join(("file:PATH", "command:CMD", *(f"{one}{':ZONE' * its.ZONED}" for one, its in services)))
        raise UsageError(f"unknown source {shown(source)}{meant}; give a number, in {UNITS[kind]}, or {forms}")
    if service is not None and zone and not _ZONE.fullmatch(zone):
        raise UsageError(f"{shown(zone)} is no zone; give one such as DE_LU, FR or US-CAL-CISO")


def _service(source: str, kind: str) -> Service | None:
    """The service that a source names; `None` for a file or a command. Raises SourceRefused for what nobody knows."""
    name = source.partition(":")[0]
    if f"{name}:" in (FILE, COMMAND):
        return None
    try:
        found: Service = registry.load(_KINDS[kind], name)
    except KeyError:
        raise SourceRefused(f"{shown(source)} is no source of {kind}") from None
    return found
