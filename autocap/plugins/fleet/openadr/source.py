"""Which VTN is asked, and for what."""

import ipaddress
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from autocap.errors import UsageError
from autocap.text import printable

EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VtnSource:
    """url: below which `/events` is. program: whose events alone count, by its name; `None` for all. targets: names
    that were given to us. credentials: a file; `None` where the environment has them. every_s: between two questions.

    Raises UsageError for a URL to which no secret may be sent.
    """

    url: str
    program: str | None = None
    targets: tuple[str, ...] = ()
    credentials: str | None = None
    every_s: float = EVERY_S

    def __post_init__(self) -> None:
        why_not = unsafe(self.url)
        if why_not is not None:
            raise UsageError(f"--openadr {why_not}; give one such as https://vtn.example.com/openadr3/3.1.0")

    @property
    def server(self) -> str:
        """What messages call it."""
        return server_of(self.url)


def server_of(url: str) -> str:
    """The host of a URL, and its port where it has one."""
    return printable(urlsplit(url).netloc)


def unsafe(url: str) -> str | None:
    """Why no secret is sent to a URL, a clause; `None` for one that is all right. Nothing of the URL is repeated, as it
    may hold a secret."""
    try:
        found = urlsplit(url)
        _ = found.port
    except ValueError:
        return "is no URL"
    if found.username is not None or found.password is not None:
        return "holds a name or a password, which others could read"
    if found.query or found.fragment or not found.hostname or printable(url) != url or " " in url:
        return "is no plain URL"
    if found.scheme != "https" and not (found.scheme == "http" and _is_loopback(found.hostname)):
        return "does not begin with https://, which is needed for all but this machine itself"
    return None


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
