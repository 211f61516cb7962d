"""Which VTN is asked, and for what; and what it knows us by: from the environment, or from a file that nobody else can
read, never from a command line."""

import ipaddress
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from autocap.config import values
from autocap.config.option import CommandOption
from autocap.errors import AutocapError, UsageError
from autocap.runlog.input_file import KIB, InputRefused, read_input
from autocap.text import printable

EVERY_S = 10.0
_option = partial(CommandOption, "events of a VTN (OpenADR 3), which lower it", commands=("budget",))
_of_it = partial(_option, beside=("openadr",))
ID, SECRET = "OPENADR_CLIENT_ID", "OPENADR_CLIENT_SECRET"
_KEYS = ("client_id", "client_secret", "token_url", "scope")
_MOST_BYTES, _LONGEST = 64 * KIB, 4096  # characters, as OpenADR has it
_WANTED = 'write lines client_id = "…" and client_secret = "…", and perhaps token_url and scope'


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


class CredentialsRefused(AutocapError):
    """Credentials cannot be used; the message holds nothing of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Of OAuth 2. token_url: where a token is had; `None` where the VTN says it. scope: asked for; `None` for none."""

    client_id: str = field(repr=False)
    client_secret: str = field(repr=False)
    token_url: str | None = field(default=None, repr=False)
    scope: str | None = field(default=None, repr=False)


def find_credentials(path: str | None, environ: Mapping[str, str] = os.environ) -> Credentials | None:
    """Those of a file, or else of the environment; `None` where there are none, so that the VTN is asked without.

    Raises CredentialsRefused for a file that others may read, or that holds something else, and for half of them.
    """
    if path is not None:
        return _in_file(path)
    id, secret = environ.get(ID, ""), environ.get(SECRET, "")
    if bool(id) != bool(secret):
        raise CredentialsRefused(f"of {ID} and {SECRET} one is set; set both, or none")
    return Credentials(client_id=id, client_secret=secret) if id else None


def _in_file(path: str) -> Credentials:
    import tomllib

    def require_private(fd: int) -> None:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode & 0o077:
            raise CredentialsRefused(f"{path} holds a secret, and its mode is {mode:o}; give it `chmod 600`")

    try:
        found = tomllib.loads(read_input(Path(path), _MOST_BYTES, require_private).decode())
    except OSError as error:
        raise CredentialsRefused(f"{path} cannot be read: {error.strerror}; {_WANTED}") from None
    except InputRefused as error:
        raise CredentialsRefused(f"{error}; {_WANTED}") from None
    except (ValueError, RecursionError):  # whose words may hold some of it
        raise CredentialsRefused(f"{path} is no TOML; {_WANTED}") from None
    if not {"client_id", "client_secret"} <= set(found) <= set(_KEYS):
        raise CredentialsRefused(f"{path} has other keys than it should; {_WANTED}")
    if not all(isinstance(value, str) and 0 < len(value) <= _LONGEST for value in found.values()):
        raise CredentialsRefused(f"{path} has a value that is no text of 1 to {_LONGEST} characters; {_WANTED}")
    why_not = unsafe(found["token_url"]) if "token_url" in found else None
    if why_not is not None:
        raise CredentialsRefused(f"the token_url of {path} {why_not}; correct it")
    return Credentials(**found)
