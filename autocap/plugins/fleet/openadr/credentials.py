"""What a VTN knows us by: from the environment, or from a file that nobody else can read; never from a command line."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autocap.errors import AutocapError
from autocap.plugins.fleet.openadr.source import unsafe
from autocap.runlog.input_file import KIB, InputRefused, read_input

ID, SECRET = "OPENADR_CLIENT_ID", "OPENADR_CLIENT_SECRET"
_KEYS = ("client_id", "client_secret", "token_url", "scope")
_MOST_BYTES, _LONGEST = 64 * KIB, 4096  # characters, as OpenADR has it
_WANTED = 'write lines client_id = "…" and client_secret = "…", and perhaps token_url and scope'


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
