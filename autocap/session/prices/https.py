"""One answer in JSON from a server, which may be slow, large, broken or somebody else."""

import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from email.message import Message
from http import HTTPStatus
from http.client import HTTPException
from typing import IO

from autocap import __version__
from autocap.config.values import shown
from autocap.session.prices.series import SourceRefused
from autocap.wire.json_lines import Json, parse

_WITHIN_S = 20.0
_MOST_BYTES = 4 << 20
_PIECE = 1 << 16


class NotAnswered(SourceRefused):
    """The server has answered with an error. status: of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token is for the server that it was given for."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


def get_json(
    url: str,
    headers: Mapping[str, str] | None = None,
    within_s: float = _WITHIN_S,
    form: Mapping[str, str] | None = None,
) -> Json:
    """What the server says at an address. form: sent to it, where there is one. Raises SourceRefused for what is no
    JSON in time, NotAnswered for an error of the server."""
    server = url.split("/")[2]
    asked = urllib.request.Request(
        url,
        data=None if form is None else urllib.parse.urlencode(form).encode(),
        headers={"User-Agent": f"autocap/{__version__}", **(headers or {})},
    )
    deadline_s = time.monotonic() + within_s
    # What is not encrypted is on this machine, and no proxy's to see.
    ways = (_NoRedirects,) if url.startswith("https:") else (_NoRedirects, urllib.request.ProxyHandler({}))
    try:
        with urllib.request.build_opener(*ways).open(asked, timeout=within_s) as answer:
            data = bytearray()
            while piece := answer.read1(_PIECE):
                data += piece
                if len(data) > _MOST_BYTES:
                    raise SourceRefused(f"{server} answers with more than {_MOST_BYTES >> 20} MiB")
                if time.monotonic() > deadline_s:
                    raise TimeoutError
        return parse(bytes(data), _MOST_BYTES)
    except urllib.error.HTTPError as error:
        error.close()
        raise NotAnswered(f"{server} answers with HTTP {error.code}{_phrase(error.code)}", error.code) from error
    except TimeoutError as error:
        raise SourceRefused(f"{server} has not answered within {within_s:g} s") from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise SourceRefused(f"{server} has not answered within {within_s:g} s") from error
        why = getattr(error.reason, "strerror", None) or error.reason
        raise SourceRefused(f"{server} cannot be reached: {shown(str(why))}") from error
    except (OSError, HTTPException) as error:
        raise SourceRefused(f"{server} cannot be read: {shown(str(error))}") from error
    except ValueError as error:
        raise SourceRefused(f"{server} answers with no JSON: {shown(str(error))}") from error


def _phrase(status: int) -> str:
    """What a status means by the standard: a server may repeat what it was told, and that may be a secret."""
    return f" ({HTTPStatus(status).phrase})" if status in {one.value for one in HTTPStatus} else ""
