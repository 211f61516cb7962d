"""Which VTN is asked, and for what."""

import ipaddress
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

from autocap.config import values
from autocap.config.option import CommandOption
from autocap.errors import UsageError
from autocap.text import printable

EVERY_S = 10.0
_option = partial(CommandOption, "events of a VTN (OpenADR 3), which lower it", commands=("budget",))
_of_it = partial(_option, beside=("openadr",))


def names(text: str) -> tuple[str, ...]:
    """Names by comma."""
    return tuple(name for part in values.word(text).split(",") if (name := part.strip(" ")))


def absolute(text: str) -> str:
    """The path of a file, wherever it is looked at from."""
    return str(values.path(text).absolute())


@dataclass(frozen=True, slots=True, kw_only=True)
class VtnSource:
    """url: below which `/events` is. program: whose events alone count, by its name; `None` for all. targets: names
    that were given to us. credentials: a file; `None` where the environment has them. every_s: between two questions.

    Raises UsageError for a URL to which no secret may be sent.
    """

    url: Annotated[
        str, _option("--openadr URL", values.word, "of the VTN, such as https://vtn.example.com/openadr3/3.1.0")
    ]
    program: Annotated[
        str | None,
        _of_it("--openadr-program NAME", values.word, "events of this program alone (default: of all)"),
    ] = None
    targets: Annotated[
        tuple[str, ...],
        _of_it("--openadr-targets LIST", names, "names that the VTN has given to us, by comma (default: none)"),
    ] = ()
    credentials: Annotated[
        str | None,
        _of_it(
            "--openadr-credentials FILE",
            absolute,
            "client_id and client_secret, in TOML that its owner alone may read (default: OPENADR_CLIENT_ID and "
            "OPENADR_CLIENT_SECRET of the environment)",
        ),
    ] = None
    every_s: Annotated[
        float,
        _of_it(
            "--openadr-every S",
            values.between(1, 3600, "s"),
            f"ask every so many seconds, 1 to 3600 (default: {EVERY_S:g})",
        ),
    ] = EVERY_S

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
